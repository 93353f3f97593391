package grant_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// ofThePool is in everything that a tenant must not see.
const ofThePool = "of-the-pool"

// recorder keeps the text of the Events on objects in one namespace.
type recorder struct {
	namespace string
	texts     []string
}

func (r *recorder) Eventf(on, _ runtime.Object, _, reason, _, note string, args ...any) {
	if o, ok := on.(client.Object); ok && o.GetNamespace() == r.namespace {
		r.texts = append(r.texts, reason+": "+fmt.Sprintf(note, args...))
	}
}

// writtenByThePool is what the pool's operators and former users have written on a host.
func writtenByThePool(h *infrav1.ElementalHost) {
	h.Annotations = map[string]string{"pool.example.com/contract": ofThePool}
	h.Labels[infrav1.RegistrationLabel], h.Labels[clusterv1.ClusterNameLabel] = ofThePool, ofThePool
	h.Spec.RegistrationRef = &infrav1.LocalReference{Name: ofThePool}
	h.Spec.Reboot = &infrav1.HostReboot{ID: ofThePool}
}

// reportedToThePool is what the host has reported to them, apart from what the machine is.
func reportedToThePool(s *infrav1.ElementalHostStatus) {
	s.Agent = &infrav1.HostAgent{Version: "v0.2.0"}
	s.Operations = []infrav1.HostOperation{{
		Type: infrav1.OperationReboot, ID: ofThePool, State: infrav1.OperationSucceeded, Message: ofThePool,
	}}
	s.Failures = &infrav1.HostFailures{Consecutive: 1, LastOperationID: ofThePool}
}

// The tenant sees the host, with its labels and what it has reported of itself, and where it comes
// from. It sees no other host of the pool, and nothing that the pool's operators have written.
func TestThreat103_GrantedHostShowsNothingOfThePool(t *testing.T) {
	f := newFixture(t)
	events := &recorder{namespace: f.tenant}
	f.reconciler.Recorder = events
	f.grant.Name, f.grant.ResourceVersion = "grant-"+ofThePool, ""
	f.Create(f.grant)
	f.Host("other-" + ofThePool)
	pool := f.host(1)
	controllertest.Change(f.Fixture, pool, writtenByThePool)
	f.Report(pool, reportedToThePool)
	labels := map[string]string{"size": "big", "rack": "7"}
	expectNothing := func() *infrav1.ElementalHost {
		t.Helper()
		granted := f.granted("h1")
		f.Expect(granted).NotTo(BeNil())
		f.Expect(granted.Labels).To(Equal(labels))
		f.Expect(granted.Annotations).To(BeEmpty())
		f.Expect(granted.Spec.GrantedFrom.Namespace).To(Equal(f.Namespace))
		text, err := json.Marshal(granted)
		f.Expect(err).NotTo(HaveOccurred())
		seen := string(text) + strings.Join(events.texts, "\n")
		f.Expect(seen).NotTo(ContainSubstring(ofThePool))
		return granted
	}

	f.reconcile()
	granted := expectNothing()
	f.Expect(granted.Status.Agent.Version).To(Equal("v0.2.0"))
	f.Expect(granted.Status.Operations).To(BeEmpty())
	f.Expect(bind(f, granted)).To(Succeed())
	labels[clusterv1.ClusterNameLabel] = granted.Spec.Claim.ClusterName
	f.Delete(f.grant)
	f.reconcile()
	f.Expect(expectNothing().IsReturning()).To(BeTrue())
	controllertest.Change(f.Fixture, granted, func(h *infrav1.ElementalHost) { h.Spec.Claim = nil })
	f.reconcile()
	f.Expect(f.granted("h1")).To(BeNil())
	f.Expect(events.texts).To(Equal([]string{
		"Received: Namespace " + f.Namespace + " has granted the host", "Returning: The host goes back to namespace " + f.Namespace,
	}))
}

// expectNotOffered checks that no Machine and no grant gets the host, neither in the pool nor in the
// tenant's namespace.
func (f *fixture) expectNotOffered(pool *infrav1.ElementalHost) {
	f.T.Helper()
	f.Refresh(pool)
	f.Expect(hoststatus.Available(pool).IsTrue()).To(BeFalse(), "in the pool: %s", hoststatus.Available(pool).Message())
	if granted := f.granted(pool.Name); granted != nil {
		f.Expect(hoststatus.Available(granted).IsTrue()).To(BeFalse(), "in the tenant's namespace: %s", hoststatus.Available(granted).Message())
	}
}

// A host that is not clean goes back, because the tenant has no use for it. Whenever the manager
// stops, neither namespace can claim it and no grant gets it, until the host has reported that it is
// clean.
func TestDirtyHostGoesBackAndIsNotOffered(t *testing.T) {
	for n, moment := range controllertest.Crashes(7) {
		t.Run(fmt.Sprintf("%d %s", n, moment), func(t *testing.T) {
			f := newFixture(t)
			pool := f.host(1)
			f.reconcile()
			f.Report(f.granted("h1"), func(s *infrav1.ElementalHostStatus) {
				s.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty, Leftovers: []string{"/etc/kubernetes"}}
			})
			f.expectNotOffered(pool)
			f.Delete(f.grant)
			f.Client.FailWrite(n, moment)
			for range 3 {
				f.attempt()
				f.expectNotOffered(pool)
			}
			f.Expect(pool.Spec.GrantedTo).To(BeNil())
			f.Expect(f.granted("h1")).To(BeNil())
			f.Expect(pool.Status.Cleanliness.Leftovers).To(Equal([]string{"/etc/kubernetes"}), "the pool sees what is left on it")

			f.grant = &infrav1.ElementalHostGrant{ObjectMeta: f.Meta("next"), Spec: f.grant.Spec}
			f.Create(f.grant)
			f.reconcile()
			f.ExpectCondition(f.grant, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.GrantWaitingReason)
			f.expectNotOffered(pool)
			f.Report(pool, func(s *infrav1.ElementalHostStatus) {
				s.KeyFingerprint = pool.Spec.Identity.KeyFingerprint
				s.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessClean}
			})
			f.reconcile()
			f.ExpectCondition(f.grant, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.GrantFulfilledReason)
		})
	}
}

// Granted hosts count against the quota of the namespace that gets them. A host that does not fit stays in the pool.
func TestQuotaOfTheTenant(t *testing.T) {
	f := newFixture(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: f.tenant, Name: "hosts"}}
	hosts := corev1.ResourceName("count/elementalhosts." + infrav1.GroupVersion.Group)
	quota.Spec.Hard = corev1.ResourceList{hosts: resource.MustParse("1")}
	f.Expect(f.Admin.Create(f.Ctx, quota)).To(Succeed())
	// What Kubernetes' controller of quotas would write.
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{hosts: resource.MustParse("0")}}
	f.Expect(f.Admin.Status().Update(f.Ctx, quota)).To(Succeed())

	controllertest.Change(f.Fixture, f.grant, func(g *infrav1.ElementalHostGrant) { g.Spec.Count = new(int32(2)) })
	first, second := f.host(1), f.host(2)
	f.reconcile()
	f.ExpectCondition(f.grant, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.GrantNamespaceUnusableReason)
	f.Expect(f.granted(first.Name)).NotTo(BeNil())
	f.expectBack(second)
	f.Expect(f.granted(second.Name)).To(BeNil())
}
