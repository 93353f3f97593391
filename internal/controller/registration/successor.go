package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// countPeriod is how often the hosts that have reached the successor are counted. Watching
	// hosts would reconcile the registration with each report of each host.
	countPeriod = 10 * time.Second
	// maxNamed bounds the hosts that the condition names, and maxCause the bytes of a cause.
	maxNamed = 5
	maxCause = 200
)

// followers are the hosts of a registration that has a successor.
type followers struct {
	// isSame is true if the successor is this management cluster.
	isSame bool
	// hosts, and how many of them have reached the successor.
	hosts, reached int
	// missing describes the first of the others.
	missing []string
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch

// countFollowers counts the hosts that have reached the successor.
func (r *Reconciler) countFollowers(ctx context.Context, s *scope) error {
	if s.registration.Spec.Successor == nil {
		return nil
	}
	s.followers = &followers{}
	successor := enrolment.Successor(s.registration, r.URL)
	if successor == nil {
		s.followers.isSame = true
		return nil
	}
	digest := plan.Successor(successor).Digest()
	var hosts infrav1.ElementalHostList
	if err := r.Client.List(ctx, &hosts, client.InNamespace(s.registration.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing hosts: %w", err)
	}
	slices.SortFunc(hosts.Items, func(a, b infrav1.ElementalHost) int { return strings.Compare(a.Name, b.Name) })
	for i := range hosts.Items {
		host := &hosts.Items[i]
		if ref := host.Spec.RegistrationRef; ref == nil || ref.Name != s.registration.Name || host.IsGone() {
			continue
		}
		if host.IsHandedOver() {
			granted := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Name: host.Spec.GrantedTo.Name}}
			key := client.ObjectKey{Namespace: host.Spec.GrantedTo.Namespace, Name: host.Spec.GrantedTo.Name}
			if err := r.Client.Get(ctx, key, granted, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("getting granted host %s: %w", key, err)
			}
			host = granted
		}
		s.followers.add(host, digest)
	}
	return nil
}

func (f *followers) add(host *infrav1.ElementalHost, digest string) {
	f.hosts++
	knows := host.Status.Successor != nil && host.Status.Successor.Digest == digest
	if knows && host.Status.Successor.Reached != nil && *host.Status.Successor.Reached {
		f.reached++
		return
	}
	if len(f.missing) == maxNamed {
		return
	}
	cause := "has not tried yet"
	switch {
	case host.Status.Connection == nil || host.Status.Connection.State != infrav1.ConnectionConnected:
		cause = "is not connected"
	case !host.Supports(infrav1.OperationType(protocol.CapabilityFollow)):
		cause = "its agent is too old; set spec.agent"
	case knows:
		cause = strings.ToValidUTF8(host.Status.Successor.Message[:min(len(host.Status.Successor.Message), maxCause)], "")
	}
	f.missing = append(f.missing, host.Name+" ("+cause+")")
}

// successorReached returns the condition SuccessorReached. It does not count for Ready, because
// hosts can enrol all the same.
func successorReached(f *followers) metav1.Condition {
	c := metav1.Condition{Type: infrav1.SuccessorReachedCondition, Status: metav1.ConditionTrue, Reason: infrav1.HostsReachedReason}
	switch {
	case f.isSame:
		c.Reason = infrav1.SameManagementClusterReason
		c.Message = "The successor is this management cluster; remove spec.successor"
		return c
	case f.reached < f.hosts:
		c.Status, c.Reason = metav1.ConditionFalse, infrav1.HostsNotReachedReason
	}
	c.Message = fmt.Sprintf("%d of %d hosts know the successor and have reached it", f.reached, f.hosts)
	if len(f.missing) > 0 {
		c.Message += "; not: " + strings.Join(f.missing, ", ")
	}
	if others := f.hosts - f.reached - len(f.missing); others > 0 {
		c.Message += fmt.Sprintf(" and %d more", others)
	}
	return c
}

// removeUnused removes the conditions of settings that the registration does not have.
func removeUnused(status *infrav1.ElementalRegistrationStatus, spec *infrav1.ElementalRegistrationSpec) {
	if spec.Agent == nil {
		meta.RemoveStatusCondition(&status.Conditions, infrav1.AgentBinariesReadyCondition)
	}
	if spec.Successor == nil {
		meta.RemoveStatusCondition(&status.Conditions, infrav1.SuccessorReachedCondition)
	}
}
