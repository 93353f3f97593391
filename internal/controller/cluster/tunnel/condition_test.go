package tunnel

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

type change = func(*infrav1.ElementalHost)

// node returns a bootstrapped host with a tunnel and, if it is of the control plane, an API
// server that is ready.
func node(name string, role infrav1.ClaimRole, changes ...change) *infrav1.ElementalHost {
	h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Name: name}}
	h.Spec.Approval = infrav1.ApprovalApproved
	h.Spec.Claim = &infrav1.HostClaim{ID: name, Phase: infrav1.ClaimBound, Role: role}
	h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{string(protocol.CapabilityTunnel), string(protocol.CapabilityLocalEndpoint)}}
	h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: name, State: infrav1.OperationSucceeded}}
	h.Status.Tunnel = &infrav1.HostTunnel{State: infrav1.ConnectionConnected}
	if role.IsControlPlane() {
		h.Status.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeReachable}}
	}
	for _, change := range changes {
		change(h)
	}
	return h
}

func TestCondition(t *testing.T) {
	controlPlane := func(name string, changes ...change) *infrav1.ElementalHost {
		return node(name, infrav1.RoleControlPlane, changes...)
	}
	worker := func(name string, changes ...change) *infrav1.ElementalHost {
		return node(name, infrav1.RoleWorker, changes...)
	}
	disconnected := func(message string) change {
		return func(h *infrav1.ElementalHost) {
			h.Status.Tunnel = &infrav1.HostTunnel{State: infrav1.ConnectionDisconnected, Message: message}
		}
	}
	without := func(h *infrav1.ElementalHost) { h.Status.Tunnel = nil }
	unready := func(h *infrav1.ElementalHost) { h.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable }
	old := func(h *infrav1.ElementalHost) { h.Status.Agent.Capabilities, h.Status.Tunnel = nil, nil }
	for name, tc := range map[string]struct {
		hosts   []*infrav1.ElementalHost
		kind    infrav1.EndpointType // Tunnel if blank
		ready   bool
		reason  string
		message string
	}{
		"no host": {reason: infrav1.WaitingForControlPlaneReason, message: "The cluster has no control-plane host that is bootstrapped and may be used"},
		"nothing but a worker": {hosts: []*infrav1.ElementalHost{worker("w", without)},
			reason: infrav1.WaitingForControlPlaneReason, message: "The cluster has no control-plane host that is bootstrapped and may be used"},
		"a host that is being bootstrapped": {hosts: []*infrav1.ElementalHost{controlPlane("a", func(h *infrav1.ElementalHost) { h.Status.Operations = nil })},
			reason: infrav1.WaitingForControlPlaneReason, message: "The cluster has no control-plane host that is bootstrapped and may be used"},
		"all": {hosts: []*infrav1.ElementalHost{controlPlane("b"), controlPlane("a"), worker("w")},
			ready: true, reason: infrav1.TunnelReadyReason, message: "Connections go through a, b"},
		"one of several": {hosts: []*infrav1.ElementalHost{
			controlPlane("a", unready), controlPlane("b"), controlPlane("c", disconnected("agent does not answer")), controlPlane("d", old), controlPlane("e", without)},
			ready: true, reason: infrav1.TunnelReadyReason, message: "Connections go through b; not through a (its API server is not ready), " +
				"c (no tunnel: agent does not answer), d (its agent is too old for tunnels), e (no tunnel)"},
		"an API server that was not probed yet": {hosts: []*infrav1.ElementalHost{controlPlane("a", func(h *infrav1.ElementalHost) { h.Status.Endpoint = nil })},
			reason:  infrav1.APIServerRefusesReason,
			message: "No connections to the cluster are possible: a (its API server is not ready)"},
		"no tunnel": {hosts: []*infrav1.ElementalHost{controlPlane("a", disconnected("manager is shutting down")), controlPlane("b", old)},
			reason: infrav1.NoTunnelReason,
			message: "No connections to the cluster are possible: a (no tunnel: manager is shutting down), " +
				"b (its agent is too old for tunnels)"},
		"old agents": {hosts: []*infrav1.ElementalHost{controlPlane("a", old)},
			reason: infrav1.AgentTooOldReason, message: "No connections to the cluster are possible: a (its agent is too old for tunnels)"},
		"workers instead": {hosts: []*infrav1.ElementalHost{controlPlane("a", without), worker("w2"), worker("w1"), worker("w3", without)},
			ready: true, reason: infrav1.TunnelReadyReason,
			message: "Connections go through workers, because no control-plane host has a tunnel: w1, w2; not through a (no tunnel)"},
		"a worker, and an API server that is not ready": {hosts: []*infrav1.ElementalHost{controlPlane("a", unready), worker("w")},
			reason: infrav1.APIServerRefusesReason, message: "No connections to the cluster are possible: a (its API server is not ready)"},
		"an API server that nobody probes": {hosts: []*infrav1.ElementalHost{controlPlane("a", func(h *infrav1.ElementalHost) { h.Status.Endpoint = nil }), worker("w", without)},
			kind: infrav1.EndpointTypeExternal, ready: true, reason: infrav1.TunnelReadyReason, message: "Connections go through a"},
		"an API server that is not ready, as its host says": {hosts: []*infrav1.ElementalHost{controlPlane("a", unready)},
			kind: infrav1.EndpointTypeHost, reason: infrav1.APIServerRefusesReason, message: "No connections to the cluster are possible: a (its API server is not ready)"},
		"hosts that must not be used": {hosts: []*infrav1.ElementalHost{
			controlPlane("a", func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} }),
			controlPlane("b", func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{} }),
			controlPlane("c", func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimHeld }),
			controlPlane("d", func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing }),
			controlPlane("e", func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending })},
			reason: infrav1.WaitingForControlPlaneReason, message: "The cluster has no control-plane host that is bootstrapped and may be used"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.kind == "" {
				tc.kind = infrav1.EndpointTypeTunnel
			}
			hosts := map[string]*infrav1.ElementalHost{}
			for _, h := range tc.hosts {
				hosts[h.Name] = h
			}
			status := metav1.ConditionFalse
			if tc.ready {
				status = metav1.ConditionTrue
			}
			NewWithT(t).Expect(condition(hosts, tc.kind)).To(Equal(metav1.Condition{
				Type: infrav1.TunnelReadyCondition, Status: status, Reason: tc.reason, Message: tc.message,
			}))
		})
	}
}
