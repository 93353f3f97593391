package hoststore

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// laggingCache lists an old state of the host, and calls afterList before List returns.
type laggingCache struct {
	client.Client
	afterList func()
}

func (c *laggingCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	hosts := list.(*infrav1.ElementalHostList) // Find lists hosts only
	hosts.Items = []infrav1.ElementalHost{*hostAt("1")}
	c.afterList()
	return nil
}

// hostAt returns a host with the key "key" at a resource version.
func hostAt(version string) *infrav1.ElementalHost {
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "host-1", ResourceVersion: version}}
	host.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "key"}
	return host
}

// An own write that the cache receives during a look-up is returned nevertheless.
func TestFindReturnsOwnWriteThatTheCacheReceivesMeanwhile(t *testing.T) {
	g := NewWithT(t)
	s := &Store{own: newOwnWrites()}
	s.client = &laggingCache{afterList: func() { s.ObserveCache(hostAt("2"), false) }}
	g.Expect(s.own.add(hostAt("2"))).To(BeTrue())
	host, role, err := s.ByKey(t.Context(), "key", types.NamespacedName{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(role).To(Equal(KeyCurrent))
	g.Expect(host.ResourceVersion).To(Equal("2"))
	g.Expect(s.own.get(types.NamespacedName{Namespace: "edge", Name: "host-1"})).To(BeNil(), "the cache has received it")
}

func TestRolesOfKeys(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.ElementalHost{}
	g.Expect(RoleOf(host, "")).To(Equal(KeyUnknown))
	host.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "b", NextKeyFingerprint: "c", FormerKeyFingerprint: "a"}
	for fingerprint, want := range map[string]KeyRole{"a": KeyFormer, "b": KeyCurrent, "c": KeyNext, "d": KeyUnknown, "": KeyUnknown} {
		g.Expect(RoleOf(host, fingerprint)).To(Equal(want), fingerprint)
		g.Expect(AcceptsKey(host, fingerprint)).To(Equal(want == KeyCurrent || want == KeyNext), fingerprint)
	}
	locked, rejected := host.DeepCopy(), host.DeepCopy()
	locked.Spec.Lock = &infrav1.HostLock{}
	rejected.Spec.Approval = infrav1.ApprovalRejected
	g.Expect(AcceptsKey(locked, "b")).To(BeFalse())
	g.Expect(AcceptsKey(rejected, "b")).To(BeFalse())
}
