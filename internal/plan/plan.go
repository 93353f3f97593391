// Package plan decides what a host is told. It is pure: the same host, site and
// cluster give the same plan, and nothing else in the manager may tell a host
// what to do.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Site is what all hosts are told alike: where the agent API is.
type Site struct {
	// Servers are base URLs of the agent API.
	Servers []string
	// TrustBundle is PEM, one or more roots.
	TrustBundle string
	// Agent is what the host's registration pins, or nil.
	Agent *infrav1.AgentRelease
}

// For returns the host's plan, ServerTime left zero. cluster is the one that the
// host is claimed for; it is looked at for hosts only that are Nodes or about to
// be.
//
// The operation follows from the claim, or from a request in spec. An
// operation's ID is that of the claim or request, never a digest of content: spec
// survives a move or a restore, and the agent then recognises what it has done.
func For(host *infrav1.ElementalHost, site Site, cluster Cluster) protocol.Plan {
	p := protocol.Plan{Desired: protocol.Desired{
		Servers:     site.Servers,
		TrustBundle: site.TrustBundle,
	}}
	if host.Spec.Approval == infrav1.ApprovalApproved && host.Spec.Lock == nil && host.DeletionTimestamp.IsZero() {
		p.Operation = operation(host, cluster)
		if host.Spec.Fence == nil {
			p.Desired.Agent = agent(host, site)
		}
		if host.Spec.Fence == nil && isNode(host) {
			p.Desired.Hostname = Hostname(host)
			p.Desired.ProviderID = ProviderID(host)
			p.Desired.Endpoint = endpointOf(host, cluster)
			p.Desired.Files, _ = filesOf(host, cluster)
		}
	}
	p.Revision = revision(p)
	return p
}

// isNode tells whether the host is a Node or about to be one.
func isNode(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	return claim != nil && (claim.Phase == infrav1.ClaimBound || claim.Phase == infrav1.ClaimHeld)
}

// ProviderID is the providerID of the Node that the host becomes. Namespace and
// name survive a move; a UID would not.
func ProviderID(host *infrav1.ElementalHost) string {
	return "elemental://" + host.Namespace + "/" + host.Name
}

// Hostname is the host name the agent sets.
func Hostname(host *infrav1.ElementalHost) string {
	if host.Spec.Hostname != "" {
		return host.Spec.Hostname
	}
	return host.Name
}

// operation returns what the host is to do. An operation whose final report is
// recorded is still named: the agent knows that it is done, and a manager whose
// status was lost is told again. What an agent did not list it is not sent.
func operation(host *infrav1.ElementalHost, cluster Cluster) *protocol.Operation {
	for _, op := range wanted(host, cluster) {
		if host.Supports(infrav1.OperationType(op.Type)) && (op.Erase == "" || host.Supports(erase)) {
			return &op
		}
	}
	return nil
}

// erase is the capability that a reset with an erasure needs besides.
const erase = infrav1.OperationType(protocol.CapabilityErase)

// wanted returns what is wanted of the host, the most urgent first.
func wanted(host *infrav1.ElementalHost, cluster Cluster) []protocol.Operation {
	claim := host.Spec.Claim
	switch {
	case claim != nil && claim.Phase == infrav1.ClaimReleasing && !ResetPrevented(host):
		op := claimed(claim, protocol.OperationReset)
		op.Erase = string(claim.Erase)
		return []protocol.Operation{op}
	case host.Spec.Fence != nil:
		return nil
	case claim != nil && claim.Phase == infrav1.ClaimBound:
		bootstrap := claimed(claim, protocol.OperationBootstrap)
		is := host.Operation(infrav1.OperationBootstrap, claim.ID)
		switch {
		case is != nil && is.State == infrav1.OperationSucceeded:
			return append(requests(host), bootstrap)
		case BootstrapPrevented(host), is == nil && !equipped(host, cluster):
			return requests(host)
		default:
			return []protocol.Operation{bootstrap}
		}
	default:
		return requests(host)
	}
}

// BootstrapPrevented tells whether a bound host is kept from beginning its
// bootstrap for now. One that has begun goes on: half a Node helps nobody.
func BootstrapPrevented(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	return host.Spec.Maintenance != nil && claim != nil && claim.Phase == infrav1.ClaimBound &&
		host.Operation(infrav1.OperationBootstrap, claim.ID) == nil
}

// ResetPrevented tells whether a releasing host is kept from being reset for
// now. A reset that has begun goes on: what it was to preserve is gone.
func ResetPrevented(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	if claim == nil || claim.Phase != infrav1.ClaimReleasing {
		return false
	}
	if op := host.Operation(infrav1.OperationReset, claim.ID); op != nil && op.State == infrav1.OperationRunning {
		return false
	}
	_, annotated := host.Annotations[infrav1.PreventResetAnnotation]
	return annotated || host.Spec.Maintenance != nil
}

func claimed(claim *infrav1.HostClaim, kind protocol.OperationType) protocol.Operation {
	return protocol.Operation{Type: kind, ID: claim.ID, ClusterName: claim.ClusterName, MachineName: claim.MachineName}
}

// requests returns what people and remediations asked for and is not done.
func requests(host *infrav1.ElementalHost) []protocol.Operation {
	var out []protocol.Operation
	add := func(op protocol.Operation) {
		is := host.Operation(infrav1.OperationType(op.Type), op.ID)
		if is == nil || is.State == infrav1.OperationRunning {
			out = append(out, op)
		}
	}
	if up := host.Spec.OSUpgrade; up != nil && (host.Spec.Claim == nil || host.Spec.Maintenance != nil) {
		add(protocol.Operation{Type: protocol.OperationUpgrade, ID: up.ID, Image: up.Image})
	}
	if reboot := host.Spec.Reboot; reboot != nil {
		add(protocol.Operation{Type: protocol.OperationReboot, ID: reboot.ID})
	}
	return out
}

// agent returns the agent that the host is to run, if one is pinned for its
// architecture.
func agent(host *infrav1.ElementalHost, site Site) *protocol.AgentRelease {
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

func revision(p protocol.Plan) string {
	// Marshalling plain structs of strings can't fail.
	raw, _ := json.Marshal(p)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
