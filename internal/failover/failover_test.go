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

// upMember is a control-plane host that is up and reaches the endpoint 10.0.0.1.
func upMember(name, ip string) failover.Member {
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

// cluster has its endpoint on h1 of three; it fails over after 60 s.
func cluster() failover.Cluster {
	c := failover.Cluster{
		Infra: &infrav1.ElementalCluster{}, Cluster: &clusterv1.Cluster{}, Now: epoch,
		Members: []failover.Member{upMember("h1", "10.0.0.1"), upMember("h2", "10.0.0.2"), upMember("h3", "10.0.0.3")},
	}
	c.Members[0].Host.Status.Endpoint.Workload = "10.0.0.1:6443"
	c.Holder = c.Members[0].Host
	c.Infra.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
	c.Infra.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
		Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: "h1", ChosenAt: at(-time.Hour)},
		Host: &infrav1.EndpointHostPolicy{Failover: infrav1.EndpointFailover{AfterSeconds: new(int32(60))}},
	}
	return c
}

// silent has h1 dead, and h2 and h3 say so since that long.
func silent(c failover.Cluster, since time.Duration) {
	c.Members[0].Host.Status.Connection.State = infrav1.ConnectionDisconnected
	for _, m := range c.Members[1:] {
		m.Host.Status.Endpoint.Probe.Result, m.Host.Status.Endpoint.Probe.Since = infrav1.ProbeUnreachable, at(-since)
	}
}

