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

// clusterOf returns a cluster of the hosts, which answer the manager. Its endpoint is the
// address of the first one.
func clusterOf(hosts ...infrav1.ElementalHost) failover.Cluster {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	c := failover.Cluster{Infra: &infrav1.ElementalCluster{}, Cluster: &clusterv1.Cluster{}, Now: now}
	c.Infra.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
	c.Infra.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
		Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: "endpoint-host", ChosenAt: metav1.NewTime(now.AddDate(0, 0, -7))},
	}
	c.Contacts = map[string]failover.Contact{}
	for i := range hosts {
		c.Contacts[hosts[i].Name] = failover.Contact{AskedAt: now, Answer: failover.Answer{Request: true, Report: true}}
		machine := &clusterv1.Machine{}
		machine.Name = hosts[i].Spec.Claim.MachineName
		c.Members = append(c.Members, failover.Member{Host: &hosts[i], Machine: machine})
	}
	c.EndpointHost = c.Members[0].Host
	return c
}

// reporting returns a host that has reported for a day whether it reaches the endpoint,
// and the names in its certificate.
func reporting(name string, role infrav1.ClaimRole, address string, reaches infrav1.ProbeResult, certificate ...string) infrav1.ElementalHost {
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

// recentlyReporting returns a control-plane host that is a candidate, and has reported the
// endpoint as unreachable for a second.
func recentlyReporting(name, address string) infrav1.ElementalHost {
	h := reporting(name, member, address, no, address)
	h.Status.Endpoint.Probe.Since = metav1.NewTime(time.Date(2026, 1, 1, 23, 59, 59, 0, time.UTC))
	return h
}

const (
	member = infrav1.RoleControlPlane
	worker = infrav1.RoleWorker
	yes    = infrav1.ProbeReachable
	no     = infrav1.ProbeUnreachable
)

// A control-plane host that reports false evidence can't move the endpoint to itself.
func TestThreat34_LyingControlPlaneHost(t *testing.T) {
	endpointHost := reporting("endpoint-host", member, "10.0.0.1", yes, "10.0.0.1")
	liar := reporting("liar", member, "10.0.0.2", no, "10.0.0.2")
	disconnected := *endpointHost.DeepCopy()
	disconnected.Status.Connection.State = infrav1.ConnectionDisconnected
	t.Run("another host reaches the endpoint", func(t *testing.T) {
		d := failover.Decide(clusterOf(disconnected, liar, reporting("honest", member, "10.0.0.3", yes, "10.0.0.3")))
		NewWithT(t).Expect(d.Move).To(BeNil())
	})
	t.Run("the endpoint's host vetoes", func(t *testing.T) {
		d := failover.Decide(clusterOf(endpointHost, liar))
		NewWithT(t).Expect(d.Move).To(BeNil())
	})
	t.Run("the report is of another endpoint", func(t *testing.T) {
		liar := *liar.DeepCopy()
		liar.Status.Endpoint.Probe.Endpoint = "10.0.0.9:6443"
		d := failover.Decide(clusterOf(disconnected, liar, recentlyReporting("honest", "10.0.0.3")))
		NewWithT(t).Expect(d.Move).To(BeNil())
	})
	t.Run("all other hosts agree", func(t *testing.T) {
		d := failover.Decide(clusterOf(disconnected, liar))
		NewWithT(t).Expect(d.Move).NotTo(BeNil())
	})
}

// Reports of workers, and of hosts that are fenced, locked or rejected, don't count.
func TestThreat35_HostsThatAreNotAsked(t *testing.T) {
	g := NewWithT(t)
	endpointHost := reporting("endpoint-host", member, "10.0.0.1", yes, "10.0.0.1")
	endpointHost.Status.Connection.State = infrav1.ConnectionDisconnected
	fit := recentlyReporting("fit", "10.0.0.2")
	g.Expect(failover.Decide(clusterOf(endpointHost, fit, reporting("worker", worker, "10.0.0.3", no, "10.0.0.3"))).Move).To(BeNil())
	for name, distrust := range map[string]func(*infrav1.ElementalHost){
		"fenced":   func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} },
		"locked":   func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} },
		"rejected": func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected },
	} {
		out := reporting("out", member, "10.0.0.3", no, "10.0.0.3")
		distrust(&out)
		g.Expect(failover.Decide(clusterOf(endpointHost, fit, out)).Move).To(BeNil(), name)
	}
	trusted := reporting("asked", member, "10.0.0.3", no, "10.0.0.3")
	g.Expect(failover.Decide(clusterOf(endpointHost, fit, trusted)).Move).NotTo(BeNil(), "reports of trusted control-plane hosts count")
}

