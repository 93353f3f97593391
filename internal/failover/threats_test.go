package failover_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// attacked is a cluster of three control planes and a worker; the endpoint is that
// of the host "holder", which all reach for a day.
func attacked(hosts ...infrav1.ElementalHost) failover.Cluster {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	c := failover.Cluster{Infra: &infrav1.ElementalCluster{}, Cluster: &clusterv1.Cluster{}, Now: now}
	c.Infra.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
	c.Infra.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
		Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: "holder", ChosenAt: metav1.NewTime(now.AddDate(0, 0, -7))},
	}
	for i := range hosts {
		machine := &clusterv1.Machine{}
		machine.Name = hosts[i].Spec.Claim.MachineName
		c.Members = append(c.Members, failover.Member{Host: &hosts[i], Machine: machine})
	}
	c.Holder = c.Members[0].Host
	return c
}

// says is a host and what it says: whether it reaches the endpoint, and for which
// names its certificate is good.
func says(name string, role infrav1.ClaimRole, address string, reaches infrav1.ProbeResult, certificate ...string) infrav1.ElementalHost {
	yesterday := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	h := infrav1.ElementalHost{}
	h.Name = name
	h.Spec.Approval = infrav1.ApprovalApproved
	h.Spec.Claim = &infrav1.HostClaim{ID: name, ClusterName: "c", MachineName: name, Phase: infrav1.ClaimBound, Role: role}
	h.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionConnected, Since: yesterday}
	h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: name, State: infrav1.OperationSucceeded}}
	h.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: address}}
	h.Status.Endpoint = &infrav1.HostEndpoint{
		Probe:     &infrav1.EndpointProbe{Endpoint: "10.0.0.1:6443", Result: reaches, Since: yesterday},
		APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeReachable, Since: yesterday, CertificateNames: certificate},
	}
	return h
}

// justNow is a control-plane host that has not reached the endpoint for a second,
// and could have it.
func justNow(name, address string) infrav1.ElementalHost {
	h := says(name, member, address, no, address)
	h.Status.Endpoint.Probe.Since = metav1.NewTime(time.Date(2026, 1, 1, 23, 59, 59, 0, time.UTC))
	return h
}

const (
	member = infrav1.RoleControlPlane
	worker = infrav1.RoleWorker
	yes    = infrav1.ProbeReachable
	no     = infrav1.ProbeUnreachable
)

// One control-plane host that lies does not draw the endpoint to itself.
func TestThreat34_LyingControlPlaneHost(t *testing.T) {
	holder := says("holder", member, "10.0.0.1", yes, "10.0.0.1")
	liar := says("liar", member, "10.0.0.2", no, "10.0.0.2")
	silent := *holder.DeepCopy()
	silent.Status.Connection.State = infrav1.ConnectionDisconnected
	t.Run("another reaches the endpoint", func(t *testing.T) {
		d := failover.Decide(attacked(silent, liar, says("honest", member, "10.0.0.3", yes, "10.0.0.3")))
		NewWithT(t).Expect(d.Move).To(BeNil())
	})
	t.Run("the endpoint's host is there and well", func(t *testing.T) {
		d := failover.Decide(attacked(holder, liar))
		NewWithT(t).Expect(d.Move).To(BeNil())
	})
	t.Run("it was true once", func(t *testing.T) {
		liar := *liar.DeepCopy()
		liar.Status.Endpoint.Probe.Endpoint = "10.0.0.9:6443"
		d := failover.Decide(attacked(silent, liar, justNow("honest", "10.0.0.3")))
		NewWithT(t).Expect(d.Move).To(BeNil())
	})
	t.Run("no lie: all others say so", func(t *testing.T) {
		d := failover.Decide(attacked(silent, liar))
		NewWithT(t).Expect(d.Move).NotTo(BeNil())
	})
}

// Workers are never heard, nor are control planes that are shut out.
func TestThreat35_HostsThatAreNotAsked(t *testing.T) {
	g := NewWithT(t)
	holder := says("holder", member, "10.0.0.1", yes, "10.0.0.1")
	holder.Status.Connection.State = infrav1.ConnectionDisconnected
	fit := justNow("fit", "10.0.0.2")
	g.Expect(failover.Decide(attacked(holder, fit, says("worker", worker, "10.0.0.3", no, "10.0.0.3"))).Move).To(BeNil())
	for name, shut := range map[string]func(*infrav1.ElementalHost){
		"fenced":   func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} },
		"locked":   func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} },
		"rejected": func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected },
	} {
		out := says("out", member, "10.0.0.3", no, "10.0.0.3")
		shut(&out)
		g.Expect(failover.Decide(attacked(holder, fit, out)).Move).To(BeNil(), name)
	}
	asked := says("asked", member, "10.0.0.3", no, "10.0.0.3")
	g.Expect(failover.Decide(attacked(holder, fit, asked)).Move).NotTo(BeNil(), "control planes are heard")
}

// A host says which addresses it has. None becomes the endpoint that its
// certificate is not good for, that the cluster's rule leaves out, or that
// leads each client to itself.
func TestThreat36_ForeignAddress(t *testing.T) {
	g := NewWithT(t)
	moved := func(address, rule string, certificate ...string) *failover.Move {
		holder := says("holder", member, "10.0.0.1", yes, "10.0.0.1")
		holder.Status.Connection.State = infrav1.ConnectionDisconnected
		c := attacked(holder, says("other", member, address, no, certificate...))
		if rule != "" {
			c.Infra.Spec.ControlPlaneEndpointPolicy.Host = &infrav1.EndpointHostPolicy{Address: infrav1.HostAddressRule{CIDR: rule}}
		}
		return failover.Decide(c).Move
	}
	g.Expect(moved("10.0.0.2", "10.0.0.0/24", "10.0.0.2")).NotTo(BeNil())
	g.Expect(moved("192.0.2.1", "", "10.0.0.2")).To(BeNil(), "the certificate is not good for it")
	g.Expect(moved("192.0.2.1", "10.0.0.0/24", "192.0.2.1")).To(BeNil(), "the rule leaves it out")
	for _, everybodys := range []string{"127.0.0.1", "::1", "0.0.0.0", "224.0.0.1", "169.254.169.254", "fe80::1", "::ffff:127.0.0.1"} {
		g.Expect(moved(everybodys, "", everybodys)).To(BeNil(), everybodys)
	}
}
