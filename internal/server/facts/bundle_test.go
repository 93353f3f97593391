package facts

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A host can't make the manager believe that it has another bundle than its spec names.
func TestThreat64_ReportedBundle(t *testing.T) {
	digest := strings.Repeat("a", 64)
	staged := &infrav1.HostBundleStatus{SHA256: digest, Version: "v1.36.3", State: infrav1.BundleStaged}
	bound := func(h *infrav1.ElementalHost) {
		h.Spec.Bundle = &infrav1.HostBundle{Version: "v1.36.3", SHA256: digest}
		h.Spec.Claim = &infrav1.HostClaim{ID: "c", Phase: infrav1.ClaimBound}
	}
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalHost)
		report protocol.BundleReport
		want   *infrav1.HostBundleStatus
	}{
		"staged": {bound, protocol.BundleReport{SHA256: digest, Version: "v1.36.3", State: protocol.BundleStaged}, staged},
		"the version is that of the plan": {
			bound, protocol.BundleReport{SHA256: digest, Version: "<script>", State: protocol.BundleStaged}, staged,
		},
		"a message without end": {
			bound, protocol.BundleReport{SHA256: digest, State: protocol.BundleFailed, Message: strings.Repeat("x", 1<<20)},
			&infrav1.HostBundleStatus{SHA256: digest, Version: "v1.36.3", State: infrav1.BundleFailed, Message: strings.Repeat("x", 1024)},
		},
		"a message of control characters": {
			bound, protocol.BundleReport{SHA256: digest, State: protocol.BundleStaging, Message: "\x1b[2J12 MiB\x00"},
			&infrav1.HostBundleStatus{SHA256: digest, Version: "v1.36.3", State: infrav1.BundleStaging, Message: "[2J12 MiB"},
		},
		"another digest":  {bound, protocol.BundleReport{SHA256: strings.Repeat("b", 64), State: protocol.BundleStaged}, nil},
		"a strange state": {bound, protocol.BundleReport{SHA256: digest, State: "Installed"}, nil},
		"no state":        {bound, protocol.BundleReport{SHA256: digest}, nil},
		"no bundle":       {bound, protocol.BundleReport{}, nil},
		"none is desired": {func(*infrav1.ElementalHost) {}, protocol.BundleReport{SHA256: digest, State: protocol.BundleStaged}, nil},
		"released": {func(h *infrav1.ElementalHost) {
			bound(h)
			h.Spec.Claim.Phase = infrav1.ClaimReleasing
		}, protocol.BundleReport{SHA256: digest, State: protocol.BundleStaged}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &infrav1.ElementalHost{}
			tc.change(host)
			SetReported(host, &protocol.Report{Bundle: &tc.report}, time.Now())
			g.Expect(host.Status.Bundle).To(Equal(tc.want))
		})
	}
	g := NewWithT(t)
	host := &infrav1.ElementalHost{}
	bound(host)
	host.Status.Bundle = staged.DeepCopy()
	SetReported(host, &protocol.Report{}, time.Now())
	g.Expect(host.Status.Bundle).To(Equal(staged), "a report without it says nothing about it")
	SetReported(host, &protocol.Report{Bundle: &protocol.BundleReport{SHA256: strings.Repeat("b", 64), State: protocol.BundleFailed}}, time.Now())
	g.Expect(host.Status.Bundle).To(Equal(staged))
	SetReported(host, &protocol.Report{Bundle: &protocol.BundleReport{}}, time.Now())
	g.Expect(host.Status.Bundle).To(BeNil(), "the host has removed it")
}
