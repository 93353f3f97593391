package quickstart

import (
	"bytes"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// elementalHost makes one that is connected.
func elementalHost(change ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Name: "host-1"}, Spec: infrav1.ElementalHostSpec{Approval: infrav1.ApprovalApproved}}
	h.Status.Conditions = []metav1.Condition{{Type: infrav1.ConnectedCondition, Status: metav1.ConditionTrue}}
	h.Status.Addresses = []clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: "127.9.0.1"}, {Type: clusterv1.MachineInternalIP, Address: "127.9.0.2"},
	}
	for _, f := range change {
		f(h)
	}
	return h
}

func claimed(phase infrav1.ClaimPhase, role infrav1.ClaimRole) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "c", MachineName: "m", Phase: phase, Role: role}
	}
}

func operation(kind infrav1.OperationType, state infrav1.OperationState, text string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Status.Operations = []infrav1.HostOperation{{Type: kind, ID: "c", State: state, Step: text, Message: text}}
	}
}

func TestWhatAHostIs(t *testing.T) {
	g := NewWithT(t)
	bound, releasing := claimed(infrav1.ClaimBound, infrav1.RoleWorker), claimed(infrav1.ClaimReleasing, infrav1.RoleControlPlane)
	for want, h := range map[string]*infrav1.ElementalHost{
		"waits for approval": elementalHost(func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending }),
		"not offered":        elementalHost(),
		"free": elementalHost(func(h *infrav1.ElementalHost) {
			h.Status.Conditions = append(h.Status.Conditions, metav1.Condition{Type: infrav1.AvailableCondition, Status: metav1.ConditionTrue})
		}),
		"reserved: its address is the endpoint":  elementalHost(claimed(infrav1.ClaimReserved, "")),
		"worker, claimed":                        elementalHost(bound),
		"worker, bootstrap runs: begins":         elementalHost(bound, operation(infrav1.OperationBootstrap, infrav1.OperationRunning, "")),
		"worker, bootstrap runs: join":           elementalHost(bound, operation(infrav1.OperationBootstrap, infrav1.OperationRunning, "join")),
		"worker, bootstrap failed: no network":   elementalHost(bound, operation(infrav1.OperationBootstrap, infrav1.OperationFailed, "no network")),
		"worker":                                 elementalHost(bound, operation(infrav1.OperationBootstrap, infrav1.OperationSucceeded, "")),
		"control plane":                          elementalHost(claimed(infrav1.ClaimBound, infrav1.RoleInitialControlPlane), operation(infrav1.OperationBootstrap, infrav1.OperationSucceeded, "")),
		"was a control plane, to be reset":       elementalHost(releasing, operation(infrav1.OperationBootstrap, infrav1.OperationSucceeded, "")),
		"reset runs: clean":                      elementalHost(releasing, operation(infrav1.OperationReset, infrav1.OperationRunning, "clean")),
		"reset failed: /var/lib/etcd is mounted": elementalHost(releasing, operation(infrav1.OperationReset, infrav1.OperationFailed, "/var/lib/etcd is mounted")),
	} {
		line := describeHost(h)
		g.Expect(line.is).To(Equal(want))
		g.Expect(line.address).To(Equal("127.9.0.1"))
		g.Expect(line.connected).To(BeTrue())
		machine := ""
		if h.Spec.Claim != nil {
			machine = "m"
		}
		g.Expect(line.machine).To(Equal(machine))
	}
	g.Expect(describeHost(elementalHost(func(h *infrav1.ElementalHost) { h.Status.Conditions = nil })).connection()).To(Equal("silent"))
}

func TestWhatAClusterIs(t *testing.T) {
	g := NewWithT(t)
	c := &clusterv1.Cluster{}
	g.Expect(describeCluster(c)).To(Equal("not made yet"))
	c.Name = "demo"
	g.Expect(describeCluster(c)).To(Equal("made"))
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterAvailableCondition, Status: metav1.ConditionFalse}}
	g.Expect(describeCluster(c)).To(Equal("not available yet"))
	c.Status.Conditions[0].Status = metav1.ConditionTrue
	g.Expect(describeCluster(c)).To(Equal("available"))
}

func sight() snapshot {
	return snapshot{
		hosts: []hostLine{
			{"host-1", "127.9.0.1", true, "control plane", "demo-control-plane-x"}, {"host-2", "127.9.0.2", false, "free", ""},
		},
		machines: []machineLine{{"demo-control-plane-x", "Running", "host-1", true}, {"demo-md-0-y", "Pending", "", false}},
		endpoint: "127.9.0.1:6443", serves: "host-1", cluster: "available",
	}
}

func TestTable(t *testing.T) {
	g := NewWithT(t)
	g.Expect(strings.Join(sight().table(), "\n")).To(Equal(strings.TrimSpace(`
HOST      ADDRESS               IS             MACHINE
host-1 *  127.9.0.1  connected  control plane  demo-control-plane-x
host-2    127.9.0.2  silent     free

MACHINE               PHASE    HOST
demo-control-plane-x  Running  host-1
demo-md-0-y           Pending

Cluster   available
Endpoint  127.9.0.1:6443, the address of host-1
`)))
}

func TestNews(t *testing.T) {
	g := NewWithT(t)
	g.Expect(changes(snapshot{}, sight())).To(Equal([]string{
		"Host host-1: connected, control plane (Machine demo-control-plane-x)", "Host host-2: silent, free",
		"Machine demo-control-plane-x: Running on host-1", "Machine demo-md-0-y: Pending",
		"Endpoint: 127.9.0.1:6443, the address of host-1", "Cluster: available",
	}))
	g.Expect(changes(sight(), sight())).To(BeEmpty())
	after := sight()
	after.hosts[1].connected, after.machines, after.endpoint, after.serves = true, after.machines[1:], "127.9.0.9:6443", ""
	g.Expect(changes(sight(), after)).To(Equal([]string{
		"Host host-2: connected, free", "Machine demo-control-plane-x is gone", "Endpoint: 127.9.0.9:6443",
	}))
}

func screen(columns, rows int) (*Screen, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &Screen{out: out, since: time.Now(), size: func() (int, int) { return columns, rows }}, out
}

// Lines that stay are above the block, which is drawn anew below them.
func TestScreenOfATerminal(t *testing.T) {
	g := NewWithT(t)
	s, out := screen(5, 4)
	s.Show("one", "two and more", "…three", "four")
	g.Expect(out.String()).To(Equal("one\ntwo a\n…thre\n"), "no more than there is room for")
	out.Reset()
	s.Show("one", "two and more", "…three", "four")
	g.Expect(out.String()).To(BeEmpty(), "nothing is new")
	s.Print("stays")
	g.Expect(out.String()).To(Equal("\x1b[3A\x1b[Jstays\none\ntwo a\n…thre\n"))
	out.Reset()
	s.Show()
	g.Expect(out.String()).To(Equal("\x1b[3A\x1b[J"))
}

func TestScreenOfAFile(t *testing.T) {
	g := NewWithT(t)
	s, out := screen(0, 0)
	s.Show("one")
	s.Say("it is %s", "so")
	g.Expect(out.String()).To(MatchRegexp(`^\[   0\.\ds\] it is so\n$`))
}
