package etcdrestore_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// beginUnpaused has a manager end before it pauses the Cluster: the restore has begun, and Cluster
// API goes on.
func (f *fixture) beginUnpaused() {
	f.T.Helper()
	f.confirm()
	f.Client.FailWrite(1, controllertest.AfterWrite)
	_, err := f.reconciler.Reconcile(f.Ctx, requestOf(f.restore))
	f.Expect(err).To(HaveOccurred())
	f.Refresh(f.restore)
	f.Expect(f.restore.Spec.Request).NotTo(BeNil())
	f.expectPaused(false)
}

// expectEnded checks that the restore has ended without a change of any host, and says why.
func (f *several) expectEnded(why string) {
	f.T.Helper()
	f.expect(no, infrav1.RestoreFailedReason)
	f.Expect(f.ExpectCondition(f.restore, infrav1.RestoredCondition, no, infrav1.RestoreFailedReason).Message).To(ContainSubstring(why))
	f.Expect(f.host.Spec.EtcdRestore).To(BeNil())
	for _, host := range f.others {
		f.Refresh(host)
		f.Expect(host.Spec.ControlPlaneHalt).To(BeNil())
	}
	f.expectDeleted(false)
}

// What Cluster API has changed before the pause, nobody has confirmed, and a new member of etcd that
// nobody halts would go on with the former data.
func TestThreat90_ChangedBeforeThePause(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *several)
		want   string
	}{
		"a Machine is replaced on another host":       {func(f *several) { f.newMember(infrav1.OperationSucceeded) }, "since the restore was confirmed: Host new has joined the control plane"},
		"a Machine is replaced on the same host":      {func(f *several) { f.claimAnew(f.others[1]) }, "Host b has joined the control plane"},
		"a host joins":                                {func(f *several) { f.newMember(infrav1.OperationRunning) }, "Host new joins the control plane: wait until its bootstrap has ended"},
		"the host of the restore has another Machine": {func(f *several) { f.claimAnew(f.host) }, "Host h has another Machine now"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSeveral(t)
			f.beginUnpaused()
			test.change(f)
			f.expectEnded(test.want)
			f.expectPaused(false)
		})
	}
}

// newMember adds a host of the control plane, with the state of its bootstrap.
func (f *several) newMember(state infrav1.OperationState) {
	f.T.Helper()
	f.Host("new", func(h *infrav1.ElementalHost) {
		*h = *f.others[1].DeepCopy()
		h.ObjectMeta, h.Spec.Claim.ID = f.Meta("new"), "claim-new"
		h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "claim-new", State: state}}
	})
}

// claimAnew gives a host a new claim, whose bootstrap has succeeded.
func (f *several) claimAnew(host *infrav1.ElementalHost) {
	f.T.Helper()
	controllertest.Change(f.Fixture, host, func(h *infrav1.ElementalHost) { h.Spec.Claim.ID = "claim-anew" })
	f.Report(host, func(status *infrav1.ElementalHostStatus) { status.Operations[0].ID = "claim-anew" })
}

// A Machine that is only gone changes nothing: its member of etcd has left.
func TestLostBeforeThePause(t *testing.T) {
	f := newSeveral(t)
	f.beginUnpaused()
	controllertest.Change(f.Fixture, f.others[1], func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing })
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.expectPaused(true)
}

// A host that became a Node before the pause is in no plan, and the snapshot does not have its Node.
func TestLaterNodeBeforeThePause(t *testing.T) {
	f := newLater(t)
	f.Report(f.worker, func(status *infrav1.ElementalHostStatus) { status.Operations[0].State = infrav1.OperationRunning })
	f.beginUnpaused()
	f.Report(f.worker, func(status *infrav1.ElementalHostStatus) {
		status.Operations[0].State, status.Operations[0].FinishedAt = infrav1.OperationSucceeded, metav1.NewTime(f.Clock.Now().Add(time.Second))
	})
	f.expect(no, infrav1.RestoreFailedReason)
	f.Expect(f.restore.Status.Conditions[0].Message).To(ContainSubstring("Host w has become a Node, which the snapshot does not have"))
	f.expectPaused(false)
	f.Expect(f.host.Spec.EtcdRestore).To(BeNil())
}

// Of two restores that are confirmed at once, one goes on: the other one would replace the Machines
// of the first one's plan.
func TestThreat90_TwoAtOnce(t *testing.T) {
	t.Run("while the first goes on", func(t *testing.T) {
		f := newSeveral(t)
		f.beginUnpaused()
		controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) {
			c.Spec.Paused = new(true)
			c.Annotations = map[string]string{infrav1.RestoreAnnotation: "first"}
		})
		f.expectEnded("ElementalEtcdRestore first of the Cluster goes on")
		f.Expect(*f.cluster.Spec.Paused).To(BeTrue(), "the pause of the first")
		f.Expect(f.cluster.Annotations).To(HaveKeyWithValue(infrav1.RestoreAnnotation, "first"))
	})
	t.Run("after the first", func(t *testing.T) {
		f := newSeveral(t)
		f.beginUnpaused()
		controllertest.Change(f.Fixture, f.others[0], func(h *infrav1.ElementalHost) {
			h.Spec.ControlPlaneHalt = &infrav1.HostControlPlaneHalt{ID: "id", RestoreName: "first"}
		})
		f.expect(no, infrav1.RestoreFailedReason)
		f.Expect(f.restore.Status.Conditions[0].Message).To(ContainSubstring("The control plane on host a was halted for ElementalEtcdRestore first"))
		f.expectPaused(false)
		f.Refresh(f.others[0])
		f.Expect(f.others[0].Spec.ControlPlaneHalt.ID).To(Equal("id"))
	})
}

// A restore whose Cluster somebody pauses after its confirmation begins after that pause.
func TestForeignPauseAfterTheConfirmation(t *testing.T) {
	f := newFixture(t)
	f.beginUnpaused()
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.Expect(f.host.Spec.EtcdRestore).To(BeNil())
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.expectPaused(true)
	f.Expect(f.host.Spec.EtcdRestore).NotTo(BeNil())
}