func TestDecide(t *testing.T) {
	const long = time.Hour
	for name, tc := range map[string]struct {
		when   func(*failover.Cluster)
		to     string
		cause  infrav1.EndpointMoveCause
		reason string
		says   string
		next   time.Duration
	}{
		"at rest":     {reason: infrav1.EndpointFromHostReason},
		"not long":    {when: func(c *failover.Cluster) { silent(*c, 59*time.Second) }, reason: infrav1.EndpointUnreachableReason, next: time.Second},
		"long enough": {when: func(c *failover.Cluster) { silent(*c, time.Minute) }, to: "h2", cause: infrav1.MoveHostDead},
		"the first": {when: func(c *failover.Cluster) {
			silent(*c, 0)
			c.Members[2].Host.Status.Endpoint.Probe.Since = at(-time.Minute)
		}, to: "h2", cause: infrav1.MoveHostDead},
		"by default": {when: func(c *failover.Cluster) {
			c.Infra.Spec.ControlPlaneEndpointPolicy.Host = nil
			silent(*c, 299*time.Second)
		}, reason: infrav1.EndpointUnreachableReason, next: time.Second},
		"one is away":  {when: func(c *failover.Cluster) { silent(*c, long); disconnect(c.Members[2]) }, to: "h2", cause: infrav1.MoveHostDead},
		"locked":       {when: func(c *failover.Cluster) { silent(*c, long); c.Members[1].Host.Spec.Lock = &infrav1.HostLock{} }, to: "h3", cause: infrav1.MoveHostDead},
		"by none else": {when: func(c *failover.Cluster) { silent(*c, long); c.Members = c.Members[:1] }, reason: infrav1.EndpointUnobservedReason},
		"its own API server alone": {when: func(c *failover.Cluster) {
			c.Members = c.Members[:1]
			c.Members[0].Host.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable
		}, reason: infrav1.EndpointUnreachableReason, says: "Host h1 says that its API server has not answered"},
		"its own API server is down, others say nothing else": {when: func(c *failover.Cluster) {
			silent(*c, long)
			c.Members[0].Host.Status.Connection.State = infrav1.ConnectionConnected
			c.Members[0].Host.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable
		}, to: "h2", cause: infrav1.MoveHostDead},
		"a veto": {when: func(c *failover.Cluster) {
			silent(*c, long)
			c.Members[0].Host.Status.Connection.State = infrav1.ConnectionConnected
		}, reason: infrav1.EndpointUnreachableReason, says: "so the endpoint stays"},
		"one reaches it": {when: func(c *failover.Cluster) {
			silent(*c, long)
			c.Members[2].Host.Status.Endpoint.Probe.Result = infrav1.ProbeReachable
		}, reason: infrav1.EndpointFromHostReason, says: "it has not answered h2 since 2025-12-31T23:00:00Z, but it answers h3, so it stays"},
		"no veto from another address": {when: func(c *failover.Cluster) {
			silent(*c, long)
			c.Members[0].Host.Status.Connection.State = infrav1.ConnectionConnected
			c.Members[0].Host.Status.Addresses[0].Address = "10.0.0.77"
		}, to: "h2", cause: infrav1.MoveHostDead},
		"said before it was away": {when: func(c *failover.Cluster) {
			silent(*c, long)
			c.Infra.Spec.ControlPlaneEndpointPolicy.Host.Failover.AfterSeconds = new(int32(0))
			disconnect(c.Members[1])
			c.Members[2].Host.Status.Connection.Since = at(-5 * time.Second)
		}, reason: infrav1.EndpointUnreachableReason, next: 10 * time.Second},
		"of another endpoint": {when: func(c *failover.Cluster) {
			silent(*c, long)
			for _, m := range c.Members[1:] {
				m.Host.Status.Endpoint.Probe.Endpoint = "10.0.0.9:6443"
			}
		}, reason: infrav1.EndpointFromHostReason},
		"a worker's word": {when: func(c *failover.Cluster) {
			silent(*c, long)
			c.Members[2].Host.Spec.Claim.Role = infrav1.RoleWorker
			c.Members[1].Host.Status.Endpoint.Probe.Result = infrav1.ProbeReachable
			c.Members[1].Host.Spec.Claim.Role = infrav1.RoleWorker
		}, reason: infrav1.EndpointUnobservedReason},
		"deleted":        {when: func(c *failover.Cluster) { c.Members[0].Machine.DeletionTimestamp = new(at(0)) }, to: "h2", cause: infrav1.MoveMachineDeleted},
		"held":           {when: func(c *failover.Cluster) { c.Members[0].Host.Spec.Claim.Phase = infrav1.ClaimHeld }, to: "h2", cause: infrav1.MoveMachineDeleted},
		"another's":      {when: func(c *failover.Cluster) { c.Members = c.Members[1:] }, to: "h2", cause: infrav1.MoveMachineDeleted},
		"a worker's":     {when: func(c *failover.Cluster) { c.Members[0].Host.Spec.Claim.Role = infrav1.RoleWorker }, to: "h2", cause: infrav1.MoveMachineDeleted},
		"not there":      {when: func(c *failover.Cluster) { c.Members, c.Holder = c.Members[1:], nil }, reason: infrav1.EndpointFromHostReason},
		"no Machine":     {when: func(c *failover.Cluster) { c.Members[0].Machine = nil }, reason: infrav1.EndpointFromHostReason},
		"a new Machine":  {when: func(c *failover.Cluster) { silent(*c, long); c.Members[2].Machine.CreationTimestamp = at(-time.Hour) }, to: "h3", cause: infrav1.MoveHostDead},
		"only outdated":  {when: func(c *failover.Cluster) { silent(*c, long); upToDate(c.Members[2]) }, to: "h3", cause: infrav1.MoveHostDead},
		"a move damps":   {when: func(c *failover.Cluster) { silent(*c, long); moved(c, 119*time.Second, true) }, reason: infrav1.EndpointUnreachableReason, says: "it moved only at", next: time.Second},
		"but not long":   {when: func(c *failover.Cluster) { silent(*c, long); moved(c, 2*time.Minute, true) }, to: "h2", cause: infrav1.MoveHostDead},
		"nor a deletion": {when: func(c *failover.Cluster) { moved(c, 0, false); c.Members[0].Machine.DeletionTimestamp = new(at(0)) }, to: "h2", cause: infrav1.MoveMachineDeleted},
		"an IPv6 endpoint": {when: func(c *failover.Cluster) {
			c.Infra.Spec.ControlPlaneEndpoint.Host = "2001:db8::1"
			silent(*c, long)
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
			g.Expect(d.Message).To(ContainSubstring(tc.says))
			if tc.next == 0 {
				g.Expect(d.Next).To(BeZero())
			} else {
				g.Expect(d.Next).To(BeTemporally("==", epoch.Add(tc.next)))
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

// moved has the endpoint come to h1 from h3 that long ago.
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

// Every reason why a host can't have the endpoint, and whether the Machine of its
// host is held for it.
func TestNoCandidate(t *testing.T) {
	for says, tc := range map[string]struct {
		when func(*failover.Member)
		held bool
	}{
		"its Machine h2 is not there":                        {func(m *failover.Member) { m.Machine = nil }, false},
		"its Machine is being deleted":                       {func(m *failover.Member) { m.Machine.DeletionTimestamp = new(at(0)) }, false},
		"it is fenced, locked or not approved":               {func(m *failover.Member) { m.Host.Spec.Fence = &infrav1.HostFence{} }, false},
		"it is in maintenance":                               {func(m *failover.Member) { m.Host.Spec.Maintenance = &infrav1.HostMaintenance{} }, false},
		"it is in quarantine":                                {func(m *failover.Member) { m.Host.Spec.Quarantine = &infrav1.HostQuarantine{} }, false},
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
		t.Run(says, func(t *testing.T) {
			g := NewWithT(t)
			c := cluster()
			c.Members = c.Members[:2]
			c.Members[0].Machine.DeletionTimestamp = new(at(-time.Minute))
			tc.when(&c.Members[1])
			d := failover.Decide(c)
			g.Expect(d.Move).To(BeNil())
			g.Expect([]any{d.Ready, d.Reason}).To(Equal([]any{false, infrav1.NoMoveCandidateReason}))
			g.Expect(d.Message).To(ContainSubstring("h2: "))
			g.Expect(d.Message).To(ContainSubstring(says))
			if !tc.held {
				g.Expect(d.Stranded).To(ContainSubstring(says))
				return
			}
			g.Expect(d.Stranded).To(BeEmpty())
			g.Expect(d.Next).To(BeTemporally("==", epoch.Add(4*time.Minute)))
			c.Now = d.Next
			g.Expect(failover.Decide(c).Stranded).To(ContainSubstring(says))
		})
	}
}

// LastMove is put together from spec where status was lost.
func TestLastMoveWithoutStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		when func(*failover.Cluster)
		want infrav1.EndpointMoveCause
	}{
		"dead":            {func(*failover.Cluster) {}, infrav1.MoveHostDead},
		"deleted":         {func(c *failover.Cluster) { c.Members[2].Machine.DeletionTimestamp = new(at(0)) }, infrav1.MoveMachineDeleted},
		"gone":            {func(c *failover.Cluster) { c.Members = c.Members[:2] }, infrav1.MoveMachineDeleted},
		"requested":       {func(c *failover.Cluster) { former(c).RejectedSince = at(0) }, infrav1.MoveRequested},
		"address changed": {func(c *failover.Cluster) { former(c).HostName = "h1" }, infrav1.MoveAddressChanged},
		"exchanged":       {func(c *failover.Cluster) { former(c).HostName = "" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := cluster()
			moved(&c, time.Minute, true)
			c.Infra.Status = infrav1.ElementalClusterStatus{}
			tc.when(&c)
			last := c.LastMove()
			if tc.want == "" {
				g.Expect(last).To(BeNil())
				return
			}
			g.Expect(last).To(HaveValue(Equal(infrav1.EndpointMove{From: "10.0.0.3", To: "10.0.0.1", StartedAt: at(-time.Minute), Cause: tc.want})))
		})
	}
}

func former(c *failover.Cluster) *infrav1.FormerEndpoint {
	return &c.Infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints[0]
}

func TestFollow(t *testing.T) {
	for name, tc := range map[string]struct {
		when     func(*failover.Cluster)
		pending  []string
		complete bool
		remains  []string
		reject   bool
		lift     []int
	}{
		"nothing moved": {when: func(c *failover.Cluster) { c.Infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints = nil }, complete: true},
		"all follow":    {complete: true},
		"the Secret":    {pending: []string{"Secret x"}, remains: []string{"Secret x"}},
		"a host":        {when: func(c *failover.Cluster) { c.Members[1].Host.Status.Endpoint.Kubeconfigs = "10.0.0.3:6443" }, remains: []string{"host h2"}},
		"a host that writes": {when: func(c *failover.Cluster) {
			c.Members[1].Host.Status.Endpoint = &infrav1.HostEndpoint{Message: "disk full"}
		}, remains: []string{"host h2, which says: disk full"}},
		"a host offline": {when: func(c *failover.Cluster) {
			c.Members[1].Host.Status.Endpoint.Kubeconfigs = ""
			disconnect(c.Members[1])
		}, complete: true, remains: []string{"host h2, which is offline"}},
		"a younger host": {when: func(c *failover.Cluster) {
			c.Members[1].Host.Status.Endpoint = nil
			c.Members[1].Machine.CreationTimestamp = at(0)
		}, complete: true},
		"no Node yet": {when: func(c *failover.Cluster) {
			c.Members[1].Host.Status.Endpoint = nil
			c.Members[1].Host.Status.Operations = nil
		}, complete: true},
		"the workload":     {when: func(c *failover.Cluster) { c.Members[0].Host.Status.Endpoint.Workload = "" }, remains: []string{"the workload cluster's own objects (host h1 changes them)"}},
		"a deletion":       {when: planned, reject: true},
		"a request":        {when: func(c *failover.Cluster) { planned(c); c.Infra.Status.Endpoint.LastMove.Cause = infrav1.MoveRequested }, reject: true},
		"a dead host":      {when: func(c *failover.Cluster) { planned(c); disconnect(c.Members[2]) }, complete: true},
		"a host that goes": {when: func(c *failover.Cluster) { planned(c); c.Members = c.Members[:2] }, complete: true},
		"not rejecting yet": {when: func(c *failover.Cluster) { planned(c); former(c).RejectedSince = at(0) },
			remains: []string{"host h3, which does not reject connections to 10.0.0.3 yet"}},
		"rejecting": {when: func(c *failover.Cluster) { rejecting(c, 0) }, remains: []string{"Cluster API, which may still be connected to 10.0.0.3"}},
		"reconnected": {when: func(c *failover.Cluster) {
			rejecting(c, time.Minute)
			probe(c, metav1.ConditionTrue, -time.Second)
		}, complete: true},
		"connected from before": {when: func(c *failover.Cluster) {
			rejecting(c, 2*time.Minute-time.Second)
			probe(c, metav1.ConditionTrue, -time.Hour)
		}, remains: []string{"Cluster API, which may still be connected to 10.0.0.3"}},
		"connected for long enough": {when: func(c *failover.Cluster) {
			rejecting(c, 2*time.Minute)
			probe(c, metav1.ConditionTrue, -time.Hour)
		}, complete: true},
		"not connected": {when: func(c *failover.Cluster) {
			rejecting(c, 4*time.Minute)
			probe(c, metav1.ConditionFalse, -time.Second)
		}, remains: []string{"Cluster API, which may still be connected to 10.0.0.3"}},
		"not connected for long": {when: func(c *failover.Cluster) {
			rejecting(c, 5*time.Minute)
			probe(c, metav1.ConditionFalse, -time.Second)
		}, complete: true},
		"rejecting for a host that goes": {when: func(c *failover.Cluster) {
			rejecting(c, time.Hour)
			c.Infra.Status.Endpoint.LastMove.CompletedAt = at(0)
		}, complete: true},
		"rejecting until that is on record": {when: func(c *failover.Cluster) {
			rejecting(c, time.Hour)
			c.Members[2].Machine.DeletionTimestamp = nil
		}, complete: true},
		"rejecting for a host that stays": {when: func(c *failover.Cluster) {
			rejecting(c, time.Hour)
			c.Infra.Status.Endpoint.LastMove.CompletedAt = at(0)
			c.Members[2].Machine.DeletionTimestamp = nil
		}, complete: true, lift: []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := cluster()
			moved(&c, time.Hour, false)
			c.Infra.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt = at(-time.Hour)
			if tc.when != nil {
				tc.when(&c)
			}
			p := failover.Follow(c, tc.pending)
			g.Expect(p.Complete).To(Equal(tc.complete))
			g.Expect(strings.Join(p.Remaining, "; ")).To(Equal(strings.Join(tc.remains, "; ")))
			g.Expect(p.Reject).To(Equal(tc.reject))
			g.Expect(p.Lift).To(Equal(tc.lift))
		})
	}
}

// planned has h3 deleted, from which the endpoint came.
func planned(c *failover.Cluster) {
	c.Infra.Status.Endpoint.LastMove.Cause = infrav1.MoveMachineDeleted
	c.Members[2].Machine.DeletionTimestamp = new(at(-time.Hour))
}

func rejecting(c *failover.Cluster, since time.Duration) {
	planned(c)
	former(c).RejectedSince = at(-since)
	c.Members[2].Host.Status.Endpoint.Rejects = "10.0.0.3:6443"
}

func probe(c *failover.Cluster, is metav1.ConditionStatus, since time.Duration) {
	c.Cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterRemoteConnectionProbeCondition, Status: is, LastTransitionTime: at(since)}}
}

func TestAtMost(t *testing.T) {
	g := NewWithT(t)
	g.Expect(failover.AtMost([]string{"a", "b"}, ", ")).To(Equal("a, b"))
	g.Expect(failover.AtMost(strings.Split("abcdefg", ""), ", ")).To(Equal("a, b, c, d, e, and 2 more"))
}
