package cluster

import (
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// EndpointHosts returns the handler of hosts that endpoints depend on.
func (r *Reconciler) EndpointHosts() handler.EventHandler { return r.endpointWatches().Hosts() }

// EndpointMachines returns the handler of Machines that endpoints depend on.
func (r *Reconciler) EndpointMachines() handler.EventHandler { return r.endpointWatches().Machines() }

// FailureDomainHosts returns the handler of hosts that failure domains depend on.
func (r *Reconciler) FailureDomainHosts() handler.EventHandler {
	return r.failureDomainWatches().Hosts()
}

// FailureDomainMachines returns the handler of Machines that failure domains depend on.
func (r *Reconciler) FailureDomainMachines() handler.EventHandler {
	return r.failureDomainWatches().Machines()
}
