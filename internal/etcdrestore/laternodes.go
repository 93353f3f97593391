package etcdrestore

import (
	"cmp"
	"fmt"
	"slices"

	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// LaterNodes returns the hosts that became Nodes after the snapshot and keep their Machines, sorted by
// name. The snapshot does not have these Nodes, and a kubelet registers its Node only when it starts.
func (f Facts) LaterNodes() []*infrav1.ElementalHost {
	if f.Restore.Spec.Source.Survivor != nil {
		return nil
	}
	snapshot := f.snapshot()
	if snapshot == nil {
		return nil
	}
	replaced, host := f.Others(), f.Host()
	var later []*infrav1.ElementalHost
	for _, other := range f.Hosts {
		op := other.Operation(infrav1.OperationBootstrap, other.Spec.Claim.ID)
		if other.Name != host.Name && other.Spec.Claim.Phase == infrav1.ClaimBound && other.IsBootstrapped() && op.FinishedAt.After(snapshot.CompletedAt.Time) &&
			!slices.Contains(replaced, other) {
			later = append(later, other)
		}
	}
	slices.SortFunc(later, func(a, b *infrav1.ElementalHost) int { return cmp.Compare(a.Name, b.Name) })
	return later
}

// refuseLaterNodes looks at the hosts that have to be rebooted. One that is away reboots when it is back.
func refuseLaterNodes(f Facts, snapshot *infrav1.HostEtcdSnapshot) string {
	later := f.LaterNodes()
	if len(later) > infrav1.MaxEtcdRestoreLaterNodes {
		return fmt.Sprintf("%d hosts became Nodes after snapshot %s, and at most %d can be registered again: choose a later snapshot",
			len(later), snapshot.ID, infrav1.MaxEtcdRestoreLaterNodes)
	}
	for _, host := range later {
		var obstacle string
		switch {
		case !host.Supports(infrav1.OperationReboot):
			obstacle = "its agent can't do that"
		case annotations.HasPaused(host):
			obstacle = "it is paused"
		}
		if obstacle != "" {
			return fmt.Sprintf("Host %s became a Node after snapshot %s, which does not have that Node, and must be rebooted to register again: %s. Delete its Machine first, or choose a later snapshot",
				host.Name, snapshot.ID, obstacle)
		}
	}
	return ""
}
