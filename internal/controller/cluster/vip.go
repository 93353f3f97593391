package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// inUseDelay is how often a cluster looks whether its address has become free.
const inUseDelay = time.Minute

// vipEndpoint provides an endpoint that kube-vip looks after. Nothing is published
// before hosts can have the address and nobody else has it: a cluster that begins
// with an address that does not work is hard to mend.
func (r *Reconciler) vipEndpoint(ctx context.Context, s *scope) (ctrl.Result, error) {
	known, err := r.vipDistribution(ctx, s)
	if err != nil || !known {
		return ctrl.Result{}, err
	}
	address, why, err := r.vipAddress(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	recorded := s.infraCluster.Spec.ControlPlaneEndpoint.Host
	switch {
	case recorded == "" && why != "":
		s.endpoint = endpointState{reason: infrav1.WaitingForAddressReason, message: why}
		return ctrl.Result{}, nil
	case recorded != "" && why == "" && !sameAddress(recorded, address):
		s.endpoint = endpointState{reason: infrav1.WaitingForAddressReason, message: fmt.Sprintf(
			"The endpoint is %s, but its IPAddressClaim was given %s: %s may be given to somebody else", recorded, address, recorded)}
		return ctrl.Result{}, nil
	case recorded != "":
		// An IPAM provider that takes its time after a move or restore changes nothing.
		address = recorded
	}
	own, err := r.clusterHosts(ctx, s.infraCluster.Namespace, s.cluster.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	note, result, err := r.checkHosts(ctx, s, address, own)
	if err != nil || s.endpoint.reason != "" {
		return result, err
	}
	if err := r.recordVIP(ctx, s, address, begun(s, own)); err != nil {
		return ctrl.Result{}, err
	}
	if s.endpoint.reason != "" {
		// Nothing tells when another cluster gives the address up.
		return ctrl.Result{RequeueAfter: inUseDelay}, nil
	}
	s.endpoint = endpointState{ready: true, reason: infrav1.EndpointFromVIPReason, message: "A virtual IP address" + note}
	return ctrl.Result{}, nil
}

// vipDistribution reports whether it is known how Kubernetes is installed, and
// records what follows from the control plane's kind.
func (r *Reconciler) vipDistribution(ctx context.Context, s *scope) (bool, error) {
	if s.infraCluster.Spec.ControlPlaneEndpointPolicy.VIP.Distribution != "" {
		return true, nil
	}
	ref := s.cluster.Spec.ControlPlaneRef
	if !ref.IsDefined() {
		s.endpoint = endpointState{reason: infrav1.WaitingForControlPlaneRefReason,
			message: "The Cluster has no spec.controlPlaneRef; set it, or set spec.controlPlaneEndpointPolicy.vip.distribution here"}
		return false, nil
	}
	distribution := kubevip.DistributionOf(ref.Kind)
	if distribution == "" {
		s.endpoint = endpointState{reason: infrav1.DistributionUnknownReason, message: fmt.Sprintf(
			"It is not known how a %s installs Kubernetes; set spec.controlPlaneEndpointPolicy.vip.distribution", ref.Kind)}
		return false, nil
	}
	return true, r.patchSpec(ctx, s, "recording the distribution", func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.VIP.Distribution = distribution
	})
}

func (r *Reconciler) vipAddress(ctx context.Context, s *scope) (address, why string, _ error) {
	if vip := s.infraCluster.Spec.ControlPlaneEndpointPolicy.VIP; vip.AddressFromPool == nil {
		return vip.Address, "", nil
	}
	return r.poolAddress(ctx, s)
}

// begun reports whether hosts may already work with the address.
func begun(s *scope, own map[string]*infrav1.ElementalHost) bool {
	if ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return true
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(own)), isControlPlane)
}

// isControlPlane tells whether a control-plane machine has the host.
func isControlPlane(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	return claim != nil && claim.Role.IsControlPlane() && (claim.Phase == infrav1.ClaimBound || claim.Phase == infrav1.ClaimHeld)
}

// checkHosts checks that hosts can have the address: those that have been chosen,
// or, before there are any, those that may be. What keeps it from being published
// it puts into s.endpoint; note is what a person should know all the same.
func (r *Reconciler) checkHosts(ctx context.Context, s *scope, address string, own map[string]*infrav1.ElementalHost) (note string, _ ctrl.Result, _ error) {
	vip := s.infraCluster.Spec.ControlPlaneEndpointPolicy.VIP
	if begun(s, own) {
		var lacking []string
		for _, name := range slices.Sorted(maps.Keys(own)) {
			if _, why := kubevip.Interface(vip, address, own[name]); why != "" && isControlPlane(own[name]) && own[name].Status.Inventory != nil {
				lacking = append(lacking, name)
			}
		}
		if len(lacking) > 0 {
			s.endpoint = endpointState{reason: infrav1.InterfaceMissingReason, message: fmt.Sprintf(
				"No interface for the address on control-plane hosts: %s", failover.AtMost(lacking, ", "))}
		}
		return "", ctrl.Result{}, nil
	}
	request, ok, err := r.request(ctx, s)
	if err != nil || !ok {
		return "", ctrl.Result{RequeueAfter: controlPlaneDelay}, err
	}
	hosts, err := r.namespaceHosts(ctx, s)
	if err != nil {
		return "", ctrl.Result{}, err
	}
	note = vipCandidates(s, address, request, hosts)
	return note, ctrl.Result{}, nil
}

