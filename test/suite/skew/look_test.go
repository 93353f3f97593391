//go:build embedded

package skew

import (
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// The watcher records what is wrong, and nothing else.
func TestWatcherLooks(t *testing.T) {
	for reason, wrong := range map[string]bool{
		infrav1.ConnectedReason: false, infrav1.ResettingReason: false, infrav1.BootstrapSucceededReason: false,
		infrav1.DisconnectedReason: true, infrav1.IdentityClonedReason: true, infrav1.BootstrapFailedReason: true,
		infrav1.ResetFailedReason: true, infrav1.LeftoversReason: true, infrav1.AlreadyResetReason: true,
		infrav1.MachineNotFoundReason: true, infrav1.RejectedReason: true, infrav1.QuarantinedReason: true, "SomethingNew": true,
	} {
		g := NewWithT(t)
		w := &watcher{t: t, usual: usual(), reasons: map[string]bool{}, wrong: map[string]time.Time{}}
		host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Name: "h"}}
		host.Status.Conditions = []metav1.Condition{{Type: "T", Status: metav1.ConditionFalse, Reason: reason, Message: "m"}}
		w.look(host)
		if wrong {
			g.Expect(slices.Collect(maps.Keys(w.wrong))).To(Equal([]string{"host h: T is False, " + reason + ": m"}))
		} else {
			g.Expect(w.wrong).To(BeEmpty(), reason)
		}
	}
}
