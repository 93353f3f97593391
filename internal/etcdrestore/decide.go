package etcdrestore

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Facts are what a restore depends on.
type Facts struct {
	Restore *infrav1.ElementalEtcdRestore
	// Cluster is nil if it does not exist or is not one of this provider.
	Cluster *clusterv1.Cluster
	// Hosts are those that are claimed for the Cluster.
	Hosts []*infrav1.ElementalHost
	// Uploaded is what the destination has, if the source is there.
	Uploaded Uploaded
}

// Uploaded is the snapshot at the destination that a restore names.
type Uploaded struct {
	Object   string
	Snapshot infrav1.HostEtcdSnapshot
	// Unusable is why the snapshot can't be used; nil if it can.
	Unusable error
}

// HostName returns the name of the host that etcd is restored on; blank if that is not decided
// yet.
func HostName(restore *infrav1.ElementalEtcdRestore) string {
	switch {
	case restore.Spec.Source.Snapshot != nil:
		return restore.Spec.Source.Snapshot.HostName
	case restore.Spec.Request != nil:
		return restore.Spec.Request.HostName
	default:
		return ""
	}
}

// Host returns the host that etcd is restored on; nil if the Cluster has no such host. A
// snapshot at the destination is restored on the control-plane host that the Cluster has.
func (f Facts) Host() *infrav1.ElementalHost {
	name := HostName(f.Restore)
	i := slices.IndexFunc(f.Hosts, func(h *infrav1.ElementalHost) bool {
		return h.Name == name || name == "" && f.Restore.Spec.Source.Uploaded != nil && isControlPlane(h)
	})
	if i < 0 {
		return nil
	}
	return f.Hosts[i]
}

// snapshot returns the snapshot that etcd is restored from; nil if it is not there.
func (f Facts) snapshot() *infrav1.HostEtcdSnapshot {
	if f.Restore.Spec.Source.Uploaded != nil {
		return &f.Uploaded.Snapshot
	}
	return f.Host().EtcdSnapshot(f.Restore.Spec.Source.Snapshot.ID)
}

// IsPausedFor reports whether the Cluster is paused for a restore.
func IsPausedFor(cluster *clusterv1.Cluster, restore string) bool {
	return ptr.Deref(cluster.Spec.Paused, false) && cluster.Annotations[infrav1.RestoreAnnotation] == restore
}

// Refusal returns why the restore can't begin, and what a person can do; blank if it can.
func Refusal(f Facts) string {
	switch name := f.Restore.Spec.ClusterName; {
	case f.Cluster == nil:
		return fmt.Sprintf("There is no Cluster %s of this provider in the namespace", name)
	case !f.Cluster.DeletionTimestamp.IsZero():
		return fmt.Sprintf("Cluster %s is being deleted", name)
	case f.Cluster.Annotations[infrav1.RestoreAnnotation] != "":
		return fmt.Sprintf("ElementalEtcdRestore %s of the Cluster goes on: wait for its end, or delete it", f.Cluster.Annotations[infrav1.RestoreAnnotation])
	case ptr.Deref(f.Cluster.Spec.Paused, false) || annotations.HasPaused(f.Cluster):
		return fmt.Sprintf("Cluster %s is paused: end the pause, the restore pauses the Cluster itself", name)
	case f.Restore.Spec.Source.Snapshot == nil && f.Restore.Spec.Source.Uploaded == nil:
		return "The source names no snapshot"
	}
	if refusal := refuseHosts(f); refusal != "" {
		return refusal
	}
	return refuseSnapshot(f)
}

// refuseHosts looks at the hosts.
func refuseHosts(f Facts) string {
	host := f.Host()
	switch {
	case host == nil && f.Restore.Spec.Source.Uploaded != nil:
		return fmt.Sprintf("Cluster %s has no control-plane host", f.Restore.Spec.ClusterName)
	case host == nil || !isControlPlane(host):
		return fmt.Sprintf("Host %s does not belong to the control plane of Cluster %s", HostName(f.Restore), f.Restore.Spec.ClusterName)
	}
	for _, other := range f.Hosts {
		if other != host && isControlPlane(other) {
			return fmt.Sprintf("The control plane has another host, %s: this version restores control planes of one host only", other.Name)
		}
	}
	obstacle := obstacle(host)
	if obstacle == "" && f.Restore.Spec.Source.Uploaded != nil && !host.Supports(infrav1.OperationType(protocol.CapabilityEtcdSnapshotFetch)) {
		obstacle = "its agent can't download snapshots: update the agent"
	}
	if obstacle != "" {
		return fmt.Sprintf("Host %s can't restore etcd now: %s", host.Name, obstacle)
	}
	return ""
}

// isControlPlane reports whether the host belongs to the control plane of its cluster.
func isControlPlane(host *infrav1.ElementalHost) bool {
	return host.IsBoundOrHeld() && host.Spec.Claim.Role.IsControlPlane()
}

