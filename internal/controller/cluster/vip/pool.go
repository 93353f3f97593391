package vip

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

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
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get

// addressClaimName returns the name of the IPAddressClaim of the cluster's endpoint.
func addressClaimName(c *infrav1.ElementalCluster) string { return c.Name + "-endpoint" }

// poolAddress returns the address that the IPAM provider allocated to the cluster's
// IPAddressClaim, and creates the claim (Cluster API's IPAM contract). While the address
// is blank, why says what is missing.
func (r *Reconciler) poolAddress(ctx context.Context, s *scope.Scope) (address, why string, _ error) {
	ref := s.InfraCluster.Spec.ControlPlaneEndpointPolicy.VIP.AddressFromPool
	pool := ipamv1.IPPoolReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	addressClaim := &ipamv1.IPAddressClaim{}
	key := client.ObjectKey{Namespace: s.InfraCluster.Namespace, Name: addressClaimName(s.InfraCluster)}
	switch err := r.Client.Get(ctx, key, addressClaim); {
	case apierrors.IsNotFound(err):
		if err := r.claimAddress(ctx, s, key, pool); err != nil {
			return "", "", err
		}
		return "", waitingForPool(pool), nil
	case err != nil:
		return "", "", fmt.Errorf("getting IPAddressClaim %s: %w", key.Name, err)
	}
	if !metav1.IsControlledBy(addressClaim, s.InfraCluster) {
		return "", fmt.Sprintf("IPAddressClaim %s has another owner: this ElementalCluster is not its controller; delete or rename it", key.Name), nil
	}
	if !addressClaim.DeletionTimestamp.IsZero() {
		return "", fmt.Sprintf("IPAddressClaim %s is being deleted", key.Name), nil
	}
	if addressClaim.Spec.PoolRef != pool && s.InfraCluster.Spec.ControlPlaneEndpoint.Host == "" {
		// The user changed the pool before the endpoint got an address of the former one.
		if err := r.deleteAddressClaim(ctx, addressClaim); err != nil {
			return "", "", err
		}
		return "", waitingForPool(pool), nil
	}
	return r.claimedAddress(ctx, addressClaim)
}

func waitingForPool(pool ipamv1.IPPoolReference) string {
	return fmt.Sprintf("Waiting for an address from %s %s", pool.Kind, pool.Name)
}

// claimAddress creates the IPAddressClaim. clusterctl moves it with its owner.
func (r *Reconciler) claimAddress(ctx context.Context, s *scope.Scope, key client.ObjectKey, pool ipamv1.IPPoolReference) error {
	addressClaim := &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: s.Cluster.Name},
		},
		Spec: ipamv1.IPAddressClaimSpec{ClusterName: s.Cluster.Name, PoolRef: pool},
	}
	if r.Reader.WatchFilter != "" {
		addressClaim.Labels[clusterv1.WatchLabel] = r.Reader.WatchFilter
	}
	if err := controllerutil.SetControllerReference(s.InfraCluster, addressClaim, r.Client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of IPAddressClaim %s: %w", key.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Claiming an address for the endpoint", "IPAddressClaim", klog.KObj(addressClaim), "pool", pool.Name)
	if err := r.Client.Create(ctx, addressClaim); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating IPAddressClaim %s: %w", key.Name, err)
	}
	return nil
}

// claimedAddress returns the address that was allocated to the claim. While it is blank,
// why says what is missing.
func (r *Reconciler) claimedAddress(ctx context.Context, addressClaim *ipamv1.IPAddressClaim) (address, why string, _ error) {
	name := addressClaim.Status.AddressRef.Name
	if name == "" {
		why := waitingForPool(addressClaim.Spec.PoolRef)
		ready := meta.FindStatusCondition(addressClaim.Status.Conditions, ipamv1.IPAddressClaimReadyCondition)
		switch {
		case ready == nil:
			why += "; no IPAM provider has reported a condition yet"
		case ready.Status != metav1.ConditionTrue:
			why += ": " + ready.Reason
			if ready.Message != "" {
				why += ": " + ready.Message
			}
		}
		return "", why, nil
	}
	ipAddress := &ipamv1.IPAddress{}
	// It is read once or twice in a cluster's life, so it is not worth a cache.
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
		return "", fmt.Sprintf("IPAddress %s has no valid IP address: %v", name, err), nil
	}
	return ip.String(), "", nil
}

