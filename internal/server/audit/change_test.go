package audit

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2/textlogger"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// requested returns the lines about a user's request.
func requested(t *testing.T, user string, before, after *infrav1.ElementalHost) []string {
	t.Helper()
	return recorded(t, func(ctx context.Context, l *Log) { l.RecordRequest(ctx, user, "192.0.2.1:4711", before, after) })
}

// recorded returns the lines that record writes.
func recorded(t *testing.T, record func(ctx context.Context, l *Log)) []string {
	t.Helper()
	log, err := New(clocktesting.NewFakeClock(time.Now()), prometheus.NewRegistry())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var out bytes.Buffer
	ctx := ctrl.LoggerInto(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out))))
	record(ctx, log)
	return strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' })
}

// Each change of who has access to a host, or uses it, has a line of its own with the user.
func TestThreat56_EveryChangeHasItsLine(t *testing.T) {
	fingerprint := "sha256:" + strings.Repeat("ab", 32)
	claim := &infrav1.HostClaim{ClusterName: "c", MachineName: "m", ID: "1", Phase: infrav1.ClaimHeld}
	releasing := *claim
	releasing.Phase = infrav1.ClaimReleasing
	for name, tc := range map[string]struct {
		before, after infrav1.ElementalHostSpec
		want          []string
	}{
		"approved":                 {after: infrav1.ElementalHostSpec{Approval: infrav1.ApprovalApproved}, want: []string{`change="Approved"`, `before="Pending"`}},
		"rejected":                 {before: infrav1.ElementalHostSpec{Approval: infrav1.ApprovalApproved}, after: infrav1.ElementalHostSpec{Approval: infrav1.ApprovalRejected}, want: []string{`change="Rejected"`, `before="Approved"`}},
		"no longer approved":       {before: infrav1.ElementalHostSpec{Approval: infrav1.ApprovalApproved}, want: []string{`change="Pending"`}},
		"locked":                   {after: infrav1.ElementalHostSpec{Lock: &infrav1.HostLock{Reason: infrav1.LockCloned}}, want: []string{`change="Locked"`, `reason="Cloned"`}},
		"unlocked":                 {before: infrav1.ElementalHostSpec{Lock: &infrav1.HostLock{Reason: infrav1.LockCloned}}, want: []string{`change="Unlocked"`}},
		"fenced":                   {after: infrav1.ElementalHostSpec{Fence: &infrav1.HostFence{Reason: "stolen"}}, want: []string{`change="Fenced"`, `reason="stolen"`}},
		"unfenced":                 {before: infrav1.ElementalHostSpec{Fence: &infrav1.HostFence{Reason: "stolen"}}, want: []string{`change="Unfenced"`}},
		"claimed":                  {after: infrav1.ElementalHostSpec{Claim: claim}, want: []string{`change="Claimed"`, `clusterName="c"`, `machineName="m"`}},
		"no longer claimed":        {before: infrav1.ElementalHostSpec{Claim: claim}, want: []string{`change="Unclaimed"`, `clusterName="c"`, `machineName="m"`}},
		"released after a hold":    {before: infrav1.ElementalHostSpec{Claim: claim}, after: infrav1.ElementalHostSpec{Claim: &releasing}, want: []string{`change="ClaimChanged"`, `phase="Releasing"`, `before="Held"`}},
		"with another key":         {after: infrav1.ElementalHostSpec{Identity: &infrav1.HostIdentity{KeyFingerprint: fingerprint}}, want: []string{`change="IdentityChanged"`, fingerprint}},
		"without its key":          {before: infrav1.ElementalHostSpec{Identity: &infrav1.HostIdentity{KeyFingerprint: fingerprint}}, want: []string{`change="IdentityChanged"`, `keyFingerprint=""`}},
		"with a bundle":            {after: infrav1.ElementalHostSpec{Bundle: &infrav1.HostBundle{}}, want: []string{`change="InstallChanged"`}},
		"upgraded":                 {after: infrav1.ElementalHostSpec{NodeUpgrade: &infrav1.HostNodeUpgrade{ID: "1"}}, want: []string{`change="InstallChanged"`}},
		"with another system":      {before: infrav1.ElementalHostSpec{OSUpgrade: &infrav1.HostOSUpgrade{ID: "1"}}, want: []string{`change="InstallChanged"`}},
		"restored":                 {after: infrav1.ElementalHostSpec{EtcdRestore: &infrav1.HostEtcdRestore{ID: "1"}}, want: []string{`change="RestoreChanged"`}},
		"of what others may claim": {after: infrav1.ElementalHostSpec{Cordon: &infrav1.HostCordon{}, Hostname: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before, after := &infrav1.ElementalHost{Spec: tc.before}, &infrav1.ElementalHost{Spec: tc.after}
			after.Namespace, after.Name, after.Generation = "ns", "h", 7
			written := requested(t, "alice", before, after)
			if tc.want == nil {
				g.Expect(written).To(BeEmpty())
				return
			}
			g.Expect(written).To(HaveLen(1))
			for _, part := range append(tc.want, `decision="Requested"`, `ElementalHost="ns/h"`, `user="alice"`, `source="192.0.2.1:4711"`, "generation=7") {
				g.Expect(written[0]).To(ContainSubstring(part))
			}
		})
	}
}

// The line about a stored change and that about its request have the same generation.
func TestThreat56_StoredChangeHasItsGeneration(t *testing.T) {
	g := NewWithT(t)
	after := &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{Approval: infrav1.ApprovalApproved}}
	after.Generation = 7
	written := recorded(t, func(ctx context.Context, l *Log) { l.RecordSpecChange(ctx, &infrav1.ElementalHost{}, after) })
	g.Expect(written).To(HaveExactElements(And(ContainSubstring(`decision="Approved"`), ContainSubstring("generation=7"))))
}

// An identity provider may give a user any name: it neither begins a line nor fills the log.
func TestThreat56_NameOfAUser(t *testing.T) {
	g := NewWithT(t)
	after := &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{Approval: infrav1.ApprovalApproved}}
	written := requested(t, "eve\nI1122 forged", &infrav1.ElementalHost{}, after)
	g.Expect(written).To(HaveLen(1))
	g.Expect(written[0]).To(ContainSubstring(`user="eve�I1122 forged"`))

	written = requested(t, strings.Repeat("é", 100_000), &infrav1.ElementalHost{}, after)
	g.Expect(written).To(HaveLen(1))
	g.Expect(len(written[0])).To(BeNumerically("<", 600))
	g.Expect(written[0]).To(ContainSubstring(`é…"`))
}

// Whoever creates a host chooses its hostID.
func TestThreat46_HostID(t *testing.T) {
	g := NewWithT(t)
	after := &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{Approval: infrav1.ApprovalApproved, HostID: "id\nI1122 forged"}}
	written := requested(t, "eve", &infrav1.ElementalHost{}, after)
	g.Expect(written).To(HaveLen(1))
	g.Expect(written[0]).To(ContainSubstring("id�I1122 forged"))
}
