package plan_test

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// throughTunnels returns a cluster of type Tunnel with two API servers on other hosts.
func throughTunnels(changes ...func(*plan.Cluster)) plan.Cluster {
	c := onHost("", func(spec *infrav1.ElementalClusterSpec) {
		spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "c-endpoint", Port: 16443}
		spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeTunnel}
	})
	c.Backends = []string{"10.0.0.8:6443", "10.0.0.9:6443"}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func fallback(c *plan.Cluster) { c.Fallback = true }
func access(c *plan.Cluster)   { c.Infra.Spec.Access = &infrav1.Access{} }
func external(c *plan.Cluster) {
	c.Infra.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeExternal
}
func fence(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} }

// tunneling returns a node whose agent can open a tunnel and serve the endpoint.
func tunneling(role infrav1.ClaimRole, changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	return node(role, append([]func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) {
		capable(h, "Bootstrap", "Reset", "Endpoint", "Files", "Tunnel", "LocalEndpoint")
	}}, changes...)...)
}

func TestPlanAsksForATunnel(t *testing.T) {
	const controlPlane, initial, worker = infrav1.RoleControlPlane, infrav1.RoleInitialControlPlane, infrav1.RoleWorker
	for name, tc := range map[string]struct {
		host    *infrav1.ElementalHost
		cluster plan.Cluster
		want    bool
	}{
		"control plane":              {tunneling(controlPlane), throughTunnels(), true},
		"initial control plane":      {tunneling(initial), throughTunnels(), true},
		"held":                       {tunneling(controlPlane, phase(infrav1.ClaimHeld)), throughTunnels(), true},
		"paused":                     {tunneling(controlPlane), throughTunnels(func(c *plan.Cluster) { c.Paused = true }), true},
		"worker":                     {tunneling(worker), throughTunnels(), false},
		"worker that is needed":      {tunneling(worker), throughTunnels(fallback), true},
		"not bootstrapped":           {tunneling(controlPlane, fresh), throughTunnels(), false},
		"bootstrap of another claim": {tunneling(controlPlane, func(h *infrav1.ElementalHost) { h.Spec.Claim.ID = "id-2" }), throughTunnels(), false},
		"releasing":                  {tunneling(controlPlane, phase(infrav1.ClaimReleasing)), throughTunnels(), false},
		"reserved":                   {tunneling(controlPlane, phase(infrav1.ClaimReserved)), throughTunnels(), false},
		"free":                       {tunneling(controlPlane, func(h *infrav1.ElementalHost) { h.Spec.Claim = nil }), throughTunnels(), false},
		"fenced":                     {tunneling(controlPlane, fence), throughTunnels(), false},
		"locked":                     {tunneling(controlPlane, func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{} }), throughTunnels(), false},
		"pending":                    {tunneling(controlPlane, func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending }), throughTunnels(), false},
		"rejected":                   {tunneling(controlPlane, func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected }), throughTunnels(), false},
		"being deleted":              {deleted(tunneling(controlPlane)), throughTunnels(), false},
		"an agent that can't":        {node(controlPlane), throughTunnels(), false},
		"for users":                  {tunneling(controlPlane), throughTunnels(external, access), true},
		"for users, worker":          {tunneling(worker), throughTunnels(external, access), false},
		"for nobody":                 {tunneling(controlPlane), throughTunnels(external), false},
		"endpoint on a host":         {tunneling(controlPlane), onHost("h1"), false},
		"virtual IP address":         {tunneling(controlPlane), onVIP(infrav1.DistributionKubeadm, fallback), false},
		"unknown cluster":            {tunneling(controlPlane), plan.Cluster{Fallback: true}, false},
		"other infrastructure":       {tunneling(controlPlane), plan.Cluster{Infra: &infrav1.ElementalCluster{}, Fallback: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := plan.For(tc.host, site, tc.cluster)
			g.Expect(p.Desired.Tunnel).To(Equal(tc.want))
			g.Expect(plan.WantsTunnel(tc.host, tc.cluster)).To(Equal(tc.want), "who reads only this gets the same answer")
		})
	}
}

func TestLocalEndpoint(t *testing.T) {
	const controlPlane, worker = infrav1.RoleControlPlane, infrav1.RoleWorker
	local := func(probe bool) *protocol.Endpoint {
		return &protocol.Endpoint{
			Host: "c-endpoint", Port: 16443, Probe: probe, Local: &protocol.LocalEndpoint{Backends: []string{"10.0.0.8:6443", "10.0.0.9:6443"}},
		}
	}
	for name, tc := range map[string]struct {
		host *infrav1.ElementalHost
		want *protocol.Endpoint
	}{
		"control plane":                      {tunneling(controlPlane), local(true)},
		"worker":                             {tunneling(worker), local(false)},
		"control plane before its bootstrap": {tunneling(controlPlane, fresh), local(false)},
		"worker before its bootstrap":        {tunneling(worker, fresh), local(false)},
		"held":                               {tunneling(worker, phase(infrav1.ClaimHeld)), local(false)},
		"releasing: the reset removes it":    {tunneling(worker, phase(infrav1.ClaimReleasing)), nil},
		"fenced":                             {tunneling(worker, fence), nil},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(plan.For(tc.host, site, throughTunnels()).Desired.Endpoint).To(Equal(tc.want))
		})
	}
	t.Run("a host's list of API servers is part of the revision", func(t *testing.T) {
		g := NewWithT(t)
		with := plan.For(tunneling(worker), site, throughTunnels())
		without := plan.For(tunneling(worker), site, throughTunnels(func(c *plan.Cluster) { c.Backends = c.Backends[:1] }))
		g.Expect(with.Revision).NotTo(Equal(without.Revision))
	})
}

// A bootstrap uses the endpoint, so it waits for what the host needs to serve it.
func TestBootstrapWaitsForTheEndpoint(t *testing.T) {
	for name, tc := range map[string]struct {
		host    *infrav1.ElementalHost
		cluster plan.Cluster
		want    protocol.OperationType
	}{
		"able":                 {tunneling(infrav1.RoleWorker, fresh), throughTunnels(), bootstrap},
		"an agent that can't":  {node(infrav1.RoleWorker, fresh), throughTunnels(), ""},
		"no name yet":          {tunneling(infrav1.RoleWorker, fresh), throughTunnels(func(c *plan.Cluster) { c.Infra.Spec.ControlPlaneEndpoint.Host = "" }), ""},
		"other types need not": {node(infrav1.RoleWorker, fresh), onHost("h2"), bootstrap},
		"begun already":        {node(infrav1.RoleWorker, is("Bootstrap", infrav1.OperationRunning, "id-1")), throughTunnels(), bootstrap},
	} {
		t.Run(name, func(t *testing.T) {
			var got protocol.OperationType
			if op := plan.For(tc.host, site, tc.cluster).Operation; op != nil {
				got = op.Type
			}
			NewWithT(t).Expect(got).To(Equal(tc.want))
		})
	}
}
