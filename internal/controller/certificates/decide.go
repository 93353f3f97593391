package certificates

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

const (
	// retryAfter is how long after a request the next one follows at the earliest.
	retryAfter = 24 * time.Hour

	timeFormat = "2006-01-02T15:04:05Z"
)

// facts are what is known of a cluster.
type facts struct {
	infra *infrav1.ElementalCluster
	// hosts are its control-plane hosts, except for one that is only reserved.
	hosts []*infrav1.ElementalHost
	// machine is that of the host that single returns; nil if it does not exist.
	machine *clusterv1.Machine
	now     time.Time
}

// decision is what follows from facts.
type decision struct {
	// condition is CertificatesValid; nil to remove it.
	condition *metav1.Condition
	// renew is the host to request a renewal of; nil for none.
	renew *infrav1.ElementalHost
	// at is when to look again if nothing changes; zero: no special time.
	at time.Time
}

// decide is pure.
func decide(f facts) decision {
	if d, isDue := renewal(f); isDue {
		return d
	}
	d := decision{at: nextRenewal(f)}
	known := !f.infra.Status.KubeconfigNotAfter.IsZero()
	for _, host := range f.hosts {
		c := meta.FindStatusCondition(host.Status.Conditions, infrav1.CertificatesValidCondition)
		if c == nil {
			continue
		}
		known = true
		if c.Status == metav1.ConditionFalse {
			d.condition = no(c.Reason, "Host %s: %s", host.Name, c.Message)
			return d
		}
	}
	if !known {
		return d
	}
	if end := f.infra.Status.KubeconfigNotAfter; !end.IsZero() {
		warning := end.Add(-hoststatus.ExpiryWarning)
		if !warning.After(f.now) {
			d.condition = no(infrav1.KubeconfigExpiringReason, "The certificate in the kubeconfig of the cluster ends at %s", end.UTC().Format(timeFormat))
			return d
		}
		d.at = earlier(d.at, warning)
	}
	d.condition = &metav1.Condition{Type: infrav1.CertificatesValidCondition, Status: metav1.ConditionTrue, Reason: infrav1.CertificatesValidReason}
	return d
}

// renewal returns the decision for a control plane of one host whose certificates end soon, and
// false for any other.
func renewal(f facts) (_ decision, isDue bool) {
	host := single(f)
	if host == nil {
		return decision{}, false
	}
	end := hoststatus.CertificatesEnd(host)
	request, last := host.Spec.CertificateRenewal, operation(host)
	isOpen := request != nil && (last == nil || last.State == infrav1.OperationRunning)
	if !isOpen && (end.IsZero() || nextRenewal(f).After(f.now)) {
		return decision{}, false
	}
	ends := end.UTC().Format(timeFormat)
	if obstacle := obstacle(f, host); obstacle != "" && (last == nil || last.State != infrav1.OperationRunning) {
		return decision{condition: no(infrav1.CertificateRenewalWaitingReason,
			"Host %s has a certificate that ends at %s. It renews its certificates when this is over: %s", host.Name, ends, obstacle)}, true
	}
	renewing := no(infrav1.CertificatesRenewingReason, "Host %s renews its certificates, of which the first one ends at %s", host.Name, ends)
	if isOpen {
		return decision{condition: renewing}, true
	}
	if request == nil || !request.RequestedAt.Add(retryAfter).After(f.now) {
		return decision{condition: renewing, renew: host}, true
	}
	again := request.RequestedAt.Add(retryAfter)
	found := "It has renewed them, and a certificate still ends at " + ends
	if last.State != infrav1.OperationSucceeded {
		found = cut(fmt.Sprintf("Step %s: %s", last.Step, last.Message))
	}
	return decision{at: again, condition: no(infrav1.CertificateRenewalFailedReason,
		"Host %s could not renew its certificates, and tries again at %s. %s", host.Name, again.UTC().Format(timeFormat), found)}, true
}

// single returns the host of a control plane of one host whose certificates the provider renews;
// nil without one.
func single(f facts) *infrav1.ElementalHost {
	if len(f.hosts) != 1 || f.infra.Spec.Certificates.Renewal == infrav1.CertificateRenewalOff ||
		f.hosts[0].Spec.Claim.Phase != infrav1.ClaimBound {
		return nil
	}
	return f.hosts[0]
}

// nextRenewal returns when the certificates of a control plane of one host are due for a renewal;
// zero if never.
func nextRenewal(f facts) time.Time {
	host := single(f)
	if host == nil {
		return time.Time{}
	}
	end := hoststatus.CertificatesEnd(host)
	if end.IsZero() {
		return time.Time{}
	}
	return end.Add(-f.infra.Spec.Certificates.RenewBefore())
}

// obstacle returns what keeps the host from renewing its certificates now; blank for nothing.
func obstacle(f facts, host *infrav1.ElementalHost) string {
	switch {
	case !hoststatus.Admitted(host).IsTrue():
		return "the host is fenced, locked or not approved"
	case plan.Paused(host):
		return "the host is paused"
	case host.InMaintenance():
		return "the host is in maintenance"
	case !host.IsBootstrapped():
		return "its bootstrap"
	case f.machine == nil:
		return "its Machine does not exist"
	case !f.machine.DeletionTimestamp.IsZero():
		return "its Machine is being deleted"
	case inplace.IsMarked(f.machine.Annotations), isUnfinished(host, infrav1.OperationNodeUpgrade, nodeUpgradeID(host)):
		return "an upgrade, which renews certificates too"
	case host.Spec.EtcdRestore != nil && isUnfinished(host, infrav1.OperationEtcdRestore, host.Spec.EtcdRestore.ID):
		return "a restore of etcd"
	case !host.Supports(infrav1.OperationCertificateRenewal):
		return "its agent is too old to renew certificates"
	case !host.IsConnected():
		return "its agent is not connected"
	default:
		return ""
	}
}

func nodeUpgradeID(host *infrav1.ElementalHost) string {
	if up := inplace.Request(host); up != nil {
		return up.ID
	}
	return ""
}

// isUnfinished reports whether a request of the host has not ended.
func isUnfinished(host *infrav1.ElementalHost, kind infrav1.OperationType, id string) bool {
	op := host.Operation(kind, id)
	return id != "" && (op == nil || op.State == infrav1.OperationRunning)
}

// operation returns what the host has reported of its request; nil for nothing.
func operation(host *infrav1.ElementalHost) *infrav1.HostOperation {
	if request := host.Spec.CertificateRenewal; request != nil {
		return host.Operation(infrav1.OperationCertificateRenewal, request.ID)
	}
	return nil
}

// controlPlane returns the hosts that have, or are about to have, a control plane.
func controlPlane(hosts []*infrav1.ElementalHost) []*infrav1.ElementalHost {
	return slices.DeleteFunc(slices.Clone(hosts), func(h *infrav1.ElementalHost) bool {
		claim := h.Spec.Claim
		return claim == nil || !claim.Role.IsControlPlane() || claim.Phase == infrav1.ClaimReserved
	})
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func no(reason, format string, args ...any) *metav1.Condition {
	return &metav1.Condition{
		Type: infrav1.CertificatesValidCondition, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...),
	}
}

// maxCause bounds what a host says in the condition of its cluster, in bytes.
const maxCause = 512

func cut(text string) string {
	if len(text) <= maxCause {
		return text
	}
	return strings.ToValidUTF8(text[:maxCause], "") + "…"
}
