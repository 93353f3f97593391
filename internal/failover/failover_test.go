package failover_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) metav1.Time { return metav1.NewTime(epoch.Add(d)) }

// healthyMember returns a bootstrapped control-plane host that reaches the endpoint
// 10.0.0.1.
func healthyMember(name, ip string) failover.Member {
	h := &infrav1.ElementalHost{}
	h.Name = name
	h.Spec.Approval = infrav1.ApprovalApproved
	h.Spec.Claim = &infrav1.HostClaim{ID: name, ClusterName: "c", MachineName: name, Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
	h.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionConnected, Since: at(-time.Hour)}
	h.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: ip}}
	h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: name, State: infrav1.OperationSucceeded}}
	h.Status.Endpoint = &infrav1.HostEndpoint{
		Kubeconfigs: "10.0.0.1:6443",
		Probe:       &infrav1.EndpointProbe{Endpoint: "10.0.0.1:6443", Result: infrav1.ProbeReachable, Since: at(-time.Hour)},
		APIServer:   &infrav1.HostAPIServer{Result: infrav1.ProbeReachable, Since: at(-time.Hour), CertificateNames: []string{ip}},
	}
	m := &clusterv1.Machine{}
	m.Name = name
	m.CreationTimestamp = at(-2 * time.Hour)
	return failover.Member{Host: h, Machine: m}
}

// cluster returns a cluster of h1, h2 and h3. Its endpoint is h1's address, and fails over
// after 60 s. All hosts have just been asked, and have answered.
func cluster() failover.Cluster {
	c := failover.Cluster{
		Infra: &infrav1.ElementalCluster{}, Cluster: &clusterv1.Cluster{}, Now: epoch,
		Members: []failover.Member{healthyMember("h1", "10.0.0.1"), healthyMember("h2", "10.0.0.2"), healthyMember("h3", "10.0.0.3")},
	}
	c.Contacts = map[string]failover.Contact{"h1": answered, "h2": answered, "h3": answered}
	c.Members[0].Host.Status.Endpoint.Workload = "10.0.0.1:6443"
	c.EndpointHost = c.Members[0].Host
	c.Infra.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
	c.Infra.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
		Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: "h1", ChosenAt: at(-time.Hour)},
		Host: &infrav1.EndpointHostPolicy{Failover: infrav1.EndpointFailover{AfterSeconds: new(int32(60))}},
	}
	return c
}

// answered is the contact with a host that was asked at epoch and has answered.
var answered = failover.Contact{AskedAt: epoch, Answer: failover.Answer{Request: true, Report: true}}

// makeUnreachable disconnects h1. h2 and h3 have reported the endpoint as unreachable for
// that long.
func makeUnreachable(c failover.Cluster, since time.Duration) {
	c.Members[0].Host.Status.Connection.State = infrav1.ConnectionDisconnected
	for _, m := range c.Members[1:] {
		m.Host.Status.Endpoint.Probe.Result, m.Host.Status.Endpoint.Probe.Since = infrav1.ProbeUnreachable, at(-since)
	}
}