// Hosts report their own addresses. An address does not become the endpoint if the
// certificate does not cover it, if the cluster's rule excludes it, or if it leads each
// client to itself.
func TestThreat36_ForeignAddress(t *testing.T) {
	g := NewWithT(t)
	moved := func(address, rule string, certificate ...string) *failover.Move {
		endpointHost := reporting("endpoint-host", member, "10.0.0.1", yes, "10.0.0.1")
		endpointHost.Status.Connection.State = infrav1.ConnectionDisconnected
		c := clusterOf(endpointHost, reporting("other", member, address, no, certificate...))
		if rule != "" {
			c.Infra.Spec.ControlPlaneEndpointPolicy.Host = &infrav1.EndpointHostPolicy{Address: infrav1.HostAddressRule{CIDR: rule}}
		}
		return failover.Decide(c).Move
	}
	g.Expect(moved("10.0.0.2", "10.0.0.0/24", "10.0.0.2")).NotTo(BeNil())
	g.Expect(moved("192.0.2.1", "", "10.0.0.2")).To(BeNil(), "the certificate does not cover it")
	g.Expect(moved("192.0.2.1", "10.0.0.0/24", "192.0.2.1")).To(BeNil(), "the rule excludes it")
	for _, unusable := range []string{"127.0.0.1", "::1", "0.0.0.0", "224.0.0.1", "169.254.169.254", "fe80::1", "::ffff:127.0.0.1"} {
		g.Expect(moved(unusable, "", unusable)).To(BeNil(), unusable)
	}
}

// As soon as one control-plane host does not reach the endpoint, all are asked: their earlier
// reports may be outdated. Workers are not, and nobody is while all is well.
func TestThreat42_AllAreAsked(t *testing.T) {
	g := NewWithT(t)
	asked := func(peer infrav1.ProbeResult) (names []string) {
		for _, host := range failover.HostsToAsk(clusterOf(
			reporting("endpoint-host", member, "10.0.0.1", yes, "10.0.0.1"), reporting("peer", member, "10.0.0.2", peer, "10.0.0.2"),
			reporting("other", member, "10.0.0.3", yes, "10.0.0.3"), reporting("worker", worker, "10.0.0.4", no, "10.0.0.4"),
		)) {
			names = append(names, host.Name)
		}
		return names
	}
	g.Expect(asked(yes)).To(BeEmpty())
	g.Expect(asked(no)).To(Equal([]string{"endpoint-host", "peer", "other"}))
}

// A report that its host no longer confirms neither moves an endpoint nor keeps it.
func TestThreat42_OutdatedEvidence(t *testing.T) {
	asked := time.Date(2026, 1, 1, 23, 59, 0, 0, time.UTC)
	silent := failover.Contact{AskedAt: asked}
	endpointHost := reporting("endpoint-host", member, "10.0.0.1", yes, "10.0.0.1")
	disconnected := *endpointHost.DeepCopy()
	disconnected.Status.Connection.State = infrav1.ConnectionDisconnected
	peer := reporting("peer", member, "10.0.0.2", no, "10.0.0.2")
	other := reporting("other", member, "10.0.0.3", yes, "10.0.0.3")
	t.Run("nobody confirms that the endpoint is unreachable", func(t *testing.T) {
		c := clusterOf(disconnected, peer)
		c.Contacts = nil
		NewWithT(t).Expect(failover.Decide(c).Move).To(BeNil())
	})
	t.Run("the veto of a host that does not answer", func(t *testing.T) {
		c := clusterOf(endpointHost, peer)
		g := NewWithT(t)
		g.Expect(failover.Decide(c).Move).To(BeNil())
		c.Contacts["endpoint-host"] = silent
		g.Expect(failover.Decide(c).Move).NotTo(BeNil())
	})
	t.Run("a host that does not answer has reached the endpoint", func(t *testing.T) {
		c := clusterOf(disconnected, peer, other)
		g := NewWithT(t)
		g.Expect(failover.Decide(c).Move).To(BeNil())
		c.Contacts["other"] = silent
		g.Expect(failover.Decide(c).Move).NotTo(BeNil())
	})
	t.Run("a host sends requests and no report", func(t *testing.T) {
		mute := *endpointHost.DeepCopy()
		mute.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"ReportEndpoint"}}
		c := clusterOf(mute, peer)
		c.Contacts["endpoint-host"] = failover.Contact{AskedAt: asked, Answer: failover.Answer{Request: true}}
		NewWithT(t).Expect(failover.Decide(c).Move).NotTo(BeNil())
	})
}
