// Package plan decides what a host is told. It is pure: the same host and site
// give the same plan, and nothing else in the manager may tell a host what to do.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Site is what all hosts are told alike: where the agent API is.
type Site struct {
	// Servers are base URLs of the agent API.
	Servers []string
	// TrustBundle is PEM, one or more roots.
	TrustBundle string
}

// For returns the host's plan, ServerTime left zero.
//
// The operation follows from the claim alone. An operation's ID is the claim's,
// never a digest of content: spec survives a move or a restore, and the agent
// then recognises what it has done.
func For(host *infrav1.ElementalHost, site Site) protocol.Plan {
	p := protocol.Plan{Desired: protocol.Desired{
		Servers:     site.Servers,
		TrustBundle: site.TrustBundle,
	}}
	if host.Spec.Approval == infrav1.ApprovalApproved && host.DeletionTimestamp.IsZero() {
		p.Operation = operation(host)
		if claim := host.Spec.Claim; claim != nil && claim.Phase == infrav1.ClaimBound {
			p.Desired.Hostname = Hostname(host)
			p.Desired.ProviderID = ProviderID(host)
		}
	}
	p.Revision = revision(p)
	return p
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
// status was lost is told again.
func operation(host *infrav1.ElementalHost) *protocol.Operation {
	claim := host.Spec.Claim
	if claim == nil {
		return nil
	}
	op := &protocol.Operation{ID: claim.ID, ClusterName: claim.ClusterName, MachineName: claim.MachineName}
	switch claim.Phase {
	case infrav1.ClaimBound:
		op.Type = protocol.OperationBootstrap
	case infrav1.ClaimReleasing:
		op.Type = protocol.OperationReset
	default:
		return nil
	}
	// What an agent did not list it is not sent.
	if !host.Supports(infrav1.OperationType(op.Type)) {
		return nil
	}
	return op
}

func revision(p protocol.Plan) string {
	// Marshalling plain structs of strings can't fail.
	raw, _ := json.Marshal(p)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
