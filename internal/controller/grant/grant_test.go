package grant_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/grant"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) { os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e })) }

// fixture is a pool with free hosts, and a namespace of a tenant with a grant of one host.
type fixture struct {
	*controllertest.Fixture

	reconciler *grant.Reconciler
	tenant     string
	grant      *infrav1.ElementalHostGrant
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env), tenant: env.Namespace(t)}
	f.reconciler = &grant.Reconciler{Client: f.Client, APIReader: f.Client, Recorder: f.Recorder, Clock: f.Clock}
	f.grant = &infrav1.ElementalHostGrant{ObjectMeta: f.Meta("g")}
	f.grant.Spec.Namespace, f.grant.Spec.Count = f.tenant, new(int32(1))
	f.grant.Spec.Hosts.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"size": "big"}}
	f.Create(f.grant)
	return f
}

// host creates a free host of the pool that matches the grant.
func (f *fixture) host(n int) *infrav1.ElementalHost {
	f.T.Helper()
	key := fmt.Sprintf("sha256:%064x", n)
	return f.Host(fmt.Sprintf("h%d", n), func(h *infrav1.ElementalHost) {
		h.Labels = map[string]string{"size": "big", "rack": "7"}
		h.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: key, Generation: 1}
		h.Status.KeyFingerprint = key
	})
}

func (f *fixture) reconcile() {
	f.T.Helper()
	_, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.grant)})
	f.Expect(err).NotTo(HaveOccurred())
}

// attempt reconciles once. The write that the test makes fail is no error.
func (f *fixture) attempt() {
	f.T.Helper()
	_, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.grant)})
	if err != nil && !errors.Is(err, controllertest.ErrInjected) {
		f.T.Errorf("reconciling: %v", err)
	}
}

// granted returns the tenant's object; nil without one.
func (f *fixture) granted(name string) *infrav1.ElementalHost {
	f.T.Helper()
	h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: f.tenant, Name: name}}
	if !f.Exists(h) {
		return nil
	}
	return h
}

// expectBack checks that the pool has the host, as it was, and the tenant nothing.
func (f *fixture) expectBack(host *infrav1.ElementalHost) {
	f.T.Helper()
	labels := host.Labels
	f.Refresh(host)
	f.Expect(host.Spec.GrantedTo).To(BeNil())
	f.Expect(host.Labels).To(Equal(labels))
	f.Expect(host.Spec.Cordon).To(BeNil())
	f.Expect(hoststatus.Available(host).IsTrue()).To(BeTrue(), "%s", hoststatus.Available(host).Message())
	f.Expect(f.granted(host.Name)).To(BeNil())
}

func bind(f *fixture, host *infrav1.ElementalHost) error {
	return claim.Bind(f.Ctx, f.Admin, host, infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "m"}, nil)
}

func TestGrantAndReturn(t *testing.T) {
	f := newFixture(t)
	f.reconcile()
	f.ExpectCondition(f.grant, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.GrantWaitingReason)
	first, second := f.host(1), f.host(2)
	f.reconcile()
	f.ExpectCondition(f.grant, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.GrantFulfilledReason)
	granted := f.granted("h1")
	f.Expect(granted).NotTo(BeNil())
	f.Expect(f.granted("h2")).To(BeNil(), "the quota is one host")
	f.Refresh(first)
	f.Expect(first.IsHandedOver() && first.IsGrantedTo(granted)).To(BeTrue())
	f.Expect(granted.Spec.Identity).To(Equal(first.Spec.Identity))
	f.Expect(granted.Labels).To(Equal(first.Labels))
	f.Expect(hoststatus.Available(granted).IsTrue()).To(BeTrue(), "%s", hoststatus.Available(granted).Message())
	f.Expect(bind(f, first.DeepCopy())).To(MatchError(claim.ErrTaken))
	f.Expect(f.Events()).To(ContainElements(ContainSubstring("Granted"), ContainSubstring("Received")))

	written := len(f.Client.Writes())
	f.reconcile()
	f.Expect(f.Client.Writes()).To(HaveLen(written), "a second reconcile must not write")

	// What the tenant writes stays with the tenant, except what bars the host.
	controllertest.Change(f.Fixture, granted, func(h *infrav1.ElementalHost) {
		h.Labels = map[string]string{"rack": "mine", "size": "small"}
		h.Spec.Cordon = &infrav1.HostCordon{Reason: "mine"}
	})
	f.Delete(f.grant)
	f.reconcile()
	f.expectBack(first)
	f.Expect(f.Exists(f.grant)).To(BeFalse())
	f.Refresh(second)
	f.Expect(second.Spec.GrantedTo).To(BeNil())
}

