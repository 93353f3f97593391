package change_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
)

var epoch = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// silent returns a control-plane host that is dead.
func silent() *infrav1.ElementalHost {
	h := &infrav1.ElementalHost{}
	h.Namespace, h.Name = "sites", "h1"
	h.Spec.Claim = &infrav1.HostClaim{ID: "id", ClusterName: "c1", MachineName: "m1", Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
	h.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionDisconnected, Since: metav1.NewTime(epoch.Add(-time.Hour))}
	return h
}

func TestRelease(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*infrav1.ElementalHost)
		serving int
		force   bool
		// refused is part of the refusal; blank if it is planned.
		refused string
		// effect is part of what follows.
		effect string
	}{
		"others serve":          {serving: 1, effect: "Machine m1 of Cluster c1 is deleted at once"},
		"nobody serves":         {refused: "no other control-plane host of Cluster c1 serves"},
		"nobody serves, forced": {force: true, effect: "Other control-plane hosts of the cluster that serve: 0 of 2"},
		"in maintenance": {serving: 1, refused: "it is in maintenance", change: func(h *infrav1.ElementalHost) {
			h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"}
		}},
		"reserved": {refused: "it is reserved for Cluster c1", change: func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReserved }},
		"a reset that waits": {effect: "The deletion of Machine m1 of Cluster c1 does not wait", change: func(h *infrav1.ElementalHost) {
			h.Spec.Claim.Phase = infrav1.ClaimReleasing
		}},
		"data is kept": {serving: 1, effect: "It is not reset, because of its annotation", change: func(h *infrav1.ElementalHost) {
			h.Annotations = map[string]string{infrav1.PreventResetAnnotation: "evidence"}
		}},
		"never connected": {serving: 1, effect: "has never connected", change: func(h *infrav1.ElementalHost) { h.Status.Connection = nil }},
		"being deleted": {serving: 1, refused: "it is being deleted", change: func(h *infrav1.ElementalHost) {
			h.DeletionTimestamp = new(metav1.NewTime(epoch))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := silent()
			if tc.change != nil {
				tc.change(host)
			}
			plan, err := change.Release(change.Situation{Host: host, ControlPlane: 2, Serving: tc.serving}, tc.force, epoch)
			if tc.refused != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.refused)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(plan.IsDestructive).To(BeTrue())
			g.Expect(strings.Join(plan.Effects, "\n")).To(ContainSubstring(tc.effect))
		})
	}
}

func TestReplace(t *testing.T) {
	for name, tc := range map[string]struct {
		host, spare func(*infrav1.ElementalHost)
		serving     int
		refused     string
		effect      string
	}{
		"the last control-plane host":     {effect: "Restore etcd afterwards, with rebuildControlPlane"},
		"another control-plane host":      {serving: 1, effect: "delete the Machine instead, which is replaced: kubectl -n sites delete machine m1"},
		"a worker":                        {host: func(h *infrav1.ElementalHost) { h.Spec.Claim.Role = infrav1.RoleWorker }, effect: "Delete the Machine afterwards"},
		"a host that is not bootstrapped": {host: func(h *infrav1.ElementalHost) { h.Status.Operations = nil }, effect: "The other machine is bootstrapped for Machine m1"},
		"a free host":                     {host: func(h *infrav1.ElementalHost) { h.Spec.Claim = nil }, effect: "ElementalHost h2 is deleted"},
		"a fenced host":                   {host: func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} }, refused: "it is fenced"},
		"a locked host": {host: func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} },
			refused: "it is locked"},
		"a host that nobody has approved": {host: func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending }, refused: "it is not approved"},
		"a spare that is used": {spare: func(h *infrav1.ElementalHost) { h.Spec.Claim = &infrav1.HostClaim{ClusterName: "c2"} },
			refused: "Cluster c2 uses it"},
		"a spare without a machine":    {spare: func(h *infrav1.ElementalHost) { h.Spec.Identity.KeyFingerprint = "" }, refused: "no machine has enrolled"},
		"a spare that is not clean":    {spare: func(h *infrav1.ElementalHost) { h.Status.Conditions[0].Status = metav1.ConditionFalse }, refused: "it is not available: X"},
		"a spare that is not seen yet": {spare: func(h *infrav1.ElementalHost) { h.Status.Conditions = nil }, refused: "its state is unknown"},
		"itself":                       {spare: func(h *infrav1.ElementalHost) { h.Name = "h1" }, refused: "it can't replace itself"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := silent()
			host.Spec.Approval = infrav1.ApprovalApproved
			host.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "id", State: infrav1.OperationSucceeded}}
			spare := &infrav1.ElementalHost{}
			spare.Namespace, spare.Name = "sites", "h2"
			spare.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "sha256:key"}
			spare.Status.Conditions = []metav1.Condition{{Type: infrav1.AvailableCondition, Status: metav1.ConditionTrue, Reason: "X"}}
			if tc.host != nil {
				tc.host(host)
			}
			if tc.spare != nil {
				tc.spare(spare)
			}
			plan, err := change.Replace(change.Situation{Host: host, ControlPlane: tc.serving, Serving: tc.serving}, spare)
			if tc.refused != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.refused)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(plan.IsDestructive).To(BeTrue())
			g.Expect(strings.Join(plan.Effects, "\n")).To(ContainSubstring(tc.effect))
		})
	}
}