// Release deletes the IPAddressClaim of a cluster that is being deleted. While hosts still
// announce the address it deletes nothing, and waiting names them.
func (r *Reconciler) Release(ctx context.Context, s *scope.Scope) (waiting *scope.Endpoint, _ error) {
	addressClaim, err := r.ownAddressClaim(ctx, s)
	if err != nil || addressClaim == nil {
		return nil, err
	}
	announcing, err := r.announcingHosts(ctx, s)
	if err != nil {
		return nil, err
	}
	if len(announcing) > 0 {
		return &scope.Endpoint{Reason: infrav1.AddressAnnouncedReason, Message: fmt.Sprintf(
			"%s does not return to its pool while hosts announce it: %s. Set spec.claim.phase of these hosts to Releasing; "+
				"to keep them as they are, remove metadata.ownerReferences of IPAddressClaim %s, which then stays",
			s.InfraCluster.Spec.ControlPlaneEndpoint.Host, failover.JoinFirst(announcing, ", "), addressClaim.Name)}, nil
	}
	return nil, r.deleteAddressClaim(ctx, addressClaim)
}

// announcingHosts returns the names of hosts that may announce the cluster's address
// although their Machines are deleted: held hosts, and connected ones until their reset.
// A disconnected host that has to be reset does not count: it may never return.
func (r *Reconciler) announcingHosts(ctx context.Context, s *scope.Scope) ([]string, error) {
	name := scope.ClusterName(s)
	if name == "" || s.InfraCluster.Spec.ControlPlaneEndpoint.Host == "" {
		return nil, nil
	}
	claimed, err := r.Reader.ClaimedHosts(ctx, s.InfraCluster.Namespace, name)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(claimed)) {
		host := claimed[name]
		resetting := host.Spec.Claim.Phase == infrav1.ClaimReleasing && host.Spec.Claim.Role.IsControlPlane() &&
			host.IsConnected() && !hoststatus.IsReset(host)
		if host.Spec.Fence == nil && (isControlPlane(host) || resetting) {
			names = append(names, name)
		}
	}
	return names, nil
}

// ownAddressClaim returns the cluster's IPAddressClaim, or nil if it does not exist, is
// being deleted or belongs to another.
func (r *Reconciler) ownAddressClaim(ctx context.Context, s *scope.Scope) (*ipamv1.IPAddressClaim, error) {
	if vip := s.InfraCluster.Spec.ControlPlaneEndpointPolicy.VIP; vip == nil || vip.AddressFromPool == nil {
		return nil, nil
	}
	addressClaim := &ipamv1.IPAddressClaim{}
	key := client.ObjectKey{Namespace: s.InfraCluster.Namespace, Name: addressClaimName(s.InfraCluster)}
	// The cache may not show the claim yet.
	err := r.APIReader.Get(ctx, key, addressClaim)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting IPAddressClaim %s: %w", key.Name, err)
	}
	if err != nil || !metav1.IsControlledBy(addressClaim, s.InfraCluster) || !addressClaim.DeletionTimestamp.IsZero() {
		return nil, nil //nolint:nilerr // it does not exist
	}
	return addressClaim, nil
}

// deleteAddressClaim does not wait for the IPAM provider's finalizer.
func (r *Reconciler) deleteAddressClaim(ctx context.Context, addressClaim *ipamv1.IPAddressClaim) error {
	ctrl.LoggerFrom(ctx).Info("Releasing the endpoint's address", "IPAddressClaim", klog.KObj(addressClaim))
	if err := r.Client.Delete(ctx, addressClaim, client.Preconditions{UID: &addressClaim.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting IPAddressClaim %s: %w", addressClaim.Name, err)
	}
	return nil
}
