package router_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/router"
)

// clusterObjects returns the objects of sites/edge.
func clusterObjects() (*clusterv1.Cluster, *infrav1.ElementalCluster) {
	at := metav1.ObjectMeta{Namespace: "sites", Name: "edge"}
	return &clusterv1.Cluster{ObjectMeta: at}, &infrav1.ElementalCluster{ObjectMeta: at}
}

func machineOf(host string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "sites", Name: "m-" + host}}
}

// changes are what happens to a cluster whose connection goes through the host.
var changes = map[string]struct {
	change func(*rig, *infrav1.ElementalHost)
	ends   bool
}{
	"the API server stops being ready": {func(r *rig, h *infrav1.ElementalHost) { change(r, h, unready) }, true},
	"the host is fenced": {func(r *rig, h *infrav1.ElementalHost) {
		change(r, h, func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} })
	}, true},
	"the host is locked": {func(r *rig, h *infrav1.ElementalHost) {
		change(r, h, func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{} })
	}, true},
	"the host is released": {func(r *rig, h *infrav1.ElementalHost) {
		change(r, h, func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing })
	}, true},
	"the host has another claim": {func(r *rig, h *infrav1.ElementalHost) {
		change(r, h, func(h *infrav1.ElementalHost) { h.Spec.Claim.ID = "another" })
	}, true},
	"the host is deleted":           {func(r *rig, h *infrav1.ElementalHost) { r.remove(h) }, true},
	"the Machine's deletion begins": {func(r *rig, h *infrav1.ElementalHost) { r.remove(machineOf(h.Name)) }, true},
	"the Cluster names another object": {func(r *rig, _ *infrav1.ElementalHost) {
		c, _ := clusterObjects()
		change(r, c, func(c *clusterv1.Cluster) { c.Spec.InfrastructureRef.Name = "other" })
	}, true},
	"the ElementalCluster loses its owner": {func(r *rig, _ *infrav1.ElementalHost) {
		_, infra := clusterObjects()
		change(r, infra, func(c *infrav1.ElementalCluster) { c.OwnerReferences = nil })
	}, true},
	"the Cluster is gone":          {func(r *rig, _ *infrav1.ElementalHost) { c, _ := clusterObjects(); r.remove(c) }, true},
	"the ElementalCluster is gone": {func(r *rig, _ *infrav1.ElementalHost) { _, infra := clusterObjects(); r.remove(infra) }, true},
	"a report of the host": {func(r *rig, h *infrav1.ElementalHost) {
		change(r, h, func(h *infrav1.ElementalHost) { h.Status.Agent = &infrav1.HostAgent{Version: "v2"} })
	}, false},
	"a label of the Machine": {func(r *rig, h *infrav1.ElementalHost) {
		change(r, machineOf(h.Name), func(m *clusterv1.Machine) { m.Labels["a"] = "b" })
	}, false},
	"a label of the cluster": {func(r *rig, _ *infrav1.ElementalHost) {
		_, infra := clusterObjects()
		change(r, infra, func(c *infrav1.ElementalCluster) { c.Labels["a"] = "b" })
	}, false},
}

func TestThreat22_ConnectionsEndWithWhatPermitsThem(t *testing.T) {
	for name, tc := range changes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			host := r.host("a")
			conn := r.dial()
			r.host("b")
			other := r.dialThrough("b", host)
			r.Expect(r.isOpen(conn)).To(BeTrue())
			tc.change(r, host)
			r.Expect(r.isOpen(conn)).To(Equal(!tc.ends))
			_ = conn.Close()
			_ = other.Close()
		})
	}
}

// dialThrough connects through one host while another one refuses.
func (r *rig) dialThrough(name string, not *infrav1.ElementalHost) interface{ Close() error } {
	r.t.Helper()
	r.tunnels.hosts[not.Name].err = router.ErrNoHost
	defer func() { r.tunnels.hosts[not.Name].err = nil }()
	conn := r.dial()
	r.Expect(r.tunnels.Streams(namespaced(name))).To(Equal(1))
	return conn
}

// A change between the choice of the host and the end of the dial counts as one after it.
func TestThreat22_ChangesDuringTheDial(t *testing.T) {
	for name, tc := range changes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			host := r.host("a")
			r.tunnels.during = func(string) { tc.change(r, host) }
			conn, err := r.router.Dial(t.Context(), edgeName)
			if !tc.ends {
				r.Expect(err).NotTo(HaveOccurred())
				r.Expect(r.isOpen(conn)).To(BeTrue())
				r.Expect(conn.Close()).To(Succeed())
				return
			}
			r.Expect(err).To(HaveOccurred())
			for _, end := range r.tunnels.hosts["a"].streams {
				_, err := end.Write([]byte("x"))
				r.Expect(err).To(HaveOccurred(), "the stream is closed")
			}
		})
	}
}

// A host whose API server was not ready before keeps its connections, whatever it reports.
func TestConnectionsThroughUnreadyHosts(t *testing.T) {
	r := newRig(t)
	host := r.host("a", unready)
	conn := r.dial()
	change(r, host, func(h *infrav1.ElementalHost) { h.Status.Endpoint = nil })
	r.Expect(r.isOpen(conn)).To(BeTrue())
	change(r, host, func(h *infrav1.ElementalHost) {
		h.Status.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeReachable}}
	})
	r.Expect(r.isOpen(conn)).To(BeTrue())
	r.Expect(conn.Close()).To(Succeed())
}