// A host in use goes back when it is released, and nobody claims it before.
func TestHostInUseReturnsWhenItIsFree(t *testing.T) {
	f := newFixture(t)
	host := f.host(1)
	f.reconcile()
	granted := f.granted("h1")
	f.Expect(bind(f, granted)).To(Succeed())
	controllertest.Change(f.Fixture, host, func(h *infrav1.ElementalHost) { h.Labels["size"] = "small" })
	f.reconcile()
	f.ExpectCondition(f.grant, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.GrantReturningReason)
	f.Refresh(granted)
	f.Expect(granted.IsReturning()).To(BeTrue())
	f.Expect(granted.Spec.Claim).NotTo(BeNil())

	controllertest.Change(f.Fixture, host, func(h *infrav1.ElementalHost) { h.Labels["size"] = "big" })
	f.reconcile()
	f.Refresh(granted)
	f.Expect(granted.IsReturning()).To(BeFalse(), "it matches again")

	controllertest.Change(f.Fixture, f.grant, func(g *infrav1.ElementalHostGrant) { g.Spec.Count = new(int32(0)) })
	f.reconcile()
	controllertest.Change(f.Fixture, granted, func(h *infrav1.ElementalHost) { h.Spec.Claim = nil })
	f.Expect(bind(f, granted.DeepCopy())).To(MatchError(claim.ErrTaken))
	f.reconcile()
	f.expectBack(host)
}

// Of a claim and a grant, and of a claim and a return, exactly one wins.
func TestThreat94_ClaimsAndGrantsRace(t *testing.T) {
	f := newFixture(t)
	host := f.host(1)
	seen := host.DeepCopy()
	f.reconcile()
	f.Expect(apierrors.IsConflict(bind(f, seen))).To(BeTrue(), "a claim with a state from before the grant")
	granted := f.granted("h1")
	seen = granted.DeepCopy()
	f.Delete(f.grant)
	f.reconcile()
	f.Expect(bind(f, seen)).NotTo(Succeed(), "a claim with a state from before the return")
	f.expectBack(host)
	f.Expect(bind(f, host)).To(Succeed())
}

// However often the manager stops, the host is in the end where it belongs, and at no time can
// both objects be claimed.
func TestThreat94_CrashesLoseNoHost(t *testing.T) {
	for n, moment := range controllertest.Crashes(15) {
		t.Run(fmt.Sprintf("%d %s", n, moment), func(t *testing.T) {
			f := newFixture(t)
			host := f.host(1)
			f.Client.FailWrite(n, moment)
			attempt := func() {
				f.attempt()
				f.Refresh(host)
				if granted := f.granted("h1"); granted != nil && hoststatus.Available(granted).IsTrue() && hoststatus.Available(host).IsTrue() {
					t.Error("both objects of the host are available")
				}
			}
			attempt()
			attempt()
			f.Expect(f.granted("h1")).NotTo(BeNil())
			f.Delete(f.grant)
			attempt()
			attempt()
			attempt()
			f.expectBack(host)
		})
	}
}

// What the host reports to the pool while its return is interrupted is newer than what it has reported
// to the tenant.
func TestReturnKeepsNewerFacts(t *testing.T) {
	dirty := func(leftover string) func(*infrav1.ElementalHostStatus) {
		return func(s *infrav1.ElementalHostStatus) {
			s.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty, Leftovers: []string{leftover}}
		}
	}
	for n, moment := range controllertest.Crashes(7) {
		t.Run(fmt.Sprintf("%d %s", n, moment), func(t *testing.T) {
			f := newFixture(t)
			host := f.host(1)
			f.reconcile()
			f.Report(f.granted("h1"), func(s *infrav1.ElementalHostStatus) {
				dirty("/old")(s)
				s.Agent = &infrav1.HostAgent{Version: "v0.2.0"}
			})
			f.Delete(f.grant)
			f.Client.FailWrite(n, moment)
			f.attempt()
			f.Refresh(host)
			hasKey := !host.IsHandedOver()
			if hasKey {
				f.Report(host, dirty("/new"))
			}
			f.attempt()
			f.attempt()
			f.Refresh(host)
			f.Expect(host.Spec.GrantedTo).To(BeNil())
			f.Expect(host.Status.Agent.Version).To(Equal("v0.2.0"), "the pool learns what the tenant knows")
			if hasKey {
				f.Expect(host.Status.Cleanliness.Leftovers).To(Equal([]string{"/new"}))
			} else {
				f.Expect(host.Status.Cleanliness.Leftovers).To(Equal([]string{"/old"}))
			}
		})
	}
}