func TestDecide(t *testing.T) {
	const long = time.Hour
	for name, tc := range map[string]struct {
		when    func(*failover.Cluster)
		to      string
		cause   infrav1.EndpointMoveCause
		reason  string
		message string
		next    time.Duration
	}{
		"at rest":                {reason: infrav1.EndpointFromHostReason},
		"shorter than the delay": {when: func(c *failover.Cluster) { makeUnreachable(*c, 29*time.Second) }, reason: infrav1.EndpointUnreachableReason, next: time.Second},
		"as long as the delay":   {when: func(c *failover.Cluster) { makeUnreachable(*c, 30*time.Second) }, to: "h2", cause: infrav1.MoveHostDead},
		"the earliest report counts": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, 0)
			c.Members[2].Host.Status.Endpoint.Probe.Since = at(-time.Minute)
		}, to: "h2", cause: infrav1.MoveHostDead},
		"default delay": {when: func(c *failover.Cluster) {
			c.Infra.Spec.ControlPlaneEndpointPolicy.Host = nil
			makeUnreachable(*c, 29*time.Second)
		}, reason: infrav1.EndpointUnreachableReason, next: time.Second},
		"default delay of a host that answers": {when: func(c *failover.Cluster) {
			c.Infra.Spec.ControlPlaneEndpointPolicy.Host = nil
			makeUnreachable(*c, 299*time.Second)
			c.Members[0].Host.Status.Connection.State = infrav1.ConnectionConnected
			c.Members[0].Host.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable
		}, reason: infrav1.EndpointUnreachableReason, next: time.Second},
		"one host is disconnected": {when: func(c *failover.Cluster) { makeUnreachable(*c, long); disconnect(c.Members[2]) }, to: "h2", cause: infrav1.MoveHostDead},
		"one host is locked": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, long)
			c.Members[1].Host.Spec.Lock = &infrav1.HostLock{}
		}, to: "h3", cause: infrav1.MoveHostDead},
		"no other host": {when: func(c *failover.Cluster) { makeUnreachable(*c, long); c.Members = c.Members[:1] }, reason: infrav1.EndpointUnobservedReason},
		"its own API server is down, no other host": {when: func(c *failover.Cluster) {
			c.Members = c.Members[:1]
			c.Members[0].Host.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable
		}, reason: infrav1.EndpointUnreachableReason, message: "Host h1 says that its API server has not answered"},
		"its own API server is down, others don't reach it either": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, long)
			c.Members[0].Host.Status.Connection.State = infrav1.ConnectionConnected
			c.Members[0].Host.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable
		}, to: "h2", cause: infrav1.MoveHostDead},
		"veto of the endpoint's host": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, long)
			c.Members[0].Host.Status.Connection.State = infrav1.ConnectionConnected
		}, reason: infrav1.EndpointUnreachableReason, message: "so the endpoint stays", next: failover.AskInterval},
		"one host reaches it": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, long)
			c.Members[2].Host.Status.Endpoint.Probe.Result = infrav1.ProbeReachable
		}, reason: infrav1.EndpointFromHostReason, message: "it has not answered h2 since 2025-12-31T23:00:00Z, but it answers h3, so it stays", next: failover.AskInterval},
		"no veto with another address": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, long)
			c.Members[0].Host.Status.Connection.State = infrav1.ConnectionConnected
			c.Members[0].Host.Status.Addresses[0].Address = "10.0.0.77"
		}, to: "h2", cause: infrav1.MoveHostDead},
		"report is older than the connection": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, long)
			c.Infra.Spec.ControlPlaneEndpointPolicy.Host.Failover.AfterSeconds = new(int32(0))
			disconnect(c.Members[1])
			c.Members[2].Host.Status.Connection.Since = at(-5 * time.Second)
		}, reason: infrav1.EndpointUnreachableReason, next: 10 * time.Second},
		"endpoint without a port": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, long)
			c.Infra.Spec.ControlPlaneEndpoint.Port = 0
		}, to: "h2", cause: infrav1.MoveHostDead},
		"report of another endpoint": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, long)
			for _, m := range c.Members[1:] {
				m.Host.Status.Endpoint.Probe.Endpoint = "10.0.0.9:6443"
			}
		}, reason: infrav1.EndpointFromHostReason},
		"report of a worker": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, long)
			c.Members[2].Host.Spec.Claim.Role = infrav1.RoleWorker
			c.Members[1].Host.Status.Endpoint.Probe.Result = infrav1.ProbeReachable
			c.Members[1].Host.Spec.Claim.Role = infrav1.RoleWorker
		}, reason: infrav1.EndpointUnobservedReason},
		"Machine deleted":       {when: func(c *failover.Cluster) { c.Members[0].Machine.DeletionTimestamp = new(at(0)) }, to: "h2", cause: infrav1.MoveMachineDeleted},
		"claim held":            {when: func(c *failover.Cluster) { c.Members[0].Host.Spec.Claim.Phase = infrav1.ClaimHeld }, to: "h2", cause: infrav1.MoveMachineDeleted},
		"host left the cluster": {when: func(c *failover.Cluster) { c.Members = c.Members[1:] }, to: "h2", cause: infrav1.MoveMachineDeleted},
		"host of a worker":      {when: func(c *failover.Cluster) { c.Members[0].Host.Spec.Claim.Role = infrav1.RoleWorker }, to: "h2", cause: infrav1.MoveMachineDeleted},
		"host does not exist":   {when: func(c *failover.Cluster) { c.Members, c.EndpointHost = c.Members[1:], nil }, reason: infrav1.EndpointFromHostReason},
		"no Machine":            {when: func(c *failover.Cluster) { c.Members[0].Machine = nil }, reason: infrav1.EndpointFromHostReason},
		"new Machine": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, long)
			c.Members[2].Machine.CreationTimestamp = at(-time.Hour)
		}, to: "h3", cause: infrav1.MoveHostDead},
		"Machine to be replaced":      {when: func(c *failover.Cluster) { makeUnreachable(*c, long); upToDate(c.Members[2]) }, to: "h3", cause: infrav1.MoveHostDead},
		"in cooldown":                 {when: func(c *failover.Cluster) { makeUnreachable(*c, long); moved(c, 59*time.Second, true) }, reason: infrav1.EndpointUnreachableReason, message: "it moved only at", next: time.Second},
		"after the cooldown":          {when: func(c *failover.Cluster) { makeUnreachable(*c, long); moved(c, time.Minute, true) }, to: "h2", cause: infrav1.MoveHostDead},
		"Machine deleted in cooldown": {when: func(c *failover.Cluster) { moved(c, 0, false); c.Members[0].Machine.DeletionTimestamp = new(at(0)) }, to: "h2", cause: infrav1.MoveMachineDeleted},
		"an IPv6 endpoint": {when: func(c *failover.Cluster) {
			c.Infra.Spec.ControlPlaneEndpoint.Host = "2001:db8::1"
			makeUnreachable(*c, long)
			for _, m := range c.Members[1:] {
				m.Host.Status.Endpoint.Probe.Endpoint = "[2001:db8::1]:6443"
			}
		}, to: "h2", cause: infrav1.MoveHostDead},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := cluster()
			if tc.when != nil {
				tc.when(&c)
			}
			d := failover.Decide(c)
			if tc.to != "" {
				g.Expect(d.Move).NotTo(BeNil(), d.Message)
				g.Expect([]string{d.Move.To.Name, string(d.Move.Cause)}).To(Equal([]string{tc.to, string(tc.cause)}))
				g.Expect(d.Move.Address).To(Equal("10.0.0." + strings.TrimPrefix(tc.to, "h")))
				return
			}
			g.Expect(d.Move).To(BeNil())
			g.Expect(d.Reason).To(Equal(tc.reason))
			g.Expect(d.Ready).To(Equal(tc.reason != infrav1.EndpointUnreachableReason))
			g.Expect(d.Message).To(ContainSubstring(tc.message))
			if tc.next == 0 {
				g.Expect(d.RecheckAt).To(BeZero())
			} else {
				g.Expect(d.RecheckAt).To(BeTemporally("==", epoch.Add(tc.next)))
			}
		})
	}
}

