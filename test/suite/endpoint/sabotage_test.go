package endpoint

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// TestCheckerFindsViolations breaks each of the rules on purpose, as a wrong manager would.
// A checker that finds nothing proves nothing.
func TestCheckerFindsViolations(t *testing.T) {
	for name, test := range map[string]struct {
		sabotage func(*simulation)
		want     string
	}{
		"move from a well endpoint": {
			func(s *simulation) { s.forceMove(s.peers()[0]) },
			"which reports a ready API server",
		},
		"move without evidence, as all other control planes are cut off": {
			func(s *simulation) {
				s.endpointDies()
				for _, h := range s.peers() {
					h.online = false
				}
				s.step(2 * longGrace)
				s.forceMove(s.peers()[0])
			},
			"on no live evidence",
		},
		"move on recorded evidence of hosts that are dead by now": {
			func(s *simulation) {
				s.endpointDies()
				for range 3 {
					s.step(probeInterval)
				}
				to := s.peers()[0]
				for _, h := range s.peers() {
					h.on = false
				}
				s.step(2 * answerAge)
				s.Expect(s.isConnected(to)).To(BeTrue())
				s.forceMove(to)
			},
			"on no live evidence",
		},
		"move on evidence of hosts that don't answer when they are asked": {
			func(s *simulation) {
				s.endpointDies()
				for range 3 {
					s.step(probeInterval)
				}
				for _, h := range s.peers() {
					h.isMute, h.knowsQuestion = true, true
				}
				s.step(2 * confirmationAge)
				s.step(probeInterval)
				s.forceMove(s.peers()[0])
			},
			"that no host has confirmed",
		},
		"move although a host reaches the endpoint": {
			func(s *simulation) {
				from := s.host(s.checker.spec.ControlPlaneEndpointPolicy.HostRef.Name)
				from.online = false
				s.step(2 * longGrace)
				s.step(probeInterval)
				s.forceMove(s.peers()[0])
			},
			"reaches",
		},
		"move before the failover time": {
			func(s *simulation) {
				s.endpointDies()
				s.step(time.Second)
				s.step(time.Second)
				s.forceMove(s.peers()[0])
			},
			"which was unreachable since",
		},
		"move to a host outside the cluster": {
			func(s *simulation) {
				for _, h := range s.hosts {
					if h.node == nil {
						s.forceMove(h)
						return
					}
				}
			},
			"no control plane of the cluster",
		},
		"machine that waits for a free host": {
			func(s *simulation) {
				s.machine(s.clusters["c"], workerMachine, "")
				s.readState()
				s.checkWaiting()
			},
			"waits, although",
		},
		"host in another failure domain": {
			func(s *simulation) {
				o := s.hostOf("c-control-plane-1").DeepCopy()
				m, _ := find[*clusterv1.Machine](s.state, "c-control-plane-1")
				change(s, m.Name, func(m *clusterv1.Machine) { m.Spec.FailureDomain = "elsewhere" })
				s.checker.checkClaim(o)
			},
			"of failure domain elsewhere has host",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var found []string
			s := newSimulation(t, memoryAPIServer(t), 1, func(s *simulation) { s.grace = longGrace })
			s.checker.report = func(what string) { found = append(found, what) }
			s.converge()
			s.Expect(found).To(BeEmpty())
			test.sabotage(s)
			s.Expect(found).To(ContainElement(ContainSubstring(test.want)))
		})
	}
}

// peers returns the control planes of the cluster other than the endpoint's host.
func (s *simulation) peers() []*host {
	var peers []*host
	for _, h := range s.hosts {
		if h.node != nil && h.node.cluster == "c" && h.node.member && h.name != s.checker.spec.ControlPlaneEndpointPolicy.HostRef.Name {
			peers = append(peers, h)
		}
	}
	return peers
}

// isConnected reports whether the manager takes the host for connected.
func (s *simulation) isConnected(h *host) bool {
	o, ok := find[*infrav1.ElementalHost](s.state, h.name)
	s.Expect(ok).To(BeTrue())
	return o.IsConnected()
}

// endpointDies powers off the endpoint's host.
func (s *simulation) endpointDies() {
	s.host(s.checker.spec.ControlPlaneEndpointPolicy.HostRef.Name).on = false
}

// forceMove writes a move of the endpoint as the manager does, whatever the evidence is.
func (s *simulation) forceMove(to *host) {
	s.T.Helper()
	s.manager.refresh()
	o := &infrav1.ElementalCluster{}
	s.Expect(s.manager.client.Get(s.ctx, client.ObjectKey{Namespace: s.Namespace, Name: "c"}, o)).To(Succeed())
	before := o.DeepCopy()
	policy := &o.Spec.ControlPlaneEndpointPolicy
	policy.FormerEndpoints = append([]infrav1.FormerEndpoint{{Host: o.Spec.ControlPlaneEndpoint.Host, Port: port, HostName: policy.HostRef.Name}}, policy.FormerEndpoints...)
	policy.HostRef = &infrav1.EndpointHostReference{Name: to.name, ChosenAt: metav1.NewTime(s.clock.Now())}
	o.Spec.ControlPlaneEndpoint.Host = to.address
	s.Expect(s.manager.client.Patch(s.ctx, o, client.MergeFrom(before))).To(Succeed())
}
