package cluster_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// moved has the endpoint move from h1 to h2 for a deletion.
func (f *fleet) moved() {
	f.T.Helper()
	f.Delete(f.machines["h1"])
	f.settle()
	f.Expect(f.endpoint().Host).To(Equal("10.0.0.2"))
}

func TestKubeconfigsFollow(t *testing.T) {
	f := newFleet(t)
	f.kubeconfig("c-user-kubeconfig", "c", "https://10.0.0.1:6443/path?x=1")
	f.moved()
	f.Expect(f.server("c-kubeconfig")).To(Equal("https://10.0.0.2:6443"))
	f.Expect(f.server("c-user-kubeconfig")).To(Equal("https://10.0.0.2:6443/path?x=1"))
	// Somebody restores an old one while the move is under way.
	is := &corev1.Secret{ObjectMeta: f.Meta("c-kubeconfig")}
	f.Delete(is)
	f.kubeconfig("c-kubeconfig", "c", "https://10.0.0.1:6443")
	f.settle()
	f.Expect(f.server("c-kubeconfig")).To(Equal("https://10.0.0.2:6443"))
}

// Only what names a former endpoint of this cluster is changed.
func TestForeignKubeconfigsAreLeftAlone(t *testing.T) {
	for name, tc := range map[string]struct{ secret, cluster, server string }{
		"another server":   {"c-user-kubeconfig", "c", "https://proxy.example.org:6443"},
		"another port":     {"c-user-kubeconfig", "c", "https://10.0.0.1:443"},
		"a longer address": {"c-user-kubeconfig", "c", "https://10.0.0.11:6443"},
		// Its kubeconfig has the name that this cluster's one for users would have.
		"a cluster named c-user": {"c-user-kubeconfig", "c-user", "https://10.0.0.1:6443"},
		"another name":           {"d-kubeconfig", "c", "https://10.0.0.1:6443"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.kubeconfig(tc.secret, tc.cluster, tc.server)
			before := &corev1.Secret{ObjectMeta: f.Meta(tc.secret)}
			f.Refresh(before)
			f.moved()
			f.Expect(f.server(tc.secret)).To(Equal(tc.server))
			after := &corev1.Secret{ObjectMeta: f.Meta(tc.secret)}
			f.Refresh(after)
			f.Expect(after.ResourceVersion).To(Equal(before.ResourceVersion))
		})
	}
}

func TestBrokenKubeconfigIsNamed(t *testing.T) {
	f := newFleet(t)
	controllertest.Change(f.Fixture, &corev1.Secret{ObjectMeta: f.Meta("c-kubeconfig")}, func(s *corev1.Secret) { s.Data["value"] = []byte("token: hush") })
	f.moved()
	c := f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, no, infrav1.EndpointMovingReason)
	f.Expect(c.Message).To(And(ContainSubstring("Secret c-kubeconfig"), Not(ContainSubstring("hush"))))
}

// Cluster API copies the endpoint only once, and others may put the old one back.
func TestClusterKeepsTheEndpointThatIs(t *testing.T) {
	f := newFleet(t)
	f.moved()
	f.converge()
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.ControlPlaneEndpoint.Host = "10.0.0.1" })
	f.settle()
	f.Expect(f.cluster.Spec.ControlPlaneEndpoint.Host).To(Equal("10.0.0.2"))
}

// join makes a Machine of kubeadm's with bootstrap data. Its owner would make
// another.
func (f *fleet) join(name, data string, changes ...func(*clusterv1.Machine)) *clusterv1.Machine {
	f.T.Helper()
	f.Create(&corev1.Secret{ObjectMeta: f.Meta(name), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": []byte(data)}})
	m, _ := f.Machine("c", name, func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: name}
		o.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "ms", UID: "1", Controller: new(true),
		}}
		for _, change := range changes {
			change(o)
		}
	})
	return m
}

// given gives a Machine a host whose bootstrap is in that state; "" for not begun.
func (f *fleet) given(n int, machine string, state infrav1.OperationState) {
	f.T.Helper()
	host := f.host(fmt.Sprintf("h%d", n), fmt.Sprintf("10.0.0.%d", n), func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: machine, ClusterName: "c", MachineName: machine, Phase: infrav1.ClaimBound, Role: infrav1.RoleWorker}
	})
	if state != "" {
		f.ReportOperation(host, infrav1.OperationBootstrap, state)
	}
}

