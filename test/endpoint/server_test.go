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

// silence is how long a host is not heard of before it counts as disconnected.
const silence = 20 * time.Second

// planOf is what the agent API tells a host.
func (w *world) planOf(h *host) protocol.Plan {
	o, ok := find[*infrav1.ElementalHost](w.is, h.name)
	w.Expect(ok).To(BeTrue())
	return plan.For(o, plan.Site{}, w.planned(o))
}

// planned is what the agent API knows of a host's cluster.
func (w *world) planned(o *infrav1.ElementalHost) plan.Cluster {
	if o.Spec.Claim == nil {
		return plan.Cluster{}
	}
	infra, ok := find[*infrav1.ElementalCluster](w.is, o.Spec.Claim.ClusterName)
	if !ok {
		return plan.Cluster{}
	}
	return plan.Cluster{Infra: infra}
}

// receive records a report as the agent API does.
func (w *world) receive(h *host, in protocol.Report) {
	now := metav1.NewTime(w.clock.Now().Truncate(time.Second))
	w.changeHost(h.name, func(o *infrav1.ElementalHost) {
		for _, a := range in.Addresses {
			o.Status.Addresses = addresses(a.Address)
		}
		for _, op := range in.Operations {
			controllertest.SetOperation(&o.Status, infrav1.HostOperation{Type: infrav1.OperationType(op.Type), ID: op.ID, State: infrav1.OperationState(op.State)})
			if op.Type == protocol.OperationReset {
				o.Status.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessClean}
			}
		}
		claim := o.Spec.Claim
		if claim == nil || claim.Phase != infrav1.ClaimBound {
			return
		}
		o.Status.Endpoint = w.recorded(o, in.Endpoint, now)
	})
}

// recorded converts a report as far as it is the host's to tell.
func (w *world) recorded(o *infrav1.ElementalHost, in *protocol.EndpointReport, now metav1.Time) *infrav1.HostEndpoint {
	before := &infrav1.HostEndpoint{}
	if o.Status.Endpoint != nil {
		before = o.Status.Endpoint
	}
	infra := w.planned(o).Infra
	if infra == nil || plan.EndpointType(infra) != infrav1.EndpointTypeHost {
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
	if p := in.Probe; p != nil && p.Endpoint == plan.EndpointAddress(infra) {
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

// result is a probe's.
func result(ok bool) infrav1.ProbeResult {
	if ok {
		return infrav1.ProbeReachable
	}
	return infrav1.ProbeUnreachable
}

// connections records which hosts were heard of.
func (w *world) connections() {
	for _, h := range w.hosts {
		state := infrav1.ConnectionConnected
		if since := w.clock.Since(h.heard); since > silence {
			state = infrav1.ConnectionDisconnected
		}
		o, ok := find[*infrav1.ElementalHost](w.is, h.name)
		w.Expect(ok).To(BeTrue())
		if o.Status.Connection.State == state {
			continue
		}
		w.note("%s is %s", h.name, state)
		w.changeHost(h.name, func(o *infrav1.ElementalHost) {
			o.Status.Connection = &infrav1.HostConnection{State: state, Since: metav1.NewTime(w.clock.Now())}
		})
	}
}
