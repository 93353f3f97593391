package etcdrestore

import (
	"fmt"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// Plan returns what a restore does that is not refused.
func Plan(f Facts) *infrav1.EtcdRestorePlan {
	host, source := f.Host(), f.Restore.Spec.Source
	plan := &infrav1.EtcdRestorePlan{HostName: host.Name}
	do := func(format string, args ...any) { plan.Steps = append(plan.Steps, fmt.Sprintf(format, args...)) }
	do("Cluster %s is paused: Cluster API changes nothing meanwhile", f.Cluster.Name)
	on, off := f.halted()
	if len(on) > 0 {
		do("The control planes on %s are halted: they would go on with the former data", on)
	}
	if len(off) > 0 {
		do("Fenced, and off as somebody has said: %s. They must not start before the restore has ended", off)
	}
	if f.isRebuild() {
		do("Host %s sets up its control plane again, which must be lost there: it gets the files of its bootstrap data once more, with the keys of the certificate authorities", host.Name)
	}
	if source.Uploaded != nil {
		plan.Object = f.Uploaded.Object
		do("Host %s downloads the snapshot from the destination. It gets the key of this one object", host.Name)
	}
	do("The control plane on host %s stands still for some minutes; Pods on all Nodes go on", host.Name)
	if source.Survivor != nil {
		do("etcd goes on with the data of host %s as its only member. What only the lost members had is lost: at most the last writes before they stopped", host.Name)
	} else {
		plan.Snapshot = *f.snapshot()
		do("etcd gets the data of snapshot %s. What was written to the cluster after %s is lost", plan.Snapshot.ID, plan.Snapshot.CompletedAt.UTC().Format(time.RFC3339))
	}
	do("Nodes of Machines that were deleted since are deleted again, once they are not Ready")
	do("The former data stays on host %s until the next restore or a reset, and comes back if the control plane is not well", host.Name)
	if later := f.LaterNodes(); len(later) > 0 {
		do("The hosts %s became Nodes after the snapshot, which does not have these Nodes: they are rebooted, and register again. Their Pods are lost with the data",
			names(later, func(h *infrav1.ElementalHost) string { return h.Name }))
	}
	if others := f.Others(); len(others) > 0 {
		do("The Machines %s are deleted, without draining their Nodes: their hosts are reset", names(others, func(h *infrav1.ElementalHost) string { return h.Spec.Claim.MachineName }))
		do("The Cluster goes on: its control plane replaces these Machines one by one, and an endpoint that was the address of one of their hosts moves to host %s", host.Name)
	} else {
		do("The Cluster goes on")
	}
	if source.Uploaded != nil {
		do("After that, delete Secret %s: its identity opens all snapshots that were encrypted for it", source.Uploaded.IdentityRef.Name)
	}
	return plan
}

// halted returns the names of the hosts that are halted, and of those that are off.
func (f Facts) halted() (on, off string) {
	var halted, fenced []*infrav1.ElementalHost
	for _, host := range f.Others() {
		if IsOff(host) {
			fenced = append(fenced, host)
		} else {
			halted = append(halted, host)
		}
	}
	name := func(h *infrav1.ElementalHost) string { return h.Name }
	return names(halted, name), names(fenced, name)
}

// names joins names of the hosts.
func names(hosts []*infrav1.ElementalHost, nameOf func(*infrav1.ElementalHost) string) string {
	var all []string
	for _, host := range hosts {
		all = append(all, nameOf(host))
	}
	return failover.JoinFirst(all, ", ")
}
