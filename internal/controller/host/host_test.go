package host_test

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

type fixture struct {
	*controllertest.Fixture

	reconciler *host.Reconciler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env)}
	f.reconciler = &host.Reconciler{Client: f.Client, APIReader: f.Admin, Recorder: f.Recorder, Clock: f.Clock}
	return f
}

func (f *fixture) reconcile(h *infrav1.ElementalHost) {
	f.T.Helper()
	_, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(h)})
	f.Expect(err).NotTo(HaveOccurred())
	f.Refresh(h)
}

func claimed(phase infrav1.ClaimPhase) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "m", Phase: phase}
		if phase == infrav1.ClaimReleasing {
			h.Annotations = map[string]string{clusterctlv1.BlockMoveAnnotation: ""}
		}
	}
}

func TestConditionsFollowTheSpec(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1")
	f.reconcile(h)
	f.Client.Forget()
	f.reconcile(h)
	f.Expect(f.Client.Writes()).To(BeEmpty(), "an unchanged host must not be written")

	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan broken"} })
	f.reconcile(h)
	f.Expect(f.ExpectCondition(h, infrav1.AvailableCondition, no, infrav1.CordonedReason).Message).To(ContainSubstring("fan broken"))

	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Spec.Cordon, h.Spec.Approval = nil, infrav1.ApprovalRejected })
	f.reconcile(h)
	f.ExpectCondition(h, infrav1.ApprovedCondition, no, infrav1.RejectedReason)
	f.ExpectCondition(h, infrav1.ReadyCondition, no, infrav1.RejectedReason)
	f.ExpectCondition(h, infrav1.ConnectedCondition, yes, infrav1.ConnectedReason)
	f.Expect(f.Events()).To(ConsistOf(ContainSubstring(infrav1.RejectedReason)))

	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) {
		h.Spec.Approval = infrav1.ApprovalApproved
		claimed(infrav1.ClaimBound)(h)
	})
	f.reconcile(h)
	f.ExpectCondition(h, infrav1.AvailableCondition, no, infrav1.ClaimedReason)
	f.ExpectCondition(h, infrav1.BootstrappedCondition, no, infrav1.BootstrappingReason)
	f.Expect(h.Status.Connection.State).To(Equal(infrav1.ConnectionConnected), "only the agent API writes facts")

	f.Client.Forget()
	f.reconcile(h)
	f.Expect(f.Client.Writes()).To(BeEmpty())
}

// After a move or restore, which lose the status, the conditions are derived from spec.
func TestConditionsOfAHostWithoutStatus(t *testing.T) {
	f := newFixture(t)
	h := &infrav1.ElementalHost{ObjectMeta: f.Meta("h1")}
	h.Spec.Approval = infrav1.ApprovalApproved
	f.Expect(f.Admin.Create(f.Ctx, h)).To(Succeed())
	f.reconcile(h)
	f.Expect(h.Status.Conditions).To(BeEmpty(), "the enrolment writes the first status of a new host")
	f.Clock.SetTime(h.CreationTimestamp.Add(time.Minute))
	f.reconcile(h)
	f.ExpectCondition(h, infrav1.ConnectedCondition, no, infrav1.NeverConnectedReason)
	f.ExpectCondition(h, infrav1.CleanCondition, metav1.ConditionUnknown, infrav1.NotReportedReason)
	f.ExpectCondition(h, infrav1.AvailableCondition, no, infrav1.NeverConnectedReason)
}

