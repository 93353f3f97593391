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
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/simulation"
)

// snapshot is the state of the management cluster at one time, as text.
type snapshot struct {
	hosts    []hostLine
	machines []machineLine
	// endpoint is host:port, or blank before it is set; serves is the host with this address.
	endpoint, serves string
	// cluster is the state of the whole cluster.
	cluster string
}

type hostLine struct {
	name, address string
	connected     bool
	// is is the state of the host, machine the Machine that has claimed it.
	is, machine string
}

type machineLine struct {
	name, phase, host string
	controlPlane      bool
}

// readSnapshot reads a snapshot.
func readSnapshot(ctx context.Context, admin client.Client, cluster string) (snapshot, error) {
	var s snapshot
	hosts := &infrav1.ElementalHostList{}
	if err := admin.List(ctx, hosts, client.InNamespace(simulation.Namespace)); err != nil {
		return s, fmt.Errorf("listing ElementalHosts: %w", err)
	}
	machines := &clusterv1.MachineList{}
	err := admin.List(ctx, machines, client.InNamespace(simulation.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	if err != nil {
		return s, fmt.Errorf("listing Machines: %w", err)
	}
	c := &clusterv1.Cluster{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: simulation.Namespace, Name: cluster}, c); client.IgnoreNotFound(err) != nil {
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

// describeHost returns the state of a host as text.
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

// running returns the text for an operation of the claim: before, during or after it.
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
