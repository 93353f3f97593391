package plan

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// certificateRenewal returns the requested renewal of certificates, if it is unfinished. None
// begins in maintenance.
func certificateRenewal(host *infrav1.ElementalHost) []protocol.Operation {
	want, claim := host.Spec.CertificateRenewal, host.Spec.Claim
	if want == nil || !claim.Role.IsControlPlane() {
		return nil
	}
	is := host.Operation(infrav1.OperationCertificateRenewal, want.ID)
	if !unfinished(is) || is == nil && host.InMaintenance() {
		return nil
	}
	return []protocol.Operation{{
		Type: protocol.OperationCertificateRenewal, ID: want.ID, ClusterName: claim.ClusterName, MachineName: claim.MachineName,
	}}
}
