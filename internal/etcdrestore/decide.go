package etcdrestore

import (
	"fmt"
	"slices"

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
	// CantRebuild is why the control plane can't be set up again, if the restore asks for that;
	// nil if it can.
	CantRebuild error
}

// Uploaded is the snapshot at the destination that a restore names.
type Uploaded struct {
	Object   string
	Snapshot infrav1.HostEtcdSnapshot
	// Unusable is why the snapshot can't be used; nil if it can.
	Unusable error
}

// Reason says why the snapshot can't be used; blank if it can.
func (u Uploaded) Reason() string {
	if u.Unusable == nil {
		return ""
	}
	return fmt.Sprintf("The snapshot at the destination can't be used: %v", u.Unusable)
}

// HostName returns the name of the host that etcd is restored on; blank if that is not decided
// yet.
func HostName(restore *infrav1.ElementalEtcdRestore) string {
	source := restore.Spec.Source
	switch {
	case source.Snapshot != nil:
		return source.Snapshot.HostName
	case source.Survivor != nil:
		return source.Survivor.HostName
	case restore.Spec.Request != nil:
		return restore.Spec.Request.HostName
	case source.Uploaded != nil:
		return source.Uploaded.RestoreOn
	default:
		return ""
	}
}

// Host returns the host that etcd is restored on; nil if the Cluster has no such host, or has
// several and none is named.
func (f Facts) Host() *infrav1.ElementalHost {
	var found []*infrav1.ElementalHost
	for _, host := range f.Hosts {
		if name := HostName(f.Restore); host.Name == name || name == "" && isControlPlane(host) {
			found = append(found, host)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
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

// IsConfirmedFor reports whether a person has confirmed the restore, it has not ended, and it is the
// one that the host was asked for.
func IsConfirmedFor(restore *infrav1.ElementalEtcdRestore, host *infrav1.ElementalHost) bool {
	asked, spec := host.Spec.EtcdRestore, restore.Spec
	return asked != nil && host.Spec.Claim != nil && spec.Confirm == host.Spec.Claim.ClusterName &&
		spec.Request != nil && spec.Request.ID == asked.ID && spec.Request.HostName == host.Name && spec.Request.Result == ""
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
	case f.Restore.Spec.Source == (infrav1.EtcdRestoreSource{}):
		return "The source names no data"
	}
	for _, refuse := range []func(Facts) string{refuseHost, refuseOthers, refuseHealthy, refuseSnapshot} {
		if refusal := refuse(f); refusal != "" {
			return refusal
		}
	}
	return ""
}

// refuseHost looks at the host that etcd is restored on.
func refuseHost(f Facts) string {
	host := f.Host()
	switch {
	case host == nil && HostName(f.Restore) == "" && slices.ContainsFunc(f.Hosts, isControlPlane):
		return fmt.Sprintf("Cluster %s has several control-plane hosts: name one of them as restoreOn, in another ElementalEtcdRestore", f.Restore.Spec.ClusterName)
	case host == nil && HostName(f.Restore) == "":
		return fmt.Sprintf("Cluster %s has no control-plane host", f.Restore.Spec.ClusterName)
	case host == nil || !isControlPlane(host):
		return fmt.Sprintf("Host %s does not belong to the control plane of Cluster %s", HostName(f.Restore), f.Restore.Spec.ClusterName)
	}
	obstacle := obstacle(host)
	switch source := f.Restore.Spec.Source; {
	case obstacle != "":
	case source.Uploaded != nil && !host.Supports(infrav1.OperationType(protocol.CapabilityEtcdSnapshotFetch)):
		obstacle = "its agent can't download snapshots: update the agent"
	case f.isRebuild() && !host.Supports(infrav1.OperationType(protocol.CapabilityControlPlaneRebuild)):
		obstacle = "its agent can't set up the control plane again: update the agent"
	case f.isRebuild() && isServing(host):
		obstacle = "its API server is well, so it has not lost its control plane: leave spec.rebuildControlPlane out"
	case f.isRebuild() && f.CantRebuild != nil:
		obstacle = fmt.Sprintf("its control plane can't be set up again: %v", f.CantRebuild)
	case source.Survivor != nil && !host.Supports(infrav1.OperationType(protocol.CapabilityEtcdRestoreOwnData)):
		obstacle = "its agent can't go on with the data of its own member: update the agent"
	}
	if obstacle != "" {
		return fmt.Sprintf("Host %s can't restore etcd now: %s", host.Name, obstacle)
	}
	return ""
}

// isRebuild reports whether the host is to set up its control plane again.
func (f Facts) isRebuild() bool { return ptr.Deref(f.Restore.Spec.RebuildControlPlane, false) }

// isControlPlane reports whether the host belongs to the control plane of its cluster.
func isControlPlane(host *infrav1.ElementalHost) bool {
	return host.IsBoundOrHeld() && host.Spec.Claim.Role.IsControlPlane()
}

// obstacle returns why the host can't do it now; blank if it can.
func obstacle(host *infrav1.ElementalHost) string {
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
	case hasRunning(host):
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

// refuseHealthy refuses to replace the data of an etcd that is well, unless a person permits it.
func refuseHealthy(f Facts) string {
	if ptr.Deref(f.Restore.Spec.ReplaceHealthy, false) {
		return ""
	}
	for _, host := range append(f.Others(), f.Host()) {
		if isServing(host) && host.IsConnected() {
			return fmt.Sprintf("The API server of host %s is well: set spec.replaceHealthy if its data is to be replaced all the same", host.Name)
		}
	}
	return ""
}

// refuseSnapshot looks at the snapshot.
func refuseSnapshot(f Facts) string {
	if f.Restore.Spec.Source.Survivor != nil {
		return ""
	}
	host := f.Host()
	snapshot := f.snapshot()
	switch {
	case f.Restore.Spec.Source.Uploaded != nil && f.Uploaded.Unusable != nil:
		return f.Uploaded.Reason()
	case snapshot == nil:
		return fmt.Sprintf("Host %s lists no snapshot %s of this cluster that is undamaged: see status.etcdSnapshots of the host",
			host.Name, f.Restore.Spec.Source.Snapshot.ID)
	case isNewerMinor(snapshot.KubernetesVersion, kubelet(host)):
		return fmt.Sprintf("Snapshot %s is of Kubernetes %s, and host %s has %s: an older Kubernetes may not read it", snapshot.ID, snapshot.KubernetesVersion, host.Name, kubelet(host))
	}
	return refuseLaterNodes(f, snapshot)
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