func TestFreedOnlyWhenCleanAndTheMachineIsGone(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalHost)
		// machine is true if the Machine still exists and is being deleted.
		machine       bool
		phase         infrav1.ClaimPhase
		reset         infrav1.OperationState
		free, blocked bool
	}{
		"reset and gone":          {phase: infrav1.ClaimReleasing, reset: infrav1.OperationSucceeded, free: true},
		"reset, Machine there":    {phase: infrav1.ClaimReleasing, reset: infrav1.OperationSucceeded, machine: true, blocked: true},
		"resetting":               {phase: infrav1.ClaimReleasing, reset: infrav1.OperationRunning, machine: true, blocked: true},
		"resetting, Machine gone": {phase: infrav1.ClaimReleasing, reset: infrav1.OperationRunning},
		"silent, Machine gone":    {phase: infrav1.ClaimReleasing},
		"reset failed":            {phase: infrav1.ClaimReleasing, reset: infrav1.OperationFailed},
		"reset, but dirty": {phase: infrav1.ClaimReleasing, reset: infrav1.OperationSucceeded, change: func(h *infrav1.ElementalHost) {
			h.Status.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty, Leftovers: []string{"/var/lib/etcd"}}
		}},
		"reset, paused": {phase: infrav1.ClaimReleasing, reset: infrav1.OperationSucceeded, change: func(h *infrav1.ElementalHost) {
			h.Annotations[clusterv1.PausedAnnotation] = ""
		}},
		"bound to a Machine that does not exist": {phase: infrav1.ClaimBound, reset: infrav1.OperationSucceeded},
		"reserved":                               {phase: infrav1.ClaimReserved},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			h := f.Host("h1", claimed(tc.phase), func(h *infrav1.ElementalHost) {
				if tc.reset != "" {
					controllertest.SetOperation(&h.Status, infrav1.HostOperation{Type: infrav1.OperationReset, ID: "1", State: tc.reset})
				}
				if tc.change != nil {
					tc.change(h)
				}
			})
			if tc.machine {
				f.Cluster("c")
				owner, _ := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
					o.Finalizers = []string{clusterv1.MachineFinalizer}
				})
				f.Delete(owner)
			}
			f.reconcile(h)
			f.Expect(h.Spec.Claim == nil).To(Equal(tc.free))
			_, blocked := h.Annotations[clusterctlv1.BlockMoveAnnotation]
			f.Expect(blocked).To(Equal(tc.blocked), "a move must wait for resets, but not for hosts that may never connect again")
			if tc.free {
				f.ExpectCondition(h, infrav1.AvailableCondition, yes, infrav1.AvailableReason)
				f.Expect(f.Events()).To(ContainElement(ContainSubstring("free for machines")))
			}
		})
	}
}

// A new Machine with the name of the former one has another host, or waits for this one.
// The host must be freed all the same.
func TestFreedForANewMachineOfTheSameName(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1", claimed(infrav1.ClaimReleasing), func(h *infrav1.ElementalHost) {
		controllertest.SetOperation(&h.Status, infrav1.HostOperation{Type: infrav1.OperationReset, ID: "1", State: infrav1.OperationSucceeded})
	})
	f.Cluster("c")
	owner, _ := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.Spec.ProviderID = "elemental://" + f.Namespace + "/h1"
	})
	f.reconcile(h)
	f.Expect(h.Spec.Claim).NotTo(BeNil(), "the Machine still has a Node on the host: only its ElementalMachine was deleted")

	f.Delete(owner)
	f.Machine("d", "x") // any other is no hindrance
	fresh := &clusterv1.Machine{ObjectMeta: f.Meta("m"), Spec: *owner.Spec.DeepCopy()}
	fresh.Spec.ProviderID = ""
	f.Create(fresh)
	f.reconcile(h)
	f.Expect(h.Spec.Claim).To(BeNil())
}

// After a restore the cache may not have the Machine yet.
func TestMissingMachineIsReadPastTheCache(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1", claimed(infrav1.ClaimReleasing), func(h *infrav1.ElementalHost) {
		controllertest.SetOperation(&h.Status, infrav1.HostOperation{Type: infrav1.OperationReset, ID: "1", State: infrav1.OperationSucceeded})
	})
	f.Cluster("c")
	owner, _ := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.Finalizers = []string{clusterv1.MachineFinalizer}
	})
	f.Delete(owner)
	live, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Scheme})
	f.Expect(err).NotTo(HaveOccurred())
	f.reconciler.Client = interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*clusterv1.Machine); ok {
				return apierrors.NewNotFound(clusterv1.GroupVersion.WithResource("machines").GroupResource(), key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
		// The API server does not know the indexes of the cache.
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return f.Client.List(ctx, list, opts...)
		},
	})
	f.reconcile(h)
	f.Expect(h.Spec.Claim).NotTo(BeNil())
}

