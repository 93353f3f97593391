package grant

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

// setStatus sets the numbers of the grant and its condition.
func setStatus(s *scope, now time.Time) {
	var granted, inUse, returning, missing int32
	for _, p := range s.pairs {
		if p.phase() == "" {
			continue
		}
		granted++
		if p.inUse() {
			inUse++
		}
		switch {
		case p.isLost():
			missing++
		case p.isReturning() || !p.keep:
			returning++
		}
	}
	s.grant.Status.Granted, s.grant.Status.InUse, s.grant.Status.Returning = &granted, &inUse, &returning
	c := metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse}
	switch {
	case s.refused != "":
		c.Reason, c.Message = infrav1.GrantNamespaceUnusableReason, s.refused
	case missing > 0:
		c.Reason = infrav1.GrantHostsMissingReason
		c.Message = fmt.Sprintf("%d granted hosts do not exist in namespace %s. If they are not about to be restored or moved here, "+
			"remove spec.grantedTo from the hosts of this namespace", missing, s.grant.Spec.Namespace)
	case returning > 0:
		c.Reason = infrav1.GrantReturningReason
		c.Message = fmt.Sprintf("%d hosts go back when they are free: scale down or delete their Machines in namespace %s", returning, s.grant.Spec.Namespace)
	case int(granted) < count(s.grant):
		c.Reason = infrav1.GrantWaitingReason
		c.Message = fmt.Sprintf("%d of %d hosts are granted. No other host of this namespace matches and is available: "+
			"enrol hosts, label them, or lower spec.count", granted, count(s.grant))
	default:
		c.Status, c.Reason = metav1.ConditionTrue, infrav1.GrantFulfilledReason
	}
	reconcile.SetConditions(&s.grant.Status.Conditions, s.grant.Generation, now, c)
}
