package authority

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// maxNamed bounds the hosts that a message names.
const maxNamed = 10

// untrusting are the approved hosts that have not acknowledged a bundle.
type untrusting struct {
	// all counts the approved hosts, count those without the bundle, away those
	// of them that are not connected.
	all, count, away int
	// named are some of them.
	named []string
}

// hostsWithout counts the hosts that a server would lose whose CA is new in that
// bundle. Those that are silent, locked or fenced are among them.
func (r *Reconciler) hostsWithout(ctx context.Context, bundle string) (*untrusting, error) {
	digest := protocol.TrustDigest(bundle)
	var hosts infrav1.ElementalHostList
	if err := r.Hosts.List(ctx, &hosts, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing hosts: %w", err)
	}
	u := &untrusting{}
	for i := range hosts.Items {
		host := &hosts.Items[i]
		if host.Spec.Approval != infrav1.ApprovalApproved || !host.DeletionTimestamp.IsZero() ||
			host.Spec.Identity == nil || host.Spec.Identity.KeyFingerprint == "" {
			continue
		}
		u.all++
		if host.Status.Agent != nil && host.Status.Agent.TrustDigest == digest {
			continue
		}
		u.count++
		if c := host.Status.Connection; c == nil || c.State != infrav1.ConnectionConnected {
			u.away++
		}
		if len(u.named) < maxNamed {
			u.named = append(u.named, host.Namespace+"/"+host.Name)
		}
	}
	return u, nil
}

// message tells an administrator who decides whether to go on without them.
func (u *untrusting) message() string {
	text := fmt.Sprintf("%d of %d approved hosts have not acknowledged the next CA, %d of them are not connected. "+
		"They would be cut off; set the annotation to %s to accept that. They are: ", u.count, u.all, u.away, StepForce)
	text += strings.Join(u.named, ", ")
	if left := u.count - len(u.named); left > 0 {
		text += fmt.Sprintf(" and %d more", left)
	}
	return text
}
