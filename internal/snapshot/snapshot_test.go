package snapshot

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// site is a cluster whose decisions are carried out.
type site struct {
	*WithT

	Cluster
	last Decision
}

// newSite returns a cluster with an hourly schedule and these control-plane hosts, at a time
// of the schedule.
func newSite(t *testing.T, names ...string) *site {
	t.Helper()
	infra := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	infra.Spec.EtcdSnapshots = &infrav1.EtcdSnapshots{Schedule: infrav1.EtcdSnapshotSchedule{IntervalSeconds: new(int32(3600))}}
	s := &site{WithT: NewWithT(t), Cluster: Cluster{
		Infra: infra, Hosts: map[string]*infrav1.ElementalHost{}, Now: due("ns/c", time.Hour, time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)),
	}}
	for _, name := range names {
		s.Hosts[name] = member(name)
	}
	return s
}

// member returns a control-plane host that can take a snapshot.
func member(name string) *infrav1.ElementalHost {
	h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	h.Spec.Approval = infrav1.ApprovalApproved
	h.Spec.Claim = &infrav1.HostClaim{ID: "id", ClusterName: "c", MachineName: name, Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
	h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "id", State: infrav1.OperationSucceeded}}
	h.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionConnected}
	h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{string(protocol.CapabilityEtcdSnapshot)}}
	h.Status.EtcdSnapshots = &infrav1.HostEtcdSnapshots{}
	return h
}

// decide decides and records the decision.
func (s *site) decide() Decision {
	s.last = Decide(s.Cluster)
	s.Infra.Spec.EtcdSnapshotRecord = s.last.Record
	return s.last
}

func (s *site) pass(d time.Duration) { s.Now = s.Now.Add(d) }

// asked is the host that is asked; blank for none.
func (s *site) asked() string {
	if s.last.Record == nil || s.last.Record.Request == nil {
		return ""
	}
	return s.last.Record.Request.HostName
}

// deliver has the host that is asked take the snapshot, and returns its name.
func (s *site) deliver() string {
	s.Expect(s.asked()).NotTo(BeEmpty())
	host := s.Hosts[s.asked()]
	host.Status.EtcdSnapshots = &infrav1.HostEtcdSnapshots{Items: append([]infrav1.HostEtcdSnapshot{
		{ID: infrav1.EtcdSnapshotID(s.last.Record.Request.ScheduledAt)},
	}, host.Status.EtcdSnapshots.Items...)}
	s.decide()
	s.Expect(s.last.Taken).NotTo(BeNil())
	s.Expect(s.last.TakenBy).To(Equal(host))
	return host.Name
}

// fail has the host that is asked report a failure.
func (s *site) fail(message string) {
	s.Hosts[s.asked()].Status.EtcdSnapshots.Failure = &infrav1.HostEtcdSnapshotFailure{
		ID: infrav1.EtcdSnapshotID(s.last.Record.Request.ScheduledAt), Message: message,
	}
}

func (s *site) expectCondition(status metav1.ConditionStatus, reason, message string) {
	s.Expect(s.last.Condition).NotTo(BeNil())
	s.Expect(fmt.Sprintf("%s %s: %s", s.last.Condition.Status, s.last.Condition.Reason, s.last.Condition.Message)).
		To(SatisfyAll(HavePrefix("%s %s: ", status, reason), ContainSubstring(message)))
}

func (s *site) expectTaken() {
	s.expectCondition(metav1.ConditionTrue, infrav1.EtcdSnapshotTakenReason, "")
}

func (s *site) expectNot(reason, message string) {
	s.expectCondition(metav1.ConditionFalse, reason, message)
}

func TestDue(t *testing.T) {
	g := NewWithT(t)
	shifts := map[int64]bool{}
	for i := range 100 {
		name := fmt.Sprintf("ns/%d", i)
		now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
		at := due(name, time.Hour, now)
		g.Expect(at.After(now)).To(BeFalse())
		g.Expect(now.Sub(at)).To(BeNumerically("<", time.Hour))
		g.Expect(due(name, time.Hour, at)).To(Equal(at), "a time of the schedule is due at once")
		g.Expect(due(name, time.Hour, at.Add(-time.Second))).To(Equal(at.Add(-time.Hour)))
		g.Expect(due(name, time.Hour, at.Add(time.Hour))).To(Equal(at.Add(time.Hour)))
		shifts[at.Unix()%3600] = true
	}
	g.Expect(len(shifts)).To(BeNumerically(">", 90), "clusters take their snapshots at different times")
}

