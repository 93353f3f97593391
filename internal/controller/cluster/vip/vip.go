package vip

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
)

// addressInUseDelay is the interval at which a cluster checks whether its address has
// become free. No event tells that another cluster gave it up.
const addressInUseDelay = time.Minute

// Reconciler provides endpoints that are virtual IP addresses. Several goroutines may
// use it.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads past the cache.
	APIReader client.Reader
	Recorder  events.EventRecorder
	Reader    scope.Reader
	// Images says which images of kube-vip hosts may run.
	Images kubevip.ImagePolicy
	// PublishLock serializes the check that an address is free with its publication.
	PublishLock *sync.Mutex
}

// Reconcile publishes the address, once hosts can have it and nobody else uses it. A
// cluster that starts with an endpoint that does not work is hard to repair.
func (r *Reconciler) Reconcile(ctx context.Context, s *scope.Scope) (scope.Endpoint, error) {
	if why := r.Images.Refusal(s.InfraCluster.Spec.ControlPlaneEndpointPolicy.VIP); why != "" {
		return scope.Endpoint{Reason: infrav1.ImageNotAllowedReason, Message: why}, nil
	}
	if waiting, err := r.recordDistribution(ctx, s); err != nil || waiting != nil {
		return outcome(waiting), err
	}
	address, why, err := r.wantedAddress(ctx, s)
	if err != nil {
		return scope.Endpoint{}, err
	}
	recorded := s.InfraCluster.Spec.ControlPlaneEndpoint.Host
	switch {
	case recorded == "" && why != "":
		return scope.Endpoint{Reason: infrav1.WaitingForAddressReason, Message: why}, nil
	case recorded != "" && why == "" && !sameAddress(recorded, address):
		return scope.Endpoint{Reason: infrav1.WaitingForAddressReason, Message: fmt.Sprintf(
			"The endpoint is %s, but its IPAddressClaim was given %s: another claim may get %s", recorded, address, recorded)}, nil
	case recorded != "":
		// After a move or restore the IPAM provider may need time. The endpoint stays.
		address = recorded
	}
	claimed, err := r.Reader.ClaimedHosts(ctx, s.InfraCluster.Namespace, s.Cluster.Name)
	if err != nil {
		return scope.Endpoint{}, err
	}
	note, problem, err := r.checkHosts(ctx, s, address, claimed)
	if err != nil || problem != nil {
		return outcome(problem), err
	}
	problem, err = r.publish(ctx, s, address, claimed)
	if err != nil || problem != nil {
		return outcome(problem), err
	}
	return scope.Endpoint{Ready: true, Reason: infrav1.EndpointFromVIPReason, Message: "A virtual IP address" + note}, nil
}

// outcome returns the problem, or a blank outcome if it is nil.
func outcome(problem *scope.Endpoint) scope.Endpoint {
	return ptr.Deref(problem, scope.Endpoint{})
}

// recordDistribution records the Kubernetes distribution that the control plane's kind
// installs. waiting is not nil while the distribution is unknown.
func (r *Reconciler) recordDistribution(ctx context.Context, s *scope.Scope) (waiting *scope.Endpoint, _ error) {
	if s.InfraCluster.Spec.ControlPlaneEndpointPolicy.VIP.Distribution != "" {
		return nil, nil
	}
	ref := s.Cluster.Spec.ControlPlaneRef
	if !ref.IsDefined() {
		return &scope.Endpoint{Reason: infrav1.WaitingForControlPlaneRefReason,
			Message: "The Cluster has no spec.controlPlaneRef; set it, or set spec.controlPlaneEndpointPolicy.vip.distribution here"}, nil
	}
	distribution := kubevip.DistributionOf(ref.Kind)
	if distribution == "" {
		return &scope.Endpoint{Reason: infrav1.DistributionUnknownReason, Message: fmt.Sprintf(
			"It is not known how a %s installs Kubernetes; set spec.controlPlaneEndpointPolicy.vip.distribution", ref.Kind)}, nil
	}
	return nil, scope.PatchSpec(ctx, r.Client, s, "recording the distribution", func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.VIP.Distribution = distribution
	})
}

// wantedAddress returns the address of spec or the one that was allocated from the IP
// pool. While it is unknown, why says what is missing.
func (r *Reconciler) wantedAddress(ctx context.Context, s *scope.Scope) (address, why string, _ error) {
	if vip := s.InfraCluster.Spec.ControlPlaneEndpointPolicy.VIP; vip.AddressFromPool == nil {
		return vip.Address, "", nil
	}
	return r.poolAddress(ctx, s)
}

// publish records that the cluster has the address and makes it the endpoint, if it is
// free. problem says who uses it. Only one cluster at a time checks and records, and it
// reads past the cache: otherwise two clusters that start together could both find the
// address free. A cluster that runs already is checked too: a user may have given it the
// address of another cluster as its endpoint.
func (r *Reconciler) publish(ctx context.Context, s *scope.Scope, address string, claimed map[string]*infrav1.ElementalHost) (problem *scope.Endpoint, _ error) {
	endpoint := s.InfraCluster.Spec.ControlPlaneEndpoint
	if s.InfraCluster.HasVirtualIP() && endpoint.Port != 0 {
		return nil, nil
	}
	r.PublishLock.Lock()
	defer r.PublishLock.Unlock()
	user, err := r.findUser(ctx, s, address, claimed)
	if err != nil {
		return nil, err
	}
	if user != "" {
		s.InfraCluster.Status.VirtualIP = ""
		return &scope.Endpoint{
			Reason: infrav1.VIPInUseReason, Message: fmt.Sprintf("%s is %s", address, user), RequeueAfter: addressInUseDelay,
		}, nil
	}
	if err := r.recordAddress(ctx, s, address); err != nil {
		return nil, err
	}
	if endpoint.Host != "" && endpoint.Port != 0 {
		return nil, nil
	}
	err = scope.PatchSpec(ctx, r.Client, s, "recording the endpoint", func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint.Host = address
		c.Spec.ControlPlaneEndpoint = c.Spec.ControlPlaneEndpoint.WithDefaultPort()
	})
	if err != nil {
		return nil, err
	}
	r.Recorder.Eventf(s.InfraCluster, nil, corev1.EventTypeNormal, infrav1.EndpointFromVIPReason, "Publish",
		"The control plane endpoint is the virtual IP address %s", address)
	return nil, nil
}

// recordAddress writes status.virtualIP. The caller has the publish lock: the next cluster
// that checks an address must see it.
func (r *Reconciler) recordAddress(ctx context.Context, s *scope.Scope, address string) error {
	if s.InfraCluster.Status.VirtualIP == address {
		return nil
	}
	after := s.InfraCluster.DeepCopy()
	after.Status.VirtualIP = address
	patch := client.MergeFromWithOptions(s.InfraCluster.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("recording the virtual IP address: %w", err)
	}
	s.InfraCluster.ResourceVersion = after.ResourceVersion
	s.InfraCluster.Status.VirtualIP = address
	return nil
}