// A missing Machine is only reported, because a restore may create it again. The
// administrator decides.
func TestHostOfAMachineThatDoesNotExist(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1", claimed(infrav1.ClaimBound), func(h *infrav1.ElementalHost) {
		controllertest.SetOperation(&h.Status, infrav1.HostOperation{Type: infrav1.OperationBootstrap, ID: "1", State: infrav1.OperationSucceeded})
	})
	f.reconcile(h)
	f.Expect(f.ExpectCondition(h, infrav1.MachineExistsCondition, no, infrav1.MachineNotFoundReason).Message).To(ContainSubstring("spec.claim.phase"))
	f.ExpectCondition(h, infrav1.ReadyCondition, no, infrav1.MachineNotFoundReason)
	f.Expect(f.Events()).To(ContainElement(ContainSubstring(infrav1.MachineNotFoundReason)))
	f.Expect(h.Spec.Claim.Phase).To(Equal(infrav1.ClaimBound))

	f.Cluster("c")
	owner, _ := f.Machine("c", "m")
	f.reconcile(h)
	f.ExpectCondition(h, infrav1.MachineExistsCondition, yes, infrav1.MachineFoundReason)
	f.ExpectCondition(h, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)

	f.Delete(owner)
	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing })
	f.ReportOperation(h, infrav1.OperationReset, infrav1.OperationSucceeded)
	f.reconcile(h)
	f.Expect(h.Spec.Claim).To(BeNil())
	f.ExpectCondition(h, infrav1.AvailableCondition, yes, infrav1.AvailableReason)
	f.Expect(h.Status.Conditions).NotTo(ContainElement(HaveField("Type", infrav1.MachineExistsCondition)))
}

func TestFailedWritesAreRetried(t *testing.T) {
	for _, moment := range []controllertest.Moment{controllertest.BeforeWrite, controllertest.AfterWrite} {
		for n := 1; n <= 2; n++ {
			t.Run(string(moment), func(t *testing.T) {
				f := newFixture(t)
				h := f.Host("h1", claimed(infrav1.ClaimReleasing), func(h *infrav1.ElementalHost) {
					controllertest.SetOperation(&h.Status, infrav1.HostOperation{Type: infrav1.OperationReset, ID: "1", State: infrav1.OperationSucceeded})
				})
				f.Client.FailWrite(n, moment)
				_, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(h)})
				f.Expect(err).To(MatchError(controllertest.ErrInjected))
				f.Client.Forget()
				f.reconcile(h)
				f.Expect(h.Spec.Claim).To(BeNil())
				f.ExpectCondition(h, infrav1.AvailableCondition, yes, infrav1.AvailableReason)
			})
		}
	}
}

func TestWatchFilter(t *testing.T) {
	f := newFixture(t)
	f.reconciler.WatchFilter = "mine"
	h := &infrav1.ElementalHost{ObjectMeta: f.Meta("h1")}
	f.Expect(f.Admin.Create(f.Ctx, h)).To(Succeed())
	f.Clock.SetTime(h.CreationTimestamp.Add(time.Minute))
	f.reconcile(h)
	f.Expect(h.Status.Conditions).To(BeEmpty())
	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Labels = map[string]string{clusterv1.WatchLabel: "mine"} })
	f.reconcile(h)
	f.Expect(h.Status.Conditions).NotTo(BeEmpty())
}

func TestDeletedHost(t *testing.T) {
	f := newFixture(t)
	_, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: f.Namespace, Name: "none"}})
	f.Expect(err).NotTo(HaveOccurred())
}
