package vip

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// hasStarted reports whether hosts may already use the address.
func hasStarted(s *scope.Scope, claimed map[string]*infrav1.ElementalHost) bool {
	if ptr.Deref(s.Cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return true
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(claimed)), isControlPlane)
}

// isControlPlane reports whether a control-plane machine has claimed the host.
func isControlPlane(host *infrav1.ElementalHost) bool {
	return host.IsBoundOrHeld() && host.Spec.Claim.Role.IsControlPlane()
}

// checkHosts checks that hosts can have the address: the claimed control-plane hosts,
// or the candidates as long as no host is claimed. problem says why the address can't be
// published; note is a remark for the condition's message.
func (r *Reconciler) checkHosts(ctx context.Context, s *scope.Scope, address string, claimed map[string]*infrav1.ElementalHost) (note string, problem *scope.Endpoint, _ error) {
	if hasStarted(s, claimed) {
		return "", checkClaimed(s.InfraCluster.Spec.ControlPlaneEndpointPolicy.VIP, address, claimed), nil
	}
	constraints, waiting, err := r.Reader.ControlPlaneConstraints(ctx, s)
	if err != nil {
		return "", nil, err
	}
	if waiting != nil {
		waiting.RequeueAfter = scope.ControlPlaneDelay
		return "", waiting, nil
	}
	hosts, err := r.Reader.Hosts(ctx, s.InfraCluster.Namespace)
	if err != nil {
		return "", nil, err
	}
	note, problem = checkCandidates(s, address, constraints, hosts)
	return note, problem, nil
}

// checkClaimed checks that all control-plane hosts of the cluster have an interface for
// the address.
func checkClaimed(vip *infrav1.EndpointVIP, address string, claimed map[string]*infrav1.ElementalHost) *scope.Endpoint {
	var lacking []string
	for _, name := range slices.Sorted(maps.Keys(claimed)) {
		if _, why := kubevip.Interface(vip, address, claimed[name]); why != "" && isControlPlane(claimed[name]) && claimed[name].Status.Inventory != nil {
			lacking = append(lacking, name)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return &scope.Endpoint{Reason: infrav1.InterfaceMissingReason, Message: fmt.Sprintf(
		"No interface for the address on control-plane hosts: %s", failover.JoinFirst(lacking, ", "))}
}

// checkCandidates checks the hosts that the control plane's machines may claim, whether
// they are available now or not. Hosts that are pending, rejected, locked, fenced or
// being deleted are no candidates. It is pure.
func checkCandidates(s *scope.Scope, address string, constraints placement.Constraints, hosts []*infrav1.ElementalHost) (note string, problem *scope.Endpoint) {
	vip := s.InfraCluster.Spec.ControlPlaneEndpointPolicy.VIP
	feasible := kubevip.Feasible(vip, address)
	var fit, without, outside []string
	for _, host := range hosts {
		claim := host.Spec.Claim
		if claim != nil && claim.ClusterName != s.Cluster.Name {
			continue
		}
		if _, ok := constraints.Matches(host); !ok {
			continue
		}
		switch why, ok := feasible(host); {
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
		return fmt.Sprintf(". Passed over, because they have no interface %s: %s", vip.Interface, failover.JoinFirst(without, ", ")), nil
	case len(fit) > 0 && len(outside) > 0:
		return fmt.Sprintf(". Passed over, because the address is in none of their subnets: %s", failover.JoinFirst(outside, ", ")), nil
	case len(fit) > 0:
		return "", nil
	case len(without) > 0:
		return "", &scope.Endpoint{Reason: infrav1.InterfaceMissingReason, Message: fmt.Sprintf(
			"None of the hosts for the control plane has an interface %s: %s", vip.Interface, failover.JoinFirst(without, ", "))}
	case len(outside) > 0:
		return "", &scope.Endpoint{Reason: infrav1.VIPOutsideSubnetsReason, Message: fmt.Sprintf(
			"The address is in no subnet of the hosts for the control plane, where mode ARP needs it: %s", failover.JoinFirst(outside, ", "))}
	default:
		return "", &scope.Endpoint{Reason: infrav1.NoHostReason, Message: "No host for the control plane: " + constraints.Explain(hosts)}
	}
}
