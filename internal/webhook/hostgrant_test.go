package webhook_test

import (
	"io"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Whoever runs the hosts of one namespace pushes none into another.
func TestThreat97_GrantsNeedTheVerbWhereHostsGo(t *testing.T) {
	serve(t, io.Discard)
	g, pool, other := NewWithT(t), newTeam(t), newTeam(t)
	grantTo := func(namespace string) *infrav1.ElementalHostGrant {
		return &infrav1.ElementalHostGrant{
			ObjectMeta: metav1.ObjectMeta{Namespace: pool.namespace, GenerateName: "test-"},
			Spec:       infrav1.ElementalHostGrantSpec{Namespace: namespace, Count: new(int32(1))},
		}
	}
	g.Expect(pool.clients[operator].Create(t.Context(), grantTo(other.namespace))).To(
		MatchError(ContainSubstring("needs the verb grant on elementalhosts in namespace " + other.namespace)))
	g.Expect(clientOf(t, "root").Create(t.Context(), grantTo(pool.namespace))).To(MatchError(ContainSubstring("in this namespace already")))
	made := grantTo(other.namespace)
	g.Expect(clientOf(t, "root").Create(t.Context(), made)).To(Succeed())
	made.Spec.Count = new(int32(9))
	g.Expect(pool.clients[operator].Update(t.Context(), made)).NotTo(Succeed(), "more hosts are more of the same")
}

// A tenant neither strips a granted host of what gives it back, nor fakes where it comes from.
func TestThreat95_TenantsKeepNoProvenance(t *testing.T) {
	serve(t, io.Discard)
	g, tenant := NewWithT(t), newTeam(t)
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenant.namespace, GenerateName: "test-", Finalizers: []string{infrav1.GrantedHostFinalizer},
	}}
	host.Spec.GrantedFrom = &infrav1.HostGrantedFrom{Namespace: "pool", Name: "h"}
	g.Expect(clientOf(t, "root").Create(t.Context(), host)).To(Succeed())
	for name, change := range map[string]func(*infrav1.ElementalHost){
		"finalizer": func(h *infrav1.ElementalHost) { h.Finalizers = nil },
		"origin":    func(h *infrav1.ElementalHost) { h.Spec.GrantedFrom = nil },
		"elsewhere": func(h *infrav1.ElementalHost) { h.Spec.GrantedFrom.Namespace = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			changed := host.DeepCopy()
			change(changed)
			err := tenant.clients[admin].Patch(t.Context(), changed, client.MergeFrom(host))
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("needs the verb grant")))
		})
	}
}