func TestJoinsInFlightAreReplaced(t *testing.T) {
	f := newFleet(t)
	const data = "apiServerEndpoint: 10.0.0.1:6443"
	gone := map[string]*clusterv1.Machine{
		"without a host": f.join("a", data),
		"not begun":      f.join("b", data),
		"failed":         f.join("c1", data),
	}
	f.given(11, "b", "")
	f.given(12, "c1", infrav1.OperationFailed)
	stay := map[string]*clusterv1.Machine{
		"running":   f.join("e", data),
		"a Node":    f.join("f", data),
		"ownerless": f.join("g", data, func(m *clusterv1.Machine) { m.OwnerReferences = nil }),
		"of another bootstrap provider": f.join("h", data, func(m *clusterv1.Machine) {
			m.Spec.Bootstrap.ConfigRef.Kind = "RKE2Config"
		}),
		"without data": f.join("i", data, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = nil }),
	}
	f.given(13, "e", infrav1.OperationRunning)
	f.given(14, "f", infrav1.OperationSucceeded)
	f.settle()
	for name, m := range gone {
		f.Expect(f.Exists(m)).To(BeTrue(), name)
	}
	f.Clock.Step(time.Hour)
	f.moved()
	for name, m := range gone {
		f.Expect(f.Exists(m)).To(BeFalse(), name)
	}
	for name, m := range stay {
		f.Expect(f.Exists(m)).To(BeTrue(), name)
	}
	f.Expect(f.Events()).To(ContainElement(ContainSubstring("Deleted Machine a: its bootstrap data names a former endpoint")))
}

// The bootstrap provider may not have seen the move when it wrote the data. What
// it writes much later is not looked into.
func TestJoinsWithLateDataAreReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		data string
		late time.Duration
		want bool
	}{
		"the former endpoint, at once":   {"apiServerEndpoint: 10.0.0.1:6443", 2 * time.Second, false},
		"likewise, in Ignition":          {"apiServerEndpoint%3A%2010.0.0.1%3A6443", 2 * time.Second, false},
		"the new endpoint":               {"apiServerEndpoint: 10.0.0.2:6443", 2 * time.Second, true},
		"the former endpoint, for ever":  {"NO_PROXY=10.0.0.1:6443", time.Minute, true},
		"before the move, whatever else": {"compressed", -time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			m := f.join("a", tc.data)
			// The API server's clock can't be set: the move is that much before now.
			f.Refresh(m)
			f.Clock.SetTime(m.CreationTimestamp.Add(-tc.late))
			f.moved()
			f.Expect(f.Exists(m)).To(Equal(tc.want))
		})
	}
}

func TestManyJoinsAreReplacedInTurns(t *testing.T) {
	f := newFleet(t)
	for i := range 12 {
		f.join(fmt.Sprintf("j%d", i), "")
	}
	f.Clock.Step(time.Hour)
	f.Delete(f.machines["h1"])
	result := f.reconcile()
	deleted := 0
	for _, w := range f.Client.Writes() {
		if w.Verb == "delete" {
			deleted++
		}
	}
	f.Expect(deleted).To(Equal(10))
	f.Expect(result.RequeueAfter).To(Equal(time.Second))
	f.settle()
	list := &clusterv1.MachineList{}
	f.Expect(f.Admin.List(f.Ctx, list)).To(Succeed())
	for _, m := range list.Items {
		f.Expect(m.Namespace == f.Namespace && m.Name[0] == 'j').To(BeFalse())
	}
}

// Of too many former endpoints those are kept that a host may come back with.
func TestFormerEndpointsAreBounded(t *testing.T) {
	f := newFleet(t)
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		for i := range 16 {
			c.Spec.ControlPlaneEndpointPolicy.FormerEndpoints = append(c.Spec.ControlPlaneEndpointPolicy.FormerEndpoints,
				infrav1.FormerEndpoint{Host: fmt.Sprintf("10.9.0.%d", i), Port: 6443, HostName: "gone"})
		}
	})
	f.die("h4")
	f.Report(f.of("h4"), func(s *infrav1.ElementalHostStatus) { s.Endpoint.Kubeconfigs = "10.9.0.15:6443" })
	f.converge()
	f.ask("h3")
	f.settle()
	f.expectEndpoint(3)
	var hosts []string
	for _, former := range f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints {
		hosts = append(hosts, former.Host)
	}
	f.Expect(hosts).To(HaveLen(16))
	f.Expect(hosts[0]).To(Equal("10.0.0.1"))
	f.Expect(hosts).To(ContainElement("10.9.0.15"))
	f.Expect(hosts).NotTo(ContainElement("10.9.0.14"))
}
