package endpoint

import (
	"slices"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// disconnectedAfter is the time without contact after which a host is disconnected.
	disconnectedAfter = 20 * time.Second
	// longGrace is the same by the manager's default. Until then only questions tell whether
	// a host is alive.
	longGrace = 3 * time.Minute
)

// planOf returns a host's plan, as the agent API does.
func (s *simulation) planOf(h *host) protocol.Plan {
	o, ok := find[*infrav1.ElementalHost](s.state, h.name)
	s.Expect(ok).To(BeTrue())
	return plan.For(o, plan.Site{}, s.planCluster(o))
}

// planCluster returns the part of a host's cluster that plans depend on.
func (s *simulation) planCluster(o *infrav1.ElementalHost) plan.Cluster {
	if o.Spec.Claim == nil {
		return plan.Cluster{}
	}
	infra, ok := find[*infrav1.ElementalCluster](s.state, o.Spec.Claim.ClusterName)
	if !ok {
		return plan.Cluster{}
	}
	return plan.Cluster{Infra: infra}
}

// receive records a report as the agent API does.
func (s *simulation) receive(h *host, in protocol.Report) {
	now := metav1.NewTime(s.clock.Now().Truncate(time.Second))
	s.changeHost(h.name, func(o *infrav1.ElementalHost) {
		for _, a := range in.Addresses {
			o.Status.Addresses = addresses(a.Address)
		}
		for _, op := range in.Operations {
			if o.Spec.Claim == nil || op.ID != o.Spec.Claim.ID {
				continue // no plan has it any more
			}
			controllertest.SetOperation(&o.Status, infrav1.HostOperation{Type: infrav1.OperationType(op.Type), ID: op.ID, State: infrav1.OperationState(op.State)})
			if op.Type == protocol.OperationReset {
				o.Status.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessClean}
			}
		}
		if !o.IsBoundOrHeld() {
			return
		}
		o.Status.Endpoint = s.convertEndpoint(o, in.Endpoint, now)
		s.manager.contacts.EvidenceWritten(s.manager.contacts.key(h), nil, false)
	})
}

// convertEndpoint converts the parts of a report that the host may report.
func (s *simulation) convertEndpoint(o *infrav1.ElementalHost, in *protocol.EndpointReport, now metav1.Time) *infrav1.HostEndpoint {
	before := &infrav1.HostEndpoint{}
	if o.Status.Endpoint != nil {
		before = o.Status.Endpoint
	}
	infra := s.planCluster(o).Infra
	if infra == nil || infra.EndpointType() != infrav1.EndpointTypeHost {
		return nil
	}
	ref := infra.Spec.ControlPlaneEndpointPolicy.HostRef
	since := func(seconds int32, is, was infrav1.ProbeResult, at metav1.Time) metav1.Time {
		t := metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second))
		if is == was || t.Before(&at) {
			return at
		}
		return t
	}
	out := &infrav1.HostEndpoint{Kubeconfigs: in.Kubeconfigs, Rejects: in.Rejects}
	if ref.Name == o.Name {
		out.Workload = in.Workload
	}
	if !o.Spec.Claim.Role.IsControlPlane() {
		return out
	}
	if p := in.Probe; p != nil && p.Endpoint == infra.Spec.ControlPlaneEndpoint.HostPort() {
		was := infrav1.EndpointProbe{Since: ref.ChosenAt}
		if before.Probe != nil && before.Probe.Endpoint == p.Endpoint {
			was = *before.Probe
		}
		out.Probe = &infrav1.EndpointProbe{Endpoint: p.Endpoint, Result: result(p.Reachable)}
		out.Probe.Since = since(p.ForSeconds, out.Probe.Result, was.Result, was.Since)
	}
	if a := in.APIServer; a != nil {
		was := infrav1.HostAPIServer{}
		if before.APIServer != nil {
			was = *before.APIServer
		}
		out.APIServer = &infrav1.HostAPIServer{Result: result(a.Ready), CertificateNames: slices.Clone(a.CertificateNames)}
		out.APIServer.Since = since(a.ForSeconds, out.APIServer.Result, was.Result, was.Since)
	}
	return out
}

// result returns the ProbeResult for a reachable endpoint or API server.
func result(ok bool) infrav1.ProbeResult {
	if ok {
		return infrav1.ProbeReachable
	}
	return infrav1.ProbeUnreachable
}

// updateConnections sets the connection state of all hosts from their last contact.
func (s *simulation) updateConnections() {
	for _, h := range s.hosts {
		state := infrav1.ConnectionConnected
		if since := s.clock.Since(h.lastContact); since > s.grace {
			state = infrav1.ConnectionDisconnected
		}
		o, ok := find[*infrav1.ElementalHost](s.state, h.name)
		s.Expect(ok).To(BeTrue())
		if o.Status.Connection.State == state {
			continue
		}
		s.record("%s is %s", h.name, state)
		s.manager.contacts.Recorded(s.manager.contacts.key(h), state == infrav1.ConnectionConnected)
		s.changeHost(h.name, func(o *infrav1.ElementalHost) {
			o.Status.Connection = &infrav1.HostConnection{State: state, Since: metav1.NewTime(s.clock.Now())}
		})
	}
}