// vipCandidates looks at the hosts that the control plane's machines may get; those
// that are shut out are not among them. It is pure.
func vipCandidates(s *scope, address string, request placement.Request, hosts []*infrav1.ElementalHost) (note string) {
	vip := s.infraCluster.Spec.ControlPlaneEndpointPolicy.VIP
	able := kubevip.Able(vip, address)
	var fit, without, outside []string
	for _, host := range hosts {
		claim := host.Spec.Claim
		if _, ok := request.Matches(host); !ok || !admitted(host) || (claim != nil && claim.ClusterName != s.cluster.Name) {
			continue
		}
		switch why, ok := able(host); {
		case ok:
			fit = append(fit, host.Name)
		case why == kubevip.NoInterface:
			without = append(without, host.Name)
		default:
			outside = append(outside, host.Name)
		}
	}
	slices.Sort(without)
	slices.Sort(outside)
	switch {
	case len(fit) > 0 && len(without) > 0:
		return fmt.Sprintf(". Passed over, because they have no interface %s: %s", vip.Interface, failover.AtMost(without, ", "))
	case len(fit) > 0 && len(outside) > 0:
		return fmt.Sprintf(". Passed over, because the address is in none of their subnets: %s", failover.AtMost(outside, ", "))
	case len(fit) > 0:
		return ""
	case len(without) > 0:
		s.endpoint = endpointState{reason: infrav1.InterfaceMissingReason, message: fmt.Sprintf(
			"None of the hosts for the control plane has an interface %s: %s", vip.Interface, failover.AtMost(without, ", "))}
	case len(outside) > 0:
		s.endpoint = endpointState{reason: infrav1.VIPOutsideSubnetsReason, message: fmt.Sprintf(
			"The address is in no subnet of the hosts for the control plane, where mode ARP needs it: %s", failover.AtMost(outside, ", "))}
	default:
		s.endpoint = endpointState{reason: infrav1.NoHostReason, message: "No host for the control plane: " + request.Explain(hosts)}
	}
	return ""
}

// recordVIP makes the address the endpoint, once, if it is free. Clusters take
// their turn, and look past the cache: two that begin together must not both
// find an address free.
func (r *Reconciler) recordVIP(ctx context.Context, s *scope, address string, begun bool) error {
	endpoint := s.infraCluster.Spec.ControlPlaneEndpoint
	if endpoint.Host != "" && (begun || endpoint.Port != 0 && ptr.Deref(s.infraCluster.Status.Initialization.Provisioned, false)) {
		return nil
	}
	r.recording.Lock()
	defer r.recording.Unlock()
	user, err := r.userOfAddress(ctx, s, address)
	if err != nil {
		return err
	}
	if user != "" {
		s.endpoint = endpointState{reason: infrav1.VIPInUseReason, message: fmt.Sprintf("%s is %s", address, user)}
		return nil
	}
	if endpoint.Host != "" && endpoint.Port != 0 {
		return nil
	}
	err = r.patchSpec(ctx, s, "recording the endpoint", func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint.Host = address
		if c.Spec.ControlPlaneEndpoint.Port == 0 {
			c.Spec.ControlPlaneEndpoint.Port = infrav1.DefaultControlPlanePort
		}
	})
	if err != nil {
		return err
	}
	r.Recorder.Eventf(s.infraCluster, nil, corev1.EventTypeNormal, infrav1.EndpointFromVIPReason, "Publish",
		"The control plane endpoint is the virtual IP address %s", address)
	return nil
}

// userOfAddress says whose the address is; blank when it is nobody's. Among
// clusters that want it, one that has it goes first, then the oldest.
func (r *Reconciler) userOfAddress(ctx context.Context, s *scope, address string) (string, error) {
	clusters := &infrav1.ElementalClusterList{}
	if err := r.APIReader.List(ctx, clusters); err != nil {
		return "", fmt.Errorf("listing ElementalClusters: %w", err)
	}
	for i := range clusters.Items {
		other := &clusters.Items[i]
		if other.UID != s.infraCluster.UID && wants(other, address) && before(other, s.infraCluster) {
			return fmt.Sprintf("the endpoint of ElementalCluster %s/%s", other.Namespace, other.Name), nil
		}
	}
	hosts, err := r.namespaceHosts(ctx, s)
	if err != nil {
		return "", err
	}
	for _, host := range hosts {
		// Strangers may say what they like. A host that was locked or fenced later may
		// well have the address on the network still, and a cluster that begins with an
		// endpoint that somebody else answers for is hard to mend.
		if host.Spec.Approval != infrav1.ApprovalApproved {
			continue
		}
		for _, a := range host.Status.Addresses {
			if sameAddress(a.Address, address) {
				return "an address of ElementalHost " + host.Name, nil
			}
		}
	}
	return "", nil
}

// wants reports whether the address is the cluster's endpoint or is to be.
func wants(c *infrav1.ElementalCluster, address string) bool {
	if c.Spec.ControlPlaneEndpoint.Host != "" {
		return sameAddress(c.Spec.ControlPlaneEndpoint.Host, address)
	}
	vip := c.Spec.ControlPlaneEndpointPolicy.VIP
	return vip != nil && sameAddress(vip.Address, address)
}

func before(a, b *infrav1.ElementalCluster) bool {
	if x, y := a.Spec.ControlPlaneEndpoint.Host != "", b.Spec.ControlPlaneEndpoint.Host != ""; x != y {
		return x
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return client.ObjectKeyFromObject(a).String() < client.ObjectKeyFromObject(b).String()
}

// sameAddress compares IP addresses, whatever they are written like.
func sameAddress(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x.Unmap() == y.Unmap()
}
