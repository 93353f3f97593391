package machine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// observe takes over what became of the host: its addresses and, once it is
// bootstrapped, the providerID.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	if s.machine.Spec.ProviderID == "" && succeeded(s) {
		err := r.patchSpec(ctx, s, "setting providerID", func(m *infrav1.ElementalMachine) {
			m.Spec.ProviderID = plan.ProviderID(s.host)
			allowMove(m)
		})
		if err != nil {
			return err
		}
	}
	r.markProvisioned(s)
	status := &s.machine.Status
	if domain := s.host.Labels[failureDomainLabel(s.infraCluster)]; domain != "" {
		status.FailureDomain = domain
	}
	if len(s.host.Status.Addresses) > 0 {
		status.Addresses = addresses(s.host)
	}
	return nil
}

// markProvisioned tells Cluster API of a providerID. One that is there already
// was written when the host was bootstrapped; after a move or restore it is all
// that tells so, because neither brings status back.
func (r *Reconciler) markProvisioned(s *scope) {
	initialization := &s.machine.Status.Initialization
	if s.machine.Spec.ProviderID == "" || ptr.Deref(initialization.Provisioned, false) {
		return
	}
	initialization.Provisioned = new(true)
	r.Recorder.Eventf(s.machine, nil, corev1.EventTypeNormal, infrav1.ProvisionedReason, "Bootstrap", "%s is bootstrapped", s.machine.Spec.ProviderID)
}

func succeeded(s *scope) bool {
	op := bootstrapOperation(s)
	return op != nil && op.State == infrav1.OperationSucceeded
}

// bootstrapOperation is what the host reported of this machine's bootstrap.
func bootstrapOperation(s *scope) *infrav1.HostOperation {
	if s.host == nil || s.machine.Spec.HostRef == nil {
		return nil
	}
	return s.host.Operation(infrav1.OperationBootstrap, s.machine.Spec.HostRef.ClaimID)
}

// addresses adds the host name, which is the Node's name, to what the host
// reports.
func addresses(host *infrav1.ElementalHost) []clusterv1.MachineAddress {
	name := clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: plan.Hostname(host)}
	out := make([]clusterv1.MachineAddress, 0, len(host.Status.Addresses)+1)
	for _, a := range host.Status.Addresses {
		if a.Type != clusterv1.MachineHostName {
			out = append(out, a)
		}
	}
	return append(out, name)
}
