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
}

// Host returns the host that etcd is restored on; nil if the Cluster has no such host.
func (f Facts) Host() *infrav1.ElementalHost {
	if f.Restore.Spec.Source.Snapshot == nil {
		return nil
	}
	i := slices.IndexFunc(f.Hosts, func(h *infrav1.ElementalHost) bool { return h.Name == f.Restore.Spec.Source.Snapshot.HostName })
	if i < 0 {
		return nil
	}
	return f.Hosts[i]
}

// IsPausedFor reports whether the Cluster is paused for a restore.
func IsPausedFor(cluster *clusterv1.Cluster, restore string) bool {
	return ptr.Deref(cluster.Spec.Paused, false) && cluster.Annotations[infrav1.RestoreAnnotation] == restore
}

// Refusal returns why the restore can't begin, and what a person can do; blank if it can.
func Refusal(f Facts) string {
	source := f.Restore.Spec.Source.Snapshot
	switch name := f.Restore.Spec.ClusterName; {
	case f.Cluster == nil:
		return fmt.Sprintf("There is no Cluster %s of this provider in the namespace", name)
	case !f.Cluster.DeletionTimestamp.IsZero():
		return fmt.Sprintf("Cluster %s is being deleted", name)
	case f.Cluster.Annotations[infrav1.RestoreAnnotation] != "":
		return fmt.Sprintf("ElementalEtcdRestore %s of the Cluster goes on: wait for its end, or delete it", f.Cluster.Annotations[infrav1.RestoreAnnotation])
	case ptr.Deref(f.Cluster.Spec.Paused, false) || annotations.HasPaused(f.Cluster):
		return fmt.Sprintf("Cluster %s is paused: end the pause, the restore pauses the Cluster itself", name)
	case source == nil:
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
	if host == nil || !isControlPlane(host) {
		return fmt.Sprintf("Host %s does not belong to the control plane of Cluster %s", f.Restore.Spec.Source.Snapshot.HostName, f.Restore.Spec.ClusterName)
	}
	for _, other := range f.Hosts {
		if other != host && isControlPlane(other) {
			return fmt.Sprintf("The control plane has another host, %s: this version restores control planes of one host only", other.Name)
		}
	}
	if obstacle := obstacle(host); obstacle != "" {
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
	host, id := f.Host(), f.Restore.Spec.Source.Snapshot.ID
	snapshot := host.EtcdSnapshot(id)
	switch {
	case snapshot == nil:
		return fmt.Sprintf("Host %s lists no snapshot %s of this cluster that is undamaged: see status.etcdSnapshots of the host", host.Name, id)
	case isServing(host) && !ptr.Deref(f.Restore.Spec.ReplaceHealthy, false):
		return fmt.Sprintf("The API server of host %s is well: set spec.replaceHealthy if its data is to be replaced all the same", host.Name)
	case isNewerMinor(snapshot.KubernetesVersion, kubelet(host)):
		return fmt.Sprintf("Snapshot %s is of Kubernetes %s, and host %s has %s: an older Kubernetes may not read it", id, snapshot.KubernetesVersion, host.Name, kubelet(host))
	}
	for _, other := range f.Hosts {
		op := other.Operation(infrav1.OperationBootstrap, other.Spec.Claim.ID)
		if other != host && other.IsBootstrapped() && op.FinishedAt.After(snapshot.CompletedAt.Time) {
			return fmt.Sprintf("Host %s became a Node after snapshot %s, which does not have that Node: delete its Machine first, or choose a later snapshot", other.Name, id)
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
	host := f.Host()
	snapshot := *host.EtcdSnapshot(f.Restore.Spec.Source.Snapshot.ID)
	return &infrav1.EtcdRestorePlan{
		HostName: host.Name, Snapshot: snapshot,
		Steps: []string{
			fmt.Sprintf("Cluster %s is paused: Cluster API changes nothing meanwhile", f.Cluster.Name),
			fmt.Sprintf("The control plane on host %s stands still for some minutes; Pods on all Nodes go on", host.Name),
			fmt.Sprintf("etcd gets the data of snapshot %s. What was written to the cluster after %s is lost", snapshot.ID,
				snapshot.CompletedAt.UTC().Format(time.RFC3339)),
			fmt.Sprintf("The former data stays on host %s until the next restore or a reset, and comes back if the control plane is not well", host.Name),
			"The Cluster goes on",
		},
	}
}
