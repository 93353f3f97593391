package facts

import (
	"maps"
	"slices"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// setCertificates sets when the certificates of a control-plane host end. Only names that kubeadm
// writes are stored, each once, so that no host stores more than these.
func setCertificates(host *infrav1.ElementalHost, in protocol.CertificateReport) {
	if !host.IsBoundOrHeld() || !host.Spec.Claim.Role.IsControlPlane() {
		return
	}
	reported := map[string]infrav1.HostCertificate{}
	for i := range in.Certificates {
		c := &in.Certificates[i]
		at := timeOf(&c.NotAfter)
		if slices.Contains(protocol.CertificateNames(), c.Name) && !at.IsZero() {
			reported[c.Name] = infrav1.HostCertificate{Name: c.Name, NotAfter: at}
		}
	}
	host.Status.Certificates = nil
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		host.Status.Certificates = append(host.Status.Certificates, reported[name])
	}
}
