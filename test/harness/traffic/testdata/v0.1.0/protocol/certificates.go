package protocol

import (
	"slices"
	"time"
)

// CertificateReport says when certificates of the control plane on the host end. It is always
// complete; an empty one means that the host has none.
type CertificateReport struct {
	// Certificates are at most one for each of CertificateNames.
	Certificates []CertificateFacts `json:"certificates,omitempty"`
}

// CertificateFacts is the end of the certificate in one file.
type CertificateFacts struct {
	// Name is one of CertificateNames.
	Name     string    `json:"name"`
	NotAfter time.Time `json:"notAfter"`
}

// CertificateNames are the files that kubeadm writes on a control-plane host, relative to
// /etc/kubernetes: first those that `kubeadm certs renew` renews, then the authorities.
func CertificateNames() []string { return slices.Concat(leaves(), authorities()) }

func leaves() []string {
	return []string{
		"admin.conf", "controller-manager.conf", "scheduler.conf", "super-admin.conf",
		"pki/apiserver.crt", "pki/apiserver-etcd-client.crt", "pki/apiserver-kubelet-client.crt", "pki/front-proxy-client.crt",
		"pki/etcd/healthcheck-client.crt", "pki/etcd/peer.crt", "pki/etcd/server.crt",
	}
}

func authorities() []string {
	return []string{"pki/ca.crt", "pki/etcd/ca.crt", "pki/front-proxy-ca.crt"}
}

// IsAuthority reports whether the certificate of a name is that of a certificate authority, which
// nothing renews.
func IsAuthority(name string) bool { return slices.Contains(authorities(), name) }

// RenewalOutcome says what a CertificateRenewal that failed has left behind. It is how
// OperationReport.Message begins; the rest of the message is for people.
type RenewalOutcome string

// Outcomes of CertificateRenewals that failed.
const (
	// RenewalChangedNothing: the renewal ended before it changed anything.
	RenewalChangedNothing RenewalOutcome = "nothing was changed"
	// RenewalRolledBack: the control plane has its former certificates again.
	RenewalRolledBack RenewalOutcome = "rolled back"
	// RenewalLeftBroken: the way back failed too. A person has to look at the host.
	RenewalLeftBroken RenewalOutcome = "not serving"
)

// Message returns the message of a CertificateRenewal with this outcome.
func (o RenewalOutcome) Message(text string) string { return string(o) + ": " + text }
