package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Site holds the parts of a plan that do not depend on the host's claim: the server URLs
// of the agent API, its trust bundle, and the pinned agent.
type Site struct {
	// Servers are base URLs of the agent API.
	Servers []string
	// TrustBundle is PEM, with one or more CA certificates.
	TrustBundle string
	// Agent is the agent release that the host's registration pins, or nil.
	Agent *infrav1.AgentRelease
	// Successor is the management cluster that the host follows to, or nil.
	Successor *infrav1.RegistrationSuccessor
	// UnknownRegistration is true if the host's registration does not exist, as during a move.
	UnknownRegistration bool
}

// For returns the host's plan, without ServerTime. cluster is the one that the host is
// claimed for; it may be zero for hosts that no Machine has claimed.
//
// The operation follows from the claim, or from an administrator's request in spec. An
// operation has the ID of its claim or request, never a digest of its content. Spec
// survives a move or restore of the management cluster, so the agent recognizes
// operations that it has finished.
func For(host *infrav1.ElementalHost, site Site, cluster Cluster) protocol.Plan {
	p := protocol.Plan{Desired: protocol.Desired{
		Servers:       site.Servers,
		TrustBundle:   site.TrustBundle,
		Successor:     Successor(site.Successor),
		KeepSuccessor: site.UnknownRegistration,
	}}
	if host.Spec.Approval == infrav1.ApprovalApproved && host.Spec.Lock == nil && !host.IsGone() {
		paused := cluster.Paused || Paused(host)
		p.Operation = operation(host, cluster, paused)
		if host.Spec.Fence == nil && (!paused || isUpdating(host, site)) {
			p.Desired.Agent = desiredAgent(host, site)
		}
		p.Desired.Log = desiredLog(host)
		if host.Spec.Fence == nil && host.IsBoundOrHeld() && host.Spec.Claim.Adoption == nil {
			p.Desired.Hostname = Hostname(host)
			p.Desired.ProviderID = ProviderID(host)
			p.Desired.NodeLabels = nodeLabels(host)
			p.Desired.Endpoint = desiredEndpoint(host, cluster)
			p.Desired.Files, _ = desiredFiles(host, cluster)
			p.Desired.Tunnel = WantsTunnel(host, cluster)
			p.Desired.Bundle = desiredBundle(host)
			if !paused {
				p.Desired.EtcdSnapshot = desiredEtcdSnapshot(host, cluster)
				p.Desired.EtcdSnapshotUpload = desiredEtcdSnapshotUpload(host, cluster)
			}
		}
	}
	p.Revision = revision(p)
	return p
}

// Successor returns a successor as hosts get it; nil for nil.
func Successor(successor *infrav1.RegistrationSuccessor) *protocol.Successor {
	if successor == nil {
		return nil
	}
	out := &protocol.Successor{TrustBundle: successor.TrustBundle}
	for _, url := range successor.URLs {
		out.Servers = append(out.Servers, strings.TrimSuffix(url, "/"))
	}
	return out
}

// ProviderID returns the providerID of the Node that the host becomes. Namespace and
// name survive a move of the management cluster; a UID would not.
func ProviderID(host *infrav1.ElementalHost) string {
	return "elemental://" + host.Namespace + "/" + host.Name
}

// Hostname returns the host name that the agent sets.
func Hostname(host *infrav1.ElementalHost) string {
	if host.Spec.Hostname != "" {
		return host.Spec.Hostname
	}
	return host.Name
}

// operation returns the host's operation, or nil. A finished operation stays in the
// plan: the agent does not repeat it, and reports its result again if the manager lost
// its status. An operation that the agent does not support is left out. While the host
// or its cluster is paused, so is an operation that has not begun. A restore of etcd begins
// while its cluster is paused: it is requested after the Cluster was paused for it.
func operation(host *infrav1.ElementalHost, cluster Cluster, paused bool) *protocol.Operation {
	for _, op := range wantedOperations(host, cluster) {
		kind := infrav1.OperationType(op.Type)
		if paused && host.Operation(kind, op.ID) == nil && !(isOfRestore(host, op.Type) && !Paused(host)) {
			continue
		}
		if host.Supports(needed(op)) && (op.Erase == "" || host.Supports(erase)) {
			return &op
		}
	}
	return nil
}

// Paused reports whether the host itself is paused: no operation begins on it. Cluster.Paused
// says whether its cluster is.
//
// `clusterctl move` replaces all annotations of a host by delete-for-move before it deletes
// the host. A host that has the annotation counts as paused, because an annotation that
// paused it or prevented its reset may be lost.
func Paused(host *infrav1.ElementalHost) bool { return PausedBy(host) != "" }

// PausedBy returns the annotation that pauses the host; blank if none does.
func PausedBy(host *infrav1.ElementalHost) string {
	if annotations.HasPaused(host) {
		return clusterv1.PausedAnnotation
	}
	if _, moved := host.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moved {
		return clusterctlv1.DeleteForMoveAnnotation
	}
	return ""
}