// obstacle returns why the host can't do it now; blank if it can.
func obstacle(host *infrav1.ElementalHost) string {
	isRunning := func(op infrav1.HostOperation) bool { return op.State == infrav1.OperationRunning }
	switch {
	case host.Spec.Claim.Phase != infrav1.ClaimBound:
		return "it is held"
	case !hoststatus.Admitted(host).IsTrue() || host.Spec.Fence != nil:
		return "it is not approved, or locked, fenced or being deleted"
	case !host.IsBootstrapped():
		return "it is not bootstrapped"
	case !host.IsConnected():
		return "it is not connected"
	case !host.Supports(infrav1.OperationType(protocol.CapabilityEtcdRestore)):
		return "its agent is too old, or its operating system is an image: update the agent"
	case host.InMaintenance():
		return "it is in maintenance"
	case annotations.HasPaused(host):
		return "it is paused"
	case slices.ContainsFunc(host.Status.Operations, isRunning):
		return "an operation runs on it"
	default:
		return ""
	}
}

// isServing reports whether the host says that its own API server is ready. Hosts say so only
// for some types of endpoints; the agent looks again before the restore.
func isServing(host *infrav1.ElementalHost) bool {
	e := host.Status.Endpoint
	return e != nil && e.APIServer != nil && e.APIServer.Result == infrav1.ProbeReachable
}

// refuseSnapshot looks at the snapshot.
func refuseSnapshot(f Facts) string {
	host := f.Host()
	snapshot := f.snapshot()
	switch {
	case f.Restore.Spec.Source.Uploaded != nil && f.Uploaded.Unusable != nil:
		return fmt.Sprintf("The snapshot at the destination can't be used: %v", f.Uploaded.Unusable)
	case snapshot == nil:
		return fmt.Sprintf("Host %s lists no snapshot %s of this cluster that is undamaged: see status.etcdSnapshots of the host",
			host.Name, f.Restore.Spec.Source.Snapshot.ID)
	case isServing(host) && !ptr.Deref(f.Restore.Spec.ReplaceHealthy, false):
		return fmt.Sprintf("The API server of host %s is well: set spec.replaceHealthy if its data is to be replaced all the same", host.Name)
	case isNewerMinor(snapshot.KubernetesVersion, kubelet(host)):
		return fmt.Sprintf("Snapshot %s is of Kubernetes %s, and host %s has %s: an older Kubernetes may not read it", snapshot.ID, snapshot.KubernetesVersion, host.Name, kubelet(host))
	}
	for _, other := range f.Hosts {
		op := other.Operation(infrav1.OperationBootstrap, other.Spec.Claim.ID)
		if other != host && other.IsBootstrapped() && op.FinishedAt.After(snapshot.CompletedAt.Time) {
			return fmt.Sprintf("Host %s became a Node after snapshot %s, which does not have that Node: delete its Machine first, or choose a later snapshot", other.Name, snapshot.ID)
		}
	}
	return ""
}

func kubelet(host *infrav1.ElementalHost) string {
	if host.Status.Inventory == nil || host.Status.Inventory.Kubernetes == nil {
		return ""
	}
	return host.Status.Inventory.Kubernetes.Kubelet.Version
}

// isNewerMinor reports whether a version has a newer minor version than another. An unknown
// version is not newer.
func isNewerMinor(a, b string) bool {
	first, err := version.ParseSemantic(a)
	if err != nil {
		return false
	}
	second, err := version.ParseSemantic(b)
	return err == nil && (first.Major() > second.Major() || first.Major() == second.Major() && first.Minor() > second.Minor())
}

// Plan returns what a restore does that is not refused.
func Plan(f Facts) *infrav1.EtcdRestorePlan {
	host, snapshot := f.Host(), *f.snapshot()
	plan := &infrav1.EtcdRestorePlan{HostName: host.Name, Snapshot: snapshot}
	do := func(format string, args ...any) { plan.Steps = append(plan.Steps, fmt.Sprintf(format, args...)) }
	do("Cluster %s is paused: Cluster API changes nothing meanwhile", f.Cluster.Name)
	if f.Restore.Spec.Source.Uploaded != nil {
		plan.Object = f.Uploaded.Object
		do("Host %s downloads the snapshot from the destination. It gets the key of this one object", host.Name)
	}
	do("The control plane on host %s stands still for some minutes; Pods on all Nodes go on", host.Name)
	do("etcd gets the data of snapshot %s. What was written to the cluster after %s is lost", snapshot.ID, snapshot.CompletedAt.UTC().Format(time.RFC3339))
	do("The former data stays on host %s until the next restore or a reset, and comes back if the control plane is not well", host.Name)
	do("The Cluster goes on")
	if source := f.Restore.Spec.Source.Uploaded; source != nil {
		do("After that, delete Secret %s: its identity opens all snapshots that were encrypted for it", source.IdentityRef.Name)
	}
	return plan
}
