package authority

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// maxNamed bounds the host names in a message.
const maxNamed = 10

// unacknowledged counts the approved hosts that have not acknowledged a bundle.
type unacknowledged struct {
	// approved hosts; missing the bundle; disconnected among these.
	approved, missing, disconnected int
	// named are some of the missing.
	named []string
}

// hostsWithout counts the hosts that could not connect to a server whose CA is new in the
// bundle. Disconnected, locked and fenced hosts are included.
func (r *Reconciler) hostsWithout(ctx context.Context, bundle string) (*unacknowledged, error) {
	digest := protocol.TrustDigest(bundle)
	var hosts infrav1.ElementalHostList
	if err := r.Hosts.List(ctx, &hosts, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing hosts: %w", err)
	}
	u := &unacknowledged{}
	for i := range hosts.Items {
		host := &hosts.Items[i]
		if host.Spec.Approval != infrav1.ApprovalApproved || !host.DeletionTimestamp.IsZero() || host.IsHandedOver() ||
			host.Spec.Identity == nil || host.Spec.Identity.KeyFingerprint == "" {
			continue
		}
		u.approved++
		if host.Status.Agent != nil && host.Status.Agent.TrustDigest == digest {
			continue
		}
		u.missing++
		if c := host.Status.Connection; c == nil || c.State != infrav1.ConnectionConnected {
			u.disconnected++
		}
		if len(u.named) < maxNamed {
			u.named = append(u.named, host.Namespace+"/"+host.Name)
		}
	}
	return u, nil
}

// message explains to an administrator which hosts a switch would disconnect.
func (u *unacknowledged) message() string {
	text := fmt.Sprintf("%d of %d approved hosts have not acknowledged the next CA, %d of them are not connected. "+
		"They would be cut off; set the annotation to %s to accept that. They are: ", u.missing, u.approved, u.disconnected, StepForce)
	text += strings.Join(u.named, ", ")
	if left := u.missing - len(u.named); left > 0 {
		text += fmt.Sprintf(" and %d more", left)
	}
	return text
}