func TestNoSchedule(t *testing.T) {
	s := newSite(t, "a")
	s.decide()
	s.Infra.Spec.EtcdSnapshots = nil
	s.Expect(s.decide()).To(Equal(Decision{}), "the request is withdrawn, and there is no condition")
}

// Each snapshot is asked for once, of one host, and the hosts take turns. The endpoint host
// is spared.
func TestTurns(t *testing.T) {
	s := newSite(t, "a", "b", "c")
	s.Infra.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "b"}
	var turns string
	for range 5 {
		s.decide()
		record := s.last.Record.DeepCopy()
		s.pass(time.Second)
		s.Expect(s.decide().Record).To(Equal(record), "the request stays")
		turns += s.deliver()
		s.expectTaken()
		record = s.last.Record.DeepCopy()
		s.pass(time.Hour - 2*time.Second)
		s.Expect(s.decide().Record).To(Equal(record), "nothing is due")
		s.Expect(s.last.RecheckAt).To(Equal(s.Now.Add(time.Second)), "the next one is due then")
		s.pass(time.Second)
	}
	s.Expect(turns).To(Equal("acaca"))
}

func TestOnlyTheEndpointHost(t *testing.T) {
	s := newSite(t, "a")
	s.Infra.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "a"}
	s.decide()
	s.expectNot(infrav1.EtcdSnapshotPendingReason, "Host a takes snapshot 2026")
	s.Expect(s.deliver()).To(Equal("a"))
	s.expectTaken()
}

// Several that were missed become one.
func TestMissed(t *testing.T) {
	s := newSite(t, "a")
	s.decide()
	s.deliver()
	s.pass(10*time.Hour + 5*time.Minute)
	at := metav1.NewTime(s.Now.Add(-5 * time.Minute))
	s.Expect(s.decide().Record.Request).To(Equal(&infrav1.EtcdSnapshotRequest{ScheduledAt: at, HostName: "a", AskedAt: metav1.NewTime(s.Now)}))
	s.expectNot(infrav1.EtcdSnapshotOverdueReason, "overdue")
	s.deliver()
	s.Expect(s.last.Record.Request).To(BeNil())
	s.expectTaken()
}

// Until the grace is over, the former snapshot will do.
func TestGrace(t *testing.T) {
	s := newSite(t, "a")
	s.decide()
	s.deliver()
	s.pass(time.Hour)
	s.decide()
	s.expectTaken()
	s.pass(grace - time.Second)
	s.decide()
	s.expectTaken()
	s.pass(time.Second)
	s.decide()
	s.expectNot(infrav1.EtcdSnapshotOverdueReason, "host a has not delivered it yet")
	s.Expect(s.last.Record.Request.AskedAt.Time).To(Equal(s.Now.Add(-grace)), "nobody else can take it, so the request stays")
}

// A host that does not deliver is replaced by another one, the endpoint host too.
func TestNextHost(t *testing.T) {
	s := newSite(t, "a", "b", "c")
	s.Infra.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "b"}
	var asked []string
	for range 4 {
		s.decide()
		asked = append(asked, s.asked())
		s.Expect(s.last.RecheckAt).To(BeTemporally("<=", s.Now.Add(delivery)))
		s.pass(delivery - time.Second)
		s.decide()
		s.Expect(s.asked()).To(Equal(asked[len(asked)-1]), "it still has time")
		s.Expect(s.last.GivenUp).To(BeNil())
		s.pass(time.Second)
	}
	s.Expect(asked).To(Equal([]string{"a", "c", "b", "a"}))
	s.decide()
	s.Expect(s.last.GivenUp.HostName).To(Equal("a"))
	s.Expect(s.last.GivenUpBecause).To(ContainSubstring("in time"))
	s.deliver()
	s.expectTaken()
}

func TestFailure(t *testing.T) {
	s := newSite(t, "a", "b")
	s.decide()
	s.fail("no space left")
	s.decide()
	s.Expect(s.asked()).To(Equal("a"), "it may try again for a moment")
	s.expectNot(infrav1.EtcdSnapshotFailedReason, "Host a can't take snapshot 2026")
	s.expectNot(infrav1.EtcdSnapshotFailedReason, "no space left")
	s.pass(afterFailure)
	s.decide()
	s.Expect(s.asked()).To(Equal("b"))
	s.Expect(s.last.GivenUpBecause).To(Equal("no space left"))
	s.Expect(s.deliver()).To(Equal("b"))
	s.expectTaken()
	s.pass(time.Hour)
	s.decide()
	s.Expect(s.asked()).To(Equal("a"), "an old failure counts no longer")
	s.expectTaken()
}