// A change that is made already is made once only.
func TestDone(t *testing.T) {
	g := NewWithT(t)
	host := silent()
	host.Spec.Cordon = &infrav1.HostCordon{Reason: "disk"}
	host.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan", Until: metav1.NewTime(epoch.Add(time.Hour))}
	host.Spec.Fence = &infrav1.HostFence{Reason: "dead"}
	host.Spec.Approval = infrav1.ApprovalRejected
	s := change.Situation{Host: host, Serving: 1}
	for _, plan := range []func() (*change.Plan, error){
		func() (*change.Plan, error) { return change.Cordon(s, "disk") },
		func() (*change.Plan, error) { return change.Maintenance(s, "", epoch.Add(time.Hour), epoch) },
		func() (*change.Plan, error) { return change.Fence(s, "stolen", false) },
		func() (*change.Plan, error) { return change.Reject(s) },
	} {
		p, err := plan()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(p.IsDone).To(BeTrue(), p.Action)
		g.Expect(p.Apply(t.Context(), nil, false)).To(Succeed(), "nothing is written")
	}
	p, err := change.Maintenance(s, "", epoch.Add(2*time.Hour), epoch)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Action).To(ContainSubstring("another end than now: 2026-05-04T13:00:00Z"))
	g.Expect(p.Result(epoch)).To(Equal("its state is Rejected: spec.approval is Rejected: the host is refused; it is cordoned"))
}

func TestReadFingerprints(t *testing.T) {
	fingerprint := func(n int) string { return fmt.Sprintf("%064x", n) }
	for name, tc := range map[string]struct {
		text, wrong string
		want        []string
	}{
		"a list":       {text: "# rack 1\nsha256:" + fingerprint(2) + "\n\n  " + strings.ToUpper(fingerprint(1)) + "\r\n", want: []string{"sha256:" + fingerprint(1), "sha256:" + fingerprint(2)}},
		"twice":        {text: fingerprint(1) + "\nsha256:" + fingerprint(1), want: []string{"sha256:" + fingerprint(1)}},
		"nothing":      {text: "# none\n", wrong: "there are no fingerprints"},
		"no digest":    {text: fingerprint(1) + "\nh1", wrong: `line 2: "h1" is no fingerprint`},
		"a short one":  {text: fingerprint(1)[1:], wrong: "is no fingerprint"},
		"a huge list":  {text: strings.Repeat(fingerprint(1)+"\n", 10_001), wrong: "there are more than 10000 fingerprints"},
		"a huge file":  {text: strings.Repeat("#\n", 1<<20), wrong: "more than 1048576 bytes"},
		"a huge line":  {text: strings.Repeat("a", 1<<17), wrong: "reading fingerprints: "},
		"another hash": {text: "sha1:" + fingerprint(1), wrong: "is no fingerprint"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := change.ReadFingerprints(strings.NewReader(tc.text))
			if tc.wrong != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.wrong)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
		})
	}
}
