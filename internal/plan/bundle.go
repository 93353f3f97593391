package plan

import (
	"slices"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// BundleNamed returns the bundle with that SHA-256 which the plan names, as the one to keep
// unpacked or as that of an upgrade, or nil.
func BundleNamed(p protocol.Plan, sha256 string) *protocol.Bundle {
	candidates := []*protocol.Bundle{p.Desired.Bundle}
	if p.Operation != nil && p.Operation.NodeUpgrade != nil && p.Operation.NodeUpgrade.OSImage == "" {
		candidates = append(candidates, &p.Operation.NodeUpgrade.Bundle)
	}
	i := slices.IndexFunc(candidates, func(b *protocol.Bundle) bool { return b != nil && b.SHA256 == sha256 })
	if i < 0 {
		return nil
	}
	return candidates[i]
}

// desiredBundle returns the bundle that the host keeps unpacked, or nil.
func desiredBundle(host *infrav1.ElementalHost) *protocol.Bundle {
	if host.Spec.Bundle == nil || !host.Supports(infrav1.OperationType(protocol.CapabilityBundle)) {
		return nil
	}
	b := bundleOf(*host.Spec.Bundle)
	return &b
}

func bundleOf(in infrav1.HostBundle) protocol.Bundle {
	return protocol.Bundle{
		Version: in.Version, SHA256: in.SHA256, SizeBytes: in.SizeBytes, Sources: in.Sources,
		Replace: in.Programs == infrav1.ProgramsReplace,
	}
}

// needed returns the capability that the host needs for the operation.
func needed(op protocol.Operation) infrav1.OperationType {
	if op.Adoption != nil {
		return infrav1.OperationType(protocol.CapabilityAdopt)
	}
	if op.NodeUpgrade != nil && op.NodeUpgrade.OSImage != "" {
		return infrav1.OperationType(protocol.CapabilityNodeImage)
	}
	if op.EtcdRestore != nil && op.EtcdRestore.Rebuild {
		return infrav1.OperationType(protocol.CapabilityControlPlaneRebuild)
	}
	if op.EtcdRestore != nil && op.EtcdRestore.Uploaded {
		return infrav1.OperationType(protocol.CapabilityEtcdSnapshotFetch)
	}
	if op.EtcdRestore != nil && op.EtcdRestore.OwnData {
		return infrav1.OperationType(protocol.CapabilityEtcdRestoreOwnData)
	}
	if op.Type == protocol.OperationControlPlaneStart {
		return infrav1.OperationType(protocol.CapabilityControlPlaneHalt)
	}
	return infrav1.OperationType(op.Type)
}

// nodeUpgrade returns the requested upgrade of a Node in place, if it is unfinished. None
// begins in maintenance.
func nodeUpgrade(host *infrav1.ElementalHost, cluster Cluster) []protocol.Operation {
	up := host.Spec.NodeUpgrade
	if up == nil {
		return nil
	}
	is := host.Operation(infrav1.OperationNodeUpgrade, up.ID)
	if !unfinished(is) || is == nil && host.InMaintenance() {
		return nil
	}
	out := protocol.NodeUpgrade{
		Role: protocol.UpgradeRole(up.Role), Bundle: bundleOf(up.Bundle), OSImage: string(up.OSImage),
		IgnorePreflightErrors: up.IgnorePreflightErrors, PatchesDirectory: up.PatchesDirectory, Redirect: redirect(host, cluster),
	}
	if up.DrainTimeoutSeconds != nil {
		out.DrainTimeoutSeconds = *up.DrainTimeoutSeconds
	}
	return []protocol.Operation{{Type: protocol.OperationNodeUpgrade, ID: up.ID, NodeUpgrade: &out}}
}