func TestHostLeaves(t *testing.T) {
	s := newSite(t, "a", "b")
	s.decide()
	delete(s.Hosts, "a")
	s.decide()
	s.Expect(s.asked()).To(Equal("b"))
	s.Expect(s.last.GivenUpBecause).To(ContainSubstring("no longer belongs"))
	s.deliver()
	s.Hosts["a"] = member("a")
	s.Hosts["b"].Spec.Claim.Phase = infrav1.ClaimReleasing
	s.decide()
	s.Expect(s.asked()).To(Equal("a"), "the snapshot has left with its host")
}

// After a move of the management cluster nobody has reported anything.
func TestMoved(t *testing.T) {
	s := newSite(t, "a", "b")
	s.decide()
	s.deliver()
	for _, host := range s.Hosts {
		host.Status = infrav1.ElementalHostStatus{}
	}
	record := s.last.Record.DeepCopy()
	s.pass(time.Minute)
	s.Expect(s.decide().Record).To(Equal(record))
	s.expectTaken()
	s.Hosts["a"].Status = member("a").Status
	s.decide()
	s.Expect(s.asked()).NotTo(BeEmpty(), "it has reported that the snapshot is gone")
}

// What the hosts of another cluster, or hosts that nobody asked, report fulfils nothing.
func TestThreat67_ForeignSnapshots(t *testing.T) {
	s := newSite(t, "a", "b")
	s.decide()
	id := infrav1.EtcdSnapshotID(s.last.Record.Request.ScheduledAt)
	s.Hosts["b"].Status.EtcdSnapshots = &infrav1.HostEtcdSnapshots{
		Items: []infrav1.HostEtcdSnapshot{{ID: id}}, Failure: &infrav1.HostEtcdSnapshotFailure{ID: id, Message: "x"},
	}
	s.Hosts["a"].Status.EtcdSnapshots = &infrav1.HostEtcdSnapshots{Items: []infrav1.HostEtcdSnapshot{{ID: "20991231T000000Z"}}}
	s.decide()
	s.Expect(s.asked()).To(Equal("a"))
	s.expectNot(infrav1.EtcdSnapshotPendingReason, "")
	s.Hosts["a"].Spec.Claim.Role = infrav1.RoleWorker
	s.Hosts["a"].Status.EtcdSnapshots.Items[0].ID = id
	s.Expect(s.decide().Taken).To(BeNil())
	s.Expect(s.asked()).To(Equal("b"))
}

func TestObstacles(t *testing.T) {
	running := func(h *infrav1.ElementalHost) {
		h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{Type: infrav1.OperationReboot, ID: "r", State: infrav1.OperationRunning})
	}
	for want, change := range map[string]func(*infrav1.ElementalHost){
		"a (it is held)":                    func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimHeld },
		"a (it is not approved":             func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{} },
		"a (it is not connected)":           func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected },
		"a (its agent can't take snapshots": func(h *infrav1.ElementalHost) { h.Status.Agent.Capabilities = nil },
		"a (its control plane is halted)": func(h *infrav1.ElementalHost) {
			h.Spec.ControlPlaneHalt = &infrav1.HostControlPlaneHalt{ID: "1"}
		},
		"a (it is in maintenance": func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{} },
		"a (an operation":         running,
		"a (an operation is requested": func(h *infrav1.ElementalHost) {
			h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: "u"}
		},
		"a (an operation is requested or": func(h *infrav1.ElementalHost) { h.Spec.Reboot = &infrav1.HostReboot{ID: "r"} },
		"a (its API server is not ready)": func(h *infrav1.ElementalHost) {
			h.Status.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeUnreachable}}
		},
	} {
		t.Run(want, func(t *testing.T) {
			s := newSite(t, "a")
			change(s.Hosts["a"])
			s.decide()
			s.Expect(s.asked()).To(BeEmpty())
			s.expectNot(infrav1.NoHostReason, want)
			s.Expect(s.last.RecheckAt).To(Equal(s.Now.Add(recheck)))
		})
	}
}

func TestNoControlPlane(t *testing.T) {
	s := newSite(t, "a")
	s.Hosts["a"].Status.Operations = nil
	s.Hosts["w"] = member("w")
	s.Hosts["w"].Spec.Claim.Role = infrav1.RoleWorker
	s.decide()
	s.expectNot(infrav1.WaitingForControlPlaneReason, "")
	s.Expect(s.last.Record).To(BeNil())
}

func TestManyObstacles(t *testing.T) {
	s := newSite(t, strings.Split("abcdefg", "")...)
	for _, host := range s.Hosts {
		host.Status.Connection = nil
	}
	s.decide()
	s.expectNot(infrav1.NoHostReason, "e (it is not connected) and 2 more")
}