// erase is the capability that a reset with an erasure of data disks needs.
const erase = infrav1.OperationType(protocol.CapabilityErase)

// wantedOperations returns the operations of the host, the most urgent first.
func wantedOperations(host *infrav1.ElementalHost, cluster Cluster) []protocol.Operation {
	claim := host.Spec.Claim
	switch {
	case claim != nil && claim.Phase == infrav1.ClaimReleasing && !ResetPrevented(host):
		op := operationOfClaim(claim, protocol.OperationReset)
		op.Erase = string(claim.Erase)
		return []protocol.Operation{op}
	case host.Spec.Fence != nil:
		return nil
	case claim != nil && claim.Phase == infrav1.ClaimBound:
		bootstrap := operationOfClaim(claim, protocol.OperationBootstrap)
		bootstrap.Adoption = adoption(host)
		is := host.Operation(infrav1.OperationBootstrap, claim.ID)
		standstill := halt(host)
		switch {
		case len(standstill) > 0:
			return standstill
		case is != nil && is.State == infrav1.OperationSucceeded:
			bootstrap.SucceededAt = new(is.FinishedAt.UTC())
			return slices.Concat(etcdRestore(host, cluster), nodeUpgrade(host, cluster), certificateRenewal(host), requestedOperations(host), []protocol.Operation{bootstrap})
		case BootstrapPrevented(host), is == nil && !(canGetFiles(host, cluster) && canServeEndpoint(host, cluster)):
			return requestedOperations(host)
		default:
			return []protocol.Operation{bootstrap}
		}
	default:
		return requestedOperations(host)
	}
}

// BootstrapPrevented reports whether maintenance keeps a bound host from starting its
// bootstrap. A bootstrap that has started continues.
func BootstrapPrevented(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	return host.InMaintenance() && claim != nil && claim.Phase == infrav1.ClaimBound &&
		host.Operation(infrav1.OperationBootstrap, claim.ID) == nil
}

// ResetPrevented reports whether maintenance or the annotation keeps a releasing host
// from starting its reset. A reset that has started continues: there is nothing left to
// preserve.
func ResetPrevented(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	if claim == nil || claim.Phase != infrav1.ClaimReleasing {
		return false
	}
	if op := host.Operation(infrav1.OperationReset, claim.ID); op != nil && op.State == infrav1.OperationRunning {
		return false
	}
	_, annotated := host.Annotations[infrav1.PreventResetAnnotation]
	return annotated || host.InMaintenance()
}

func operationOfClaim(claim *infrav1.HostClaim, kind protocol.OperationType) protocol.Operation {
	return protocol.Operation{Type: kind, ID: claim.ID, ClusterName: claim.ClusterName, MachineName: claim.MachineName}
}

// requestedOperations returns the unfinished operations that administrators and
// remediations requested.
func requestedOperations(host *infrav1.ElementalHost) []protocol.Operation {
	var out []protocol.Operation
	add := func(op protocol.Operation) {
		if is := host.Operation(infrav1.OperationType(op.Type), op.ID); unfinished(is) {
			out = append(out, op)
		}
	}
	if up := host.Spec.OSUpgrade; up != nil && (host.Spec.Claim == nil || host.InMaintenance()) {
		add(protocol.Operation{Type: protocol.OperationUpgrade, ID: up.ID, Image: string(up.Image)})
	}
	if reboot := host.Spec.Reboot; reboot != nil {
		add(protocol.Operation{Type: protocol.OperationReboot, ID: reboot.ID})
	}
	return out
}

// unfinished reports whether an operation has not begun, then it is nil, or is running.
func unfinished(op *infrav1.HostOperation) bool {
	return op == nil || op.State == infrav1.OperationRunning
}

// isUpdating reports whether the agent replaces itself by the pinned release right now.
func isUpdating(host *infrav1.ElementalHost, site Site) bool {
	if site.Agent == nil || host.Status.Agent == nil {
		return false
	}
	update := host.Status.Agent.Update
	return update != nil && update.Version == site.Agent.Version && update.State == infrav1.OperationRunning
}

// desiredAgent returns the agent release that is pinned for the host's architecture, or
// nil.
func desiredAgent(host *infrav1.ElementalHost, site Site) *protocol.AgentRelease {
	if site.Agent == nil || host.Status.Inventory == nil ||
		host.Status.Agent == nil || !slices.Contains(host.Status.Agent.Capabilities, string(protocol.CapabilityUpdate)) {
		return nil
	}
	for _, binary := range site.Agent.Binaries {
		if binary.Architecture == host.Status.Inventory.Architecture {
			return &protocol.AgentRelease{Version: site.Agent.Version, SHA256: binary.SHA256}
		}
	}
	return nil
}

// revision does not depend on whether the operation has succeeded: a host knows that itself. Another
// machine that becomes the host knows no revision.
func revision(p protocol.Plan) string {
	if p.Operation != nil {
		op := *p.Operation
		op.SucceededAt = nil
		p.Operation = &op
	}
	// Marshalling plain structs of strings can't fail.
	raw, _ := json.Marshal(p)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