func disconnect(m failover.Member) {
	m.Host.Status.Connection.State = infrav1.ConnectionDisconnected
}

func upToDate(m failover.Member) {
	m.Machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionTrue}}
}

// moved records a move of the endpoint from h3 to h1, that long ago.
func moved(c *failover.Cluster, ago time.Duration, complete bool) {
	policy := &c.Infra.Spec.ControlPlaneEndpointPolicy
	policy.HostRef.ChosenAt = at(-ago)
	policy.FormerEndpoints = []infrav1.FormerEndpoint{{Host: "10.0.0.3", Port: 6443, HostName: "h3"}}
	move := &infrav1.EndpointMove{From: "10.0.0.3", To: "10.0.0.1", Cause: infrav1.MoveHostDead, StartedAt: at(-ago)}
	if complete {
		move.CompletedAt = at(-ago)
	}
	c.Infra.Status.Endpoint = &infrav1.EndpointStatus{LastMove: move}
}

// The test covers every reason that excludes a host, and whether the deletion of the
// endpoint's Machine waits for the host.
func TestNoCandidate(t *testing.T) {
	for message, tc := range map[string]struct {
		when func(*failover.Member)
		held bool
	}{
		"its Machine h2 is not there":                        {func(m *failover.Member) { m.Machine = nil }, false},
		"its Machine is being deleted":                       {func(m *failover.Member) { m.Machine.DeletionTimestamp = new(at(0)) }, false},
		"it is fenced, locked or not approved":               {func(m *failover.Member) { m.Host.Spec.Fence = &infrav1.HostFence{} }, false},
		"it is in maintenance":                               {func(m *failover.Member) { m.Host.Spec.Maintenance = &infrav1.HostMaintenance{} }, true},
		"it is in quarantine":                                {func(m *failover.Member) { m.Host.Spec.Quarantine = &infrav1.HostQuarantine{} }, true},
		"it is not bootstrapped":                             {func(m *failover.Member) { m.Host.Status.Operations = nil }, true},
		"its agent is not connected":                         {func(m *failover.Member) { disconnect(*m) }, true},
		"it has not said yet whether its API server answers": {func(m *failover.Member) { m.Host.Status.Endpoint = nil }, true},
		"it has not tried the endpoint yet":                  {func(m *failover.Member) { m.Host.Status.Endpoint.Probe.Endpoint = "10.0.0.9:6443" }, true},
		"its API server does not answer": {func(m *failover.Member) {
			m.Host.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable
		}, true},
		"it is without a known InternalIP":                       {func(m *failover.Member) { m.Host.Status.Addresses = nil }, false},
		"API server does not cover 10.0.0.2 (AddressNotCovered)": {func(m *failover.Member) { m.Host.Status.Endpoint.APIServer.CertificateNames = nil }, false},
	} {
		t.Run(message, func(t *testing.T) {
			g := NewWithT(t)
			c := cluster()
			c.Members = c.Members[:2]
			c.Members[0].Machine.DeletionTimestamp = new(at(-time.Minute))
			tc.when(&c.Members[1])
			d := failover.Decide(c)
			g.Expect(d.Move).To(BeNil())
			g.Expect([]any{d.Ready, d.Reason}).To(Equal([]any{false, infrav1.NoMoveCandidateReason}))
			g.Expect(d.Message).To(ContainSubstring("h2: "))
			g.Expect(d.Message).To(ContainSubstring(message))
			if !tc.held {
				g.Expect(d.HookRemovalReason).To(ContainSubstring(message))
				return
			}
			g.Expect(d.HookRemovalReason).To(BeEmpty())
			g.Expect(d.RecheckAt).To(BeTemporally("==", epoch.Add(4*time.Minute)))
			c.Now = d.RecheckAt
			g.Expect(failover.Decide(c).HookRemovalReason).To(ContainSubstring(message))
		})
	}
}

func TestJoinFirst(t *testing.T) {
	g := NewWithT(t)
	g.Expect(failover.JoinFirst([]string{"a", "b"}, ", ")).To(Equal("a, b"))
	g.Expect(failover.JoinFirst(strings.Split("abcdefg", ""), ", ")).To(Equal("a, b, c, d, e, and 2 more"))
}
