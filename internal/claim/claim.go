// Package claim makes all transitions of an ElementalHost's spec.claim:
//
//	free -> Reserved -> Bound -> Releasing -> free
//	free ------------->       -> Held -> Releasing
//	        Reserved -----------------------> free
//
// An administrator makes Releasing of Held; nothing here does.
//
// Each is a compare-and-swap on the host's resourceVersion, so that of several
// managers, workers or stale caches at most one wins. The loser gets a conflict
// (apierrors.IsConflict) or ErrTaken and chooses again. Every transition may be
// repeated: one that was already made is a success without a write.
//
// A released host carries Cluster API's block-move annotation until it is free,
// so that `clusterctl move` waits for it. A held host does not: it stays as it is
// for as long as somebody wants it to, here or there.
package claim

import (
	"context"
	"errors"
	"fmt"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// ErrTaken means that the host is somebody else's.
var ErrTaken = errors.New("host is claimed by another")

// Reserve keeps a free host for the first control-plane machine of a cluster.
func Reserve(ctx context.Context, c client.Client, host *infrav1.ElementalHost, clusterName string) error {
	if is := host.Spec.Claim; is != nil {
		if is.ClusterName == clusterName && is.Phase == infrav1.ClaimReserved {
			return nil
		}
		return fmt.Errorf("reserving host %s: %w", host.Name, ErrTaken)
	}
	return write(ctx, c, host, "reserving", func() {
		host.Spec.Claim = &infrav1.HostClaim{ClusterName: clusterName, Phase: infrav1.ClaimReserved}
	})
}

// Unreserve gives a reserved host back. It fails with ErrTaken once a machine
// has it.
func Unreserve(ctx context.Context, c client.Client, host *infrav1.ElementalHost, clusterName string) error {
	is := host.Spec.Claim
	if is == nil || is.ClusterName != clusterName {
		return nil
	}
	if is.Phase != infrav1.ClaimReserved {
		return fmt.Errorf("giving back the reservation of host %s: %w", host.Name, ErrTaken)
	}
	return write(ctx, c, host, "giving back the reservation of", func() { host.Spec.Claim = nil })
}

// Bind gives a free host, or one reserved for the machine's cluster, to the
// machine that to names; its phase is set here. Whether the machine may use the
// reservation is the caller's to know.
func Bind(ctx context.Context, c client.Client, host *infrav1.ElementalHost, to infrav1.HostClaim) error {
	if is := host.Spec.Claim; is != nil {
		if is.Phase == infrav1.ClaimBound && is.ID == to.ID {
			return nil
		}
		if is.Phase != infrav1.ClaimReserved || is.ClusterName != to.ClusterName {
			return fmt.Errorf("claiming host %s: %w", host.Name, ErrTaken)
		}
	}
	to.Phase = infrav1.ClaimBound
	return write(ctx, c, host, "claiming", func() { host.Spec.Claim = &to })
}

// Hold keeps a machine's host as it is when the machine goes, with all that runs
// on it. erase is recorded for the reset that an administrator may allow.
func Hold(ctx context.Context, c client.Client, host *infrav1.ElementalHost, id string, erase infrav1.EraseMethod) error {
	is := host.Spec.Claim
	if is == nil || is.ID != id {
		return fmt.Errorf("holding host %s: %w", host.Name, ErrTaken)
	}
	switch is.Phase {
	case infrav1.ClaimHeld:
		return nil
	case infrav1.ClaimBound:
		return write(ctx, c, host, "holding", func() {
			host.Spec.Claim.Phase, host.Spec.Claim.Erase = infrav1.ClaimHeld, erase
		})
	default:
		return fmt.Errorf("holding host %s, which is %s: %w", host.Name, is.Phase, ErrTaken)
	}
}

// Release starts the reset of a machine's host, and the erasure of its data disks
// where erase names a method. This, and an administrator who does the same, are
// the only things that make a host reset.
func Release(ctx context.Context, c client.Client, host *infrav1.ElementalHost, id string, erase infrav1.EraseMethod) error {
	is := host.Spec.Claim
	if is == nil || is.ID != id {
		return fmt.Errorf("releasing host %s: %w", host.Name, ErrTaken)
	}
	switch is.Phase {
	case infrav1.ClaimReleasing:
		return nil
	case infrav1.ClaimBound:
		return write(ctx, c, host, "releasing", func() {
			host.Spec.Claim.Phase, host.Spec.Claim.Erase = infrav1.ClaimReleasing, erase
			if host.Annotations == nil {
				host.Annotations = map[string]string{}
			}
			host.Annotations[clusterctlv1.BlockMoveAnnotation] = ""
		})
	default:
		return fmt.Errorf("releasing host %s, which is %s: %w", host.Name, is.Phase, ErrTaken)
	}
}

// Free makes a releasing host available again. The caller has seen that it is
// clean and its Machine gone.
func Free(ctx context.Context, c client.Client, host *infrav1.ElementalHost, id string) error {
	is := host.Spec.Claim
	if is == nil {
		return nil
	}
	if is.ID != id || is.Phase != infrav1.ClaimReleasing {
		return fmt.Errorf("freeing host %s: %w", host.Name, ErrTaken)
	}
	return write(ctx, c, host, "freeing", func() {
		host.Spec.Claim = nil
		delete(host.Annotations, clusterctlv1.BlockMoveAnnotation)
	})
}

func write(ctx context.Context, c client.Client, host *infrav1.ElementalHost, doing string, change func()) error {
	before := host.DeepCopy()
	change()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, host, patch); err != nil {
		before.DeepCopyInto(host)
		return fmt.Errorf("%s host %s: %w", doing, host.Name, err)
	}
	return nil
}
