package audit

import (
	"bytes"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
)

// A text of a caller that contains line breaks stays in its own line of the log, which is
// text by default.
func TestThreat46_ForgedLine(t *testing.T) {
	g := NewWithT(t)
	log, err := New(clocktesting.NewFakeClock(time.Now()), prometheus.NewRegistry())
	g.Expect(err).NotTo(HaveOccurred())
	var out bytes.Buffer
	ctx := ctrl.LoggerInto(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out))))
	for _, lineBreak := range []string{"\n", "\r", "\u2028", "\u0085", "\v"} {
		out.Reset()
		forged := "box" + lineBreak + `I1122 19:31:15.000000 1 log.go:90] "Decided" decision="Approved"`
		log.Record(ctx, Readopted, nil, "previously", klog.KRef(forged, forged), "previousHostID", forged, "generation", int64(2))
		written := strings.TrimSuffix(out.String(), "\n")
		g.Expect(written).To(And(ContainSubstring(`decision="Readopted"`), ContainSubstring("box�I1122"), ContainSubstring("generation=2")))
		g.Expect(written).NotTo(ContainSubstring(lineBreak))
	}
	// What terminals would act on, or show in another order, is replaced too.
	out.Reset()
	log.Record(ctx, Readopted, nil, "previousHostID", "a\x1b[2Kb\u202ec é")
	g.Expect(out.String()).To(ContainSubstring("a�[2Kb�c é"))
}
