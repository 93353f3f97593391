package quickstart

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/world"
)

// snapshot is what the management cluster says at one time, in words.
type snapshot struct {
	hosts    []hostLine
	machines []machineLine
	// endpoint is host:port, blank before there is one; serves is whose address it is.
	endpoint, serves string
	// cluster is what becomes of the cluster as a whole.
	cluster string
}

type hostLine struct {
	name, address string
	connected     bool
	// is what the host is or does, machine whose it is.
	is, machine string
}

type machineLine struct {
	name, phase, host string
	controlPlane      bool
}

// look reads a snapshot.
func look(ctx context.Context, admin client.Client, cluster string) (snapshot, error) {
	var s snapshot
	hosts := &infrav1.ElementalHostList{}
	if err := admin.List(ctx, hosts, client.InNamespace(world.Namespace)); err != nil {
		return s, fmt.Errorf("listing ElementalHosts: %w", err)
	}
	machines := &clusterv1.MachineList{}
	err := admin.List(ctx, machines, client.InNamespace(world.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	if err != nil {
		return s, fmt.Errorf("listing Machines: %w", err)
	}
	c := &clusterv1.Cluster{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: world.Namespace, Name: cluster}, c); client.IgnoreNotFound(err) != nil {
		return s, fmt.Errorf("getting Cluster %s: %w", cluster, err)
	}
	on := map[string]string{}
	for i := range hosts.Items {
		line := describeHost(&hosts.Items[i])
		s.hosts = append(s.hosts, line)
		if line.machine != "" {
			on[line.machine] = line.name
		}
		if endpoint := c.Spec.ControlPlaneEndpoint; endpoint.Host != "" && line.address == endpoint.Host {
			s.serves = line.name
		}
	}
	for i := range machines.Items {
		m := &machines.Items[i]
		_, controlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]
		s.machines = append(s.machines, machineLine{m.Name, cmp.Or(m.Status.Phase, "Pending"), on[m.Name], controlPlane})
	}
	slices.SortFunc(s.hosts, func(a, b hostLine) int { return cmp.Compare(a.name, b.name) })
	slices.SortFunc(s.machines, func(a, b machineLine) int { return cmp.Compare(a.name, b.name) })
	if endpoint := c.Spec.ControlPlaneEndpoint; endpoint.Host != "" {
		s.endpoint = endpoint.Host + ":" + strconv.Itoa(int(endpoint.Port))
	}
	s.cluster = describeCluster(c)
	return s, nil
}

func describeCluster(c *clusterv1.Cluster) string {
	available := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ClusterAvailableCondition)
	switch {
	case c.Name == "":
		return "not made yet"
	case available == nil:
		return "made"
	case available.Status == metav1.ConditionTrue:
		return "available"
	}
	return "not available yet"
}

// describeHost says in words what a host is.
func describeHost(h *infrav1.ElementalHost) hostLine {
	line := hostLine{name: h.Name, connected: meta.IsStatusConditionTrue(h.Status.Conditions, infrav1.ConnectedCondition)}
	for _, address := range h.Status.Addresses {
		if address.Type == clusterv1.MachineInternalIP && line.address == "" {
			line.address = address.Address
		}
	}
	claim := h.Spec.Claim
	switch {
	case h.Spec.Approval != infrav1.ApprovalApproved:
		line.is = "waits for approval"
	case claim == nil && meta.IsStatusConditionTrue(h.Status.Conditions, infrav1.AvailableCondition):
		line.is = "free"
	case claim == nil:
		line.is = "not offered"
	default:
		line.machine = claim.MachineName
		line.is = describeClaimed(h)
	}
	return line
}

func describeClaimed(h *infrav1.ElementalHost) string {
	claim := h.Spec.Claim
	role := "worker"
	if claim.Role.IsControlPlane() {
		role = "control plane"
	}
	switch claim.Phase {
	case infrav1.ClaimReserved:
		return "reserved: its address is the endpoint"
	case infrav1.ClaimReleasing:
		return running(h, infrav1.OperationReset, "was a "+role+", to be reset", "reset", "reset")
	default:
		return running(h, infrav1.OperationBootstrap, role+", claimed", role+", bootstrap", role)
	}
}

// running says how far an operation of the claim is: before it, during it, after it.
func running(h *infrav1.ElementalHost, kind infrav1.OperationType, before, during, after string) string {
	op := h.Operation(kind, h.Spec.Claim.ID)
	switch {
	case op == nil:
		return before
	case op.State == infrav1.OperationSucceeded:
		return after
	case op.State == infrav1.OperationRunning:
		return during + " runs: " + cmp.Or(op.Step, "begins")
	}
	return during + " failed: " + op.Message
}
