package change

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Replace plans to have the machine of a free host become another host, whose own machine is gone.
// The former host of the machine is deleted. If that fails, Replace plans the deletion alone.
func Replace(s Situation, spare *infrav1.ElementalHost) (*Plan, error) {
	host := s.Host
	if err := checkDead(host); err != nil {
		return nil, err
	}
	if err := checkSpare(host, spare); err != nil {
		return nil, err
	}
	key := spare.Spec.Identity.KeyFingerprint
	p := patchHost(host, fmt.Sprintf("replace its machine by that of host %s", spare.Name), func(h *infrav1.ElementalHost) {
		h.Spec.Identity = &infrav1.HostIdentity{Match: &infrav1.IdentityMatch{KeyFingerprint: key}, Generation: generation(h)}
	})
	declare, remove := p.write, Delete("ElementalHost", spare, "", "").write
	p.write = func(ctx context.Context, c client.Client, dryRun bool) error {
		if err := declare(ctx, c, dryRun); err != nil {
			return err
		}
		if err := remove(ctx, c, dryRun); err != nil {
			return fmt.Errorf("deleting ElementalHost %s, whose machine is to become %s (repeat the command): %w", spare.Name, host.Name, err)
		}
		return nil
	}
	p.IsDestructive = true
	p.Effects = append(p.Effects,
		fmt.Sprintf("ElementalHost %s is deleted. Its machine, with the key %s, enrols as %s", spare.Name, key, host.Name),
		"The former machine must not start again before its disks are wiped: it would go on with what it has. The manager does not know it any more")
	p.Effects = append(p.Effects, s.replacedEffects()...)
	return p, nil
}

// checkDead refuses a host whose machine is not gone, or that no machine may become.
func checkDead(host *infrav1.ElementalHost) error {
	if err := checkDeletion(host); err != nil {
		return err
	}
	switch {
	case host.IsConnected():
		return refuse(host, "it is connected, so its machine is not gone", "Turn the machine off, or use another host")
	case host.Spec.Lock != nil:
		return refuse(host, "it is locked, because two machines used its key", "Remove the lock first: see docs/security.md")
	case host.Spec.Fence != nil:
		return refuse(host, "it is fenced, so its Machine is deleted", "To have another machine in its place, remove the fence first")
	case host.Spec.Approval != infrav1.ApprovalApproved:
		return refuse(host, "it is not approved", "Approve or delete it")
	}
	return nil
}

// checkSpare refuses a host whose machine may not become another host.
func checkSpare(host, spare *infrav1.ElementalHost) error {
	if err := checkDeletion(spare); err != nil {
		return err
	}
	available := meta.FindStatusCondition(spare.Status.Conditions, infrav1.AvailableCondition)
	switch {
	case spare.Name == host.Name:
		return refuse(spare, "it can't replace itself", "Name another host by --by")
	case spare.Spec.Claim != nil:
		return refuse(spare, fmt.Sprintf("Cluster %s uses it", spare.Spec.Claim.ClusterName), "Name a free host by --by")
	case spare.Spec.Identity == nil || spare.Spec.Identity.KeyFingerprint == "":
		return refuse(spare, "no machine has enrolled as this host", "Name another host by --by")
	case available == nil || available.Status != "True":
		reason := "its state is unknown"
		if available != nil {
			reason = fmt.Sprintf("it is not available: %s", available.Reason)
		}
		return refuse(spare, reason, fmt.Sprintf("kubectl elemental explain host %s -n %s says why", spare.Name, spare.Namespace))
	}
	return nil
}

func generation(host *infrav1.ElementalHost) int64 {
	if host.Spec.Identity == nil {
		return 0
	}
	return host.Spec.Identity.Generation
}

// replacedEffects says what a host with a Machine has and lacks on another machine.
func (s *Situation) replacedEffects() []string {
	claim := s.Host.Spec.Claim
	switch {
	case claim == nil || claim.MachineName == "":
		return nil
	case !s.Host.IsBootstrapped():
		return []string{fmt.Sprintf("The other machine is bootstrapped for Machine %s of Cluster %s", claim.MachineName, claim.ClusterName)}
	}
	kept := fmt.Sprintf("Machine %s of Cluster %s, the Node and the host name stay, but nothing of Kubernetes is on the other machine", claim.MachineName, claim.ClusterName)
	switch {
	case !s.isControlPlane():
		return []string{kept, fmt.Sprintf("Delete the Machine afterwards, which sets up the Node anew: kubectl -n %s delete machine %s", s.Host.Namespace, claim.MachineName)}
	case s.Serving > 0:
		return []string{kept, fmt.Sprintf("Another control-plane host serves: delete the Machine instead, which is replaced: kubectl -n %s delete machine %s",
			s.Host.Namespace, claim.MachineName)}
	default:
		return []string{kept, "Restore etcd afterwards, with rebuildControlPlane: see docs/backups.md"}
	}
}
