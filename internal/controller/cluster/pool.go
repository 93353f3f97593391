package cluster

import (
	"context"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get

// addressClaimName names the IPAddressClaim of the cluster's endpoint.
func addressClaimName(c *infrav1.ElementalCluster) string { return c.Name + "-endpoint" }

// poolAddress returns the address that the cluster's IPAddressClaim was given,
// and makes the claim (Cluster API's IPAM contract). While the address is blank,
// why says what is waited for.
func (r *Reconciler) poolAddress(ctx context.Context, s *scope) (address, why string, _ error) {
	ref := s.infraCluster.Spec.ControlPlaneEndpointPolicy.VIP.AddressFromPool
	pool := ipamv1.IPPoolReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	addressClaim := &ipamv1.IPAddressClaim{}
	key := client.ObjectKey{Namespace: s.infraCluster.Namespace, Name: addressClaimName(s.infraCluster)}
	switch err := r.Client.Get(ctx, key, addressClaim); {
	case apierrors.IsNotFound(err):
		if err := r.claimAddress(ctx, s, key, pool); err != nil {
			return "", "", err
		}
		return "", waitingForPool(pool), nil
	case err != nil:
		return "", "", fmt.Errorf("getting IPAddressClaim %s: %w", key.Name, err)
	}
	if !metav1.IsControlledBy(addressClaim, s.infraCluster) {
		return "", fmt.Sprintf("IPAddressClaim %s is somebody else's: this ElementalCluster is not its controller; delete or rename it", key.Name), nil
	}
	if !addressClaim.DeletionTimestamp.IsZero() {
		return "", fmt.Sprintf("IPAddressClaim %s is being deleted", key.Name), nil
	}
	if addressClaim.Spec.PoolRef != pool && s.infraCluster.Spec.ControlPlaneEndpoint.Host == "" {
		// Another pool was asked for before this one gave anything that is used.
		if err := r.releaseAddress(ctx, s); err != nil {
			return "", "", err
		}
		return "", waitingForPool(pool), nil
	}
	return r.claimedAddress(ctx, addressClaim)
}

func waitingForPool(pool ipamv1.IPPoolReference) string {
	return fmt.Sprintf("Waiting for an address from %s %s", pool.Kind, pool.Name)
}

// claimAddress makes the claim. clusterctl move follows its owner.
func (r *Reconciler) claimAddress(ctx context.Context, s *scope, key client.ObjectKey, pool ipamv1.IPPoolReference) error {
	addressClaim := &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: s.cluster.Name},
		},
		Spec: ipamv1.IPAddressClaimSpec{ClusterName: s.cluster.Name, PoolRef: pool},
	}
	if r.WatchFilter != "" {
		addressClaim.Labels[clusterv1.WatchLabel] = r.WatchFilter
	}
	if err := controllerutil.SetControllerReference(s.infraCluster, addressClaim, r.Client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of IPAddressClaim %s: %w", key.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Claiming an address for the endpoint", "IPAddressClaim", klog.KObj(addressClaim), "pool", pool.Name)
	if err := r.Client.Create(ctx, addressClaim); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating IPAddressClaim %s: %w", key.Name, err)
	}
	return nil
}

// claimedAddress follows the claim to its address.
func (r *Reconciler) claimedAddress(ctx context.Context, addressClaim *ipamv1.IPAddressClaim) (address, why string, _ error) {
	name := addressClaim.Status.AddressRef.Name
	if name == "" {
		why := waitingForPool(addressClaim.Spec.PoolRef)
		ready := meta.FindStatusCondition(addressClaim.Status.Conditions, ipamv1.IPAddressClaimReadyCondition)
		switch {
		case ready == nil:
			why += "; no IPAM provider has said anything yet"
		case ready.Status != metav1.ConditionTrue:
			why += ": " + ready.Reason
			if ready.Message != "" {
				why += ": " + ready.Message
			}
		}
		return "", why, nil
	}
	ipAddress := &ipamv1.IPAddress{}
	// Read once or twice in a cluster's life: no reason to keep all in memory.
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: addressClaim.Namespace, Name: name}, ipAddress)
	if apierrors.IsNotFound(err) {
		return "", fmt.Sprintf("IPAddress %s, which IPAddressClaim %s names, does not exist yet", name, addressClaim.Name), nil
	}
	if err != nil {
		return "", "", fmt.Errorf("getting IPAddress %s: %w", name, err)
	}
	if ipAddress.Spec.ClaimRef.Name != addressClaim.Name {
		return "", fmt.Sprintf("IPAddress %s belongs to IPAddressClaim %s, not to %s", name, ipAddress.Spec.ClaimRef.Name, addressClaim.Name), nil
	}
	ip, err := netip.ParseAddr(ipAddress.Spec.Address)
	if err != nil {
		return "", fmt.Sprintf("IPAddress %s holds no IP address: %v", name, err), nil
	}
	return ip.String(), "", nil
}

// releaseAddress gives the address back. The IPAM provider's finalizer is its own
// to wait for.
func (r *Reconciler) releaseAddress(ctx context.Context, s *scope) error {
	if vip := s.infraCluster.Spec.ControlPlaneEndpointPolicy.VIP; vip == nil || vip.AddressFromPool == nil {
		return nil
	}
	addressClaim := &ipamv1.IPAddressClaim{}
	key := client.ObjectKey{Namespace: s.infraCluster.Namespace, Name: addressClaimName(s.infraCluster)}
	// Past the cache: the claim may have been made a moment ago.
	err := r.APIReader.Get(ctx, key, addressClaim)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("getting IPAddressClaim %s: %w", key.Name, err)
	}
	if !metav1.IsControlledBy(addressClaim, s.infraCluster) || !addressClaim.DeletionTimestamp.IsZero() {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Giving the endpoint's address back", "IPAddressClaim", klog.KObj(addressClaim))
	if err := r.Client.Delete(ctx, addressClaim, client.Preconditions{UID: &addressClaim.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting IPAddressClaim %s: %w", key.Name, err)
	}
	return nil
}
