// Package claim changes the phase of an ElementalHost's claim (spec.claim):
//
//	free -> Reserved -> Bound -> Releasing -> free
//	free -> Bound
//	Bound -> Held -> Releasing
//	Reserved -> free
//	Bound -> free, if the Node of the host was to be taken over, and is not yet
//
// Only an administrator changes Held to Releasing.
//
// Each function writes with an optimistic lock, so that at most one of several managers,
// workers or stale caches succeeds. The others get a conflict (apierrors.IsConflict) or
// ErrTaken, and choose another host. Each function can be repeated: if the claim is in
// the requested phase already, it succeeds without a write.
//
// A releasing host has Cluster API's block-move annotation until it is free, so that
// `clusterctl move` waits for the reset. A held host does not have it, because it may stay
// held without a limit and can be moved meanwhile.
//
// A claimed host has the label cluster.x-k8s.io/cluster-name of its cluster, so that users find
// the hosts of a cluster.
//
// The reconcilers call this package; no other code writes claims.
package claim

import (
	"context"
	"errors"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// ErrTaken means that the host has another claim, or a claim in another phase.
var ErrTaken = errors.New("host is claimed by another")

// Reserve reserves a free host for the first control-plane machine of a cluster.
func Reserve(ctx context.Context, c client.Client, host *infrav1.ElementalHost, clusterName string) error {
	if is := host.Spec.Claim; is != nil {
		if is.ClusterName == clusterName && is.Phase == infrav1.ClaimReserved {
			return nil
		}
		return fmt.Errorf("reserving host %s: %w", host.Name, ErrTaken)
	}
	if isLeaving(host) {
		return fmt.Errorf("reserving host %s: %w", host.Name, ErrTaken)
	}
	return write(ctx, c, host, "reserving", func() {
		host.Spec.Claim = &infrav1.HostClaim{ClusterName: clusterName, Phase: infrav1.ClaimReserved}
	})
}

// Unreserve removes the cluster's reservation. It returns ErrTaken if a machine has
// claimed the host.
func Unreserve(ctx context.Context, c client.Client, host *infrav1.ElementalHost, clusterName string) error {
	is := host.Spec.Claim
	if is == nil || is.ClusterName != clusterName {
		return nil
	}
	if is.Phase != infrav1.ClaimReserved {
		return fmt.Errorf("removing the reservation of host %s: %w", host.Name, ErrTaken)
	}
	return write(ctx, c, host, "removing the reservation of", func() { host.Spec.Claim = nil })
}

// Bind binds a free host, or one that is reserved for the machine's cluster, to the
// machine in the claim. It sets the phase. The caller must know that the machine may use
// the reserved host. bundle is what the host's bootstrap installs if the host lacks programs
// of Kubernetes; nil for none. It is written with the claim, so that no bootstrap begins
// without it.
func Bind(ctx context.Context, c client.Client, host *infrav1.ElementalHost, to infrav1.HostClaim, bundle *infrav1.HostBundle) error {
	if is := host.Spec.Claim; is != nil {
		if is.Phase == infrav1.ClaimBound && is.ID == to.ID {
			return nil
		}
		if is.Phase != infrav1.ClaimReserved || is.ClusterName != to.ClusterName {
			return fmt.Errorf("claiming host %s: %w", host.Name, ErrTaken)
		}
	} else if isLeaving(host) {
		return fmt.Errorf("claiming host %s: %w", host.Name, ErrTaken)
	}
	to.Phase = infrav1.ClaimBound
	return write(ctx, c, host, "claiming", func() {
		host.Spec.Claim, host.Spec.Bundle = &to, bundle
		forgetRequests(host)
	})
}

// isLeaving reports whether a grant takes the host out of the namespace. Nobody can claim it here.
func isLeaving(host *infrav1.ElementalHost) bool {
	return host.Spec.GrantedTo != nil || host.IsReturning()
}

// Hold holds a bound host when its machine is deleted: the host is not reset. erase is
// recorded for the reset that an administrator may request later. A host whose Node was not
// taken over yet becomes free as it is.
func Hold(ctx context.Context, c client.Client, host *infrav1.ElementalHost, id string, erase infrav1.EraseMethod) error {
	is := host.Spec.Claim
	if is == nil || is.ID != id {
		return fmt.Errorf("holding host %s: %w", host.Name, ErrTaken)
	}
	switch is.Phase {
	case infrav1.ClaimHeld:
		return nil
	case infrav1.ClaimBound:
		if is.Adoption != nil {
			return giveBack(ctx, c, host)
		}
		return write(ctx, c, host, "holding", func() {
			host.Spec.Claim.Phase, host.Spec.Claim.Erase = infrav1.ClaimHeld, erase
		})
	default:
		return fmt.Errorf("holding host %s, which is %s: %w", host.Name, is.Phase, ErrTaken)
	}
}

// Release makes the machine's host reset itself and, unless erase is blank, erase its data
// disks. A host whose Node was not taken over yet becomes free as it is. Apart from an administrator who sets the phase to Releasing, nothing else makes a
// host reset itself.
func Release(ctx context.Context, c client.Client, host *infrav1.ElementalHost, id string, erase infrav1.EraseMethod) error {
	is := host.Spec.Claim
	if is == nil || is.ID != id {
		return fmt.Errorf("releasing host %s: %w", host.Name, ErrTaken)
	}
	switch is.Phase {
	case infrav1.ClaimReleasing:
		return nil
	case infrav1.ClaimBound:
		if is.Adoption != nil {
			return giveBack(ctx, c, host)
		}
		return write(ctx, c, host, "releasing", func() {
			host.Spec.Claim.Phase, host.Spec.Claim.Erase = infrav1.ClaimReleasing, erase
			forgetRequests(host)
			if host.Annotations == nil {
				host.Annotations = map[string]string{}
			}
			host.Annotations[clusterctlv1.BlockMoveAnnotation] = ""
		})
	default:
		return fmt.Errorf("releasing host %s, which is %s: %w", host.Name, is.Phase, ErrTaken)
	}
}

// giveBack removes the claim of a host whose Node was not taken over. The Node was there before the
// machine, so nothing on the host is touched, and another machine may take it over.
func giveBack(ctx context.Context, c client.Client, host *infrav1.ElementalHost) error {
	return write(ctx, c, host, "giving back", func() {
		host.Spec.Claim, host.Spec.Bundle = nil, nil
		forgetRequests(host)
	})
}

// FinishAdoption records that the machine of the claim has taken over the Node of the host. From
// then on the claim is like any other: its end resets the host.
func FinishAdoption(ctx context.Context, c client.Client, host *infrav1.ElementalHost, id string) error {
	is := host.Spec.Claim
	switch {
	case is == nil || is.ID != id || is.Phase != infrav1.ClaimBound:
		return fmt.Errorf("finishing the adoption of host %s: %w", host.Name, ErrTaken)
	case is.Adoption == nil:
		return nil
	}
	return write(ctx, c, host, "finishing the adoption of", func() {
		host.Spec.Claim.Adoption, host.Spec.Adoption = nil, nil
	})
}

// forgetRequests removes what was requested of the host's Node. The Node goes, and no later claim
// may inherit a request.
func forgetRequests(host *infrav1.ElementalHost) {
	host.Spec.NodeUpgrade, host.Spec.EtcdRestore, host.Spec.CertificateRenewal, host.Spec.ControlPlaneHalt = nil, nil, nil, nil
}

// Free removes the claim of a releasing host, and the bundle and upgrade of its Node. The
// caller must have checked that the host is clean and that its Machine is deleted.
func Free(ctx context.Context, c client.Client, host *infrav1.ElementalHost, id string) error {
	is := host.Spec.Claim
	if is == nil {
		return nil
	}
	if is.ID != id || is.Phase != infrav1.ClaimReleasing {
		return fmt.Errorf("freeing host %s: %w", host.Name, ErrTaken)
	}
	return write(ctx, c, host, "freeing", func() {
		host.Spec.Claim, host.Spec.Bundle = nil, nil
		forgetRequests(host)
		delete(host.Annotations, clusterctlv1.BlockMoveAnnotation)
	})
}

func write(ctx context.Context, c client.Client, host *infrav1.ElementalHost, doing string, change func()) error {
	before := host.DeepCopy()
	change()
	label(host)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, host, patch); err != nil {
		before.DeepCopyInto(host)
		return fmt.Errorf("%s host %s: %w", doing, host.Name, err)
	}
	return nil
}

// Relabel repairs the label of the cluster: that of a host that was claimed by a manager that did
// not set it, or that somebody has edited.
func Relabel(ctx context.Context, c client.Client, host *infrav1.ElementalHost) error {
	if label(host.DeepCopy()) {
		return write(ctx, c, host, "labelling", func() {})
	}
	return nil
}

// label makes the label of the cluster agree with the claim, and reports whether it did not.
func label(host *infrav1.ElementalHost) bool {
	is, labelled := host.Labels[clusterv1.ClusterNameLabel]
	if host.Spec.Claim == nil {
		delete(host.Labels, clusterv1.ClusterNameLabel)
		return labelled
	}
	if host.Labels == nil {
		host.Labels = map[string]string{}
	}
	host.Labels[clusterv1.ClusterNameLabel] = host.Spec.Claim.ClusterName
	return is != host.Spec.Claim.ClusterName
}
