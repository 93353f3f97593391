package machine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// observe copies the host's addresses and failure domain to the machine and, once
// the host is bootstrapped, sets the providerID.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	if s.machine.Spec.ProviderID == "" && bootstrapSucceeded(s) {
		if err := finishAdoption(ctx, r.Client, r.Recorder, s); err != nil {
			return err
		}
		err := r.patchSpec(ctx, s, "setting providerID", func(m *infrav1.ElementalMachine) {
			m.Spec.ProviderID = plan.ProviderID(s.host)
			unblockMove(m)
		})
		if err != nil {
			return err
		}
	}
	r.markProvisioned(s)
	status := &s.machine.Status
	if domain := s.host.Labels[placement.FailureDomainLabel(s.infraCluster)]; domain != "" {
		status.FailureDomain = domain
	}
	if len(s.host.Status.Addresses) > 0 {
		status.Addresses = addresses(s.host)
	}
	return nil
}

// markProvisioned sets status.initialization.provisioned if the machine has a
// providerID. After a move or restore, which do not bring status back, the providerID
// is the only record that the host was bootstrapped.
func (r *Reconciler) markProvisioned(s *scope) {
	initialization := &s.machine.Status.Initialization
	if s.machine.Spec.ProviderID == "" || ptr.Deref(initialization.Provisioned, false) {
		return
	}
	initialization.Provisioned = new(true)
	r.Recorder.Eventf(s.machine, nil, corev1.EventTypeNormal, infrav1.ProvisionedReason, "Bootstrap", "%s is bootstrapped", s.machine.Spec.ProviderID)
}

func bootstrapSucceeded(s *scope) bool {
	op := bootstrapOperation(s)
	return op != nil && op.State == infrav1.OperationSucceeded
}

// bootstrapOperation returns the host's report on the bootstrap for this machine, or
// nil.
func bootstrapOperation(s *scope) *infrav1.HostOperation {
	if s.host == nil || s.machine.Spec.HostRef == nil {
		return nil
	}
	return s.host.Operation(infrav1.OperationBootstrap, s.machine.Spec.HostRef.ClaimID)
}

// addresses returns the addresses that the host reported, and the host name, which is
// the Node's name.
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