// A tenant keeps no host by a finalizer, gets no other one by a name, and does not grant it on.
func TestThreat95_TenantsTricks(t *testing.T) {
	t.Run("finalizer", func(t *testing.T) {
		f := newFixture(t)
		host := f.host(1)
		f.reconcile()
		granted := f.granted("h1")
		controllertest.Change(f.Fixture, granted, func(h *infrav1.ElementalHost) { h.Finalizers = append(h.Finalizers, "tenant.example.com/keep") })
		f.Delete(f.grant)
		f.reconcile()
		f.Refresh(host)
		f.Expect(host.Spec.GrantedTo).To(BeNil())
		f.Expect(hoststatus.Available(host).IsTrue()).To(BeTrue())
		f.Expect(bind(f, f.granted("h1"))).To(MatchError(claim.ErrTaken))
	})
	t.Run("deletion", func(t *testing.T) {
		f := newFixture(t)
		host := f.host(1)
		f.reconcile()
		controllertest.Change(f.Fixture, f.grant, func(g *infrav1.ElementalHostGrant) { g.Spec.Hosts.Selector.MatchLabels["size"] = "none" })
		f.Delete(f.granted("h1"))
		f.reconcile()
		f.expectBack(host)
	})
	t.Run("a false origin", func(t *testing.T) {
		f := newFixture(t)
		host := f.host(1)
		f.reconcile()
		thief := f.host(3)
		controllertest.Change(f.Fixture, thief, func(h *infrav1.ElementalHost) {
			h.Spec.GrantedFrom = &infrav1.HostGrantedFrom{Namespace: f.Namespace, Name: host.Name}
		})
		f.Delete(thief)
		f.reconcile()
		f.Refresh(host)
		f.Expect(host.IsHandedOver()).To(BeTrue(), "only the object that the pool names gives a host back")
	})
	t.Run("granted on", func(t *testing.T) {
		f := newFixture(t)
		f.host(1)
		f.reconcile()
		granted := f.granted("h1")
		granted.Spec.GrantedTo = &infrav1.HostGrantedTo{GrantName: "x", Namespace: "y", Name: "z", Phase: infrav1.HostGrantMoving}
		f.Expect(f.Admin.Update(f.Ctx, granted)).To(MatchError(ContainSubstring("can't be granted on")))
	})
}

// An object that vanishes without our finalizer may be about to be restored or moved here.
func TestThreat94_MissingObjectGivesNoHostBack(t *testing.T) {
	f := newFixture(t)
	host := f.host(1)
	f.reconcile()
	granted := f.granted("h1")
	controllertest.Change(f.Fixture, granted, func(h *infrav1.ElementalHost) { h.Finalizers = nil })
	f.Delete(granted)
	f.reconcile()
	f.ExpectCondition(f.grant, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.GrantHostsMissingReason)
	f.Refresh(host)
	f.Expect(host.IsHandedOver()).To(BeTrue(), "a missing object causes nothing")
}

func TestNameTakenAndNamespaceMissing(t *testing.T) {
	f := newFixture(t)
	f.Expect(f.Admin.Create(f.Ctx, &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: f.tenant, Name: "h1"}})).To(Succeed())
	host := f.host(1)
	f.reconcile()
	f.Refresh(host)
	f.Expect(host.Spec.GrantedTo.Name).To(Equal("h1-h1"), "with the ID of the host")
	f.Expect(f.granted("h1-h1")).NotTo(BeNil())

	other := newFixture(t)
	missing := &infrav1.ElementalHostGrant{ObjectMeta: other.Meta("missing")}
	missing.Spec.Namespace, missing.Spec.Count = "no-such-namespace", new(int32(1))
	other.Create(missing)
	other.grant = missing
	left := other.host(1)
	other.reconcile()
	other.ExpectCondition(missing, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.GrantNamespaceUnusableReason)
	other.expectBack(left)
}
