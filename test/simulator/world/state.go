package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/workload/objects"
)

// workloadTimeout bounds a request to a workload cluster.
const workloadTimeout = 5 * time.Second

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: Namespace, Name: name} }

// Machines are those of a cluster.
func (w *World) Machines(ctx context.Context, cluster string) ([]clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	err := w.Admin.List(ctx, list, client.InNamespace(Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	if err != nil {
		return nil, fmt.Errorf("listing the Machines of cluster %s: %w", cluster, err)
	}
	return list.Items, nil
}

// Whole returns nil when a cluster is Available and has as many Machines as asked for, all of them running, and
// as many Nodes, all of them Ready. Otherwise the error says what is missing.
func (w *World) Whole(ctx context.Context, cluster string, machines int) error {
	all, err := w.Machines(ctx, cluster)
	if err != nil {
		return err
	}
	if len(all) != machines {
		return fmt.Errorf("there are %d Machines, not %d", len(all), machines)
	}
	for i := range all {
		if all[i].Status.Phase != string(clusterv1.MachinePhaseRunning) {
			return fmt.Errorf("one Machine, %s, is %s", all[i].Name, all[i].Status.Phase)
		}
	}
	c := &clusterv1.Cluster{}
	if err := w.Admin.Get(ctx, key(cluster), c); err != nil {
		return fmt.Errorf("getting cluster %s: %w", cluster, err)
	}
	if available := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ClusterAvailableCondition); available == nil {
		return errors.New("nothing is known of the cluster yet")
	} else if available.Status != "True" {
		return fmt.Errorf("the cluster is not available: %s", available.Message)
	}
	nodes, err := w.Nodes(ctx, cluster)
	if err != nil {
		return err
	}
	if len(nodes) != machines {
		return fmt.Errorf("there are %d Nodes, not %d", len(nodes), machines)
	}
	if i := slices.IndexFunc(nodes, func(node corev1.Node) bool { return !objects.IsReady(&node) }); i >= 0 {
		return fmt.Errorf("one Node, %s, is not Ready", nodes[i].Name)
	}
	return nil
}

// Nodes are those of a workload cluster, read through its endpoint with the kubeconfig that Cluster API gives
// out.
func (w *World) Nodes(ctx context.Context, cluster string) ([]corev1.Node, error) {
	secret := &corev1.Secret{}
	if err := w.Admin.Get(ctx, key(cluster+"-kubeconfig"), secret); err != nil {
		return nil, fmt.Errorf("getting the kubeconfig of cluster %s: %w", cluster, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of cluster %s: %w", cluster, err)
	}
	config.Timeout = workloadTimeout
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting to cluster %s: %w", cluster, err)
	}
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing the Nodes of cluster %s: %w", cluster, err)
	}
	return nodes.Items, nil
}

// Endpoint is where a cluster is reached, and the virtual host that serves there; nil if none does.
func (w *World) Endpoint(ctx context.Context, cluster string) (clusterv1.APIEndpoint, *fleet.Host, error) {
	c := &clusterv1.Cluster{}
	if err := w.Admin.Get(ctx, key(cluster), c); err != nil {
		return clusterv1.APIEndpoint{}, nil, fmt.Errorf("getting cluster %s: %w", cluster, err)
	}
	for _, h := range w.Fleet.Hosts() {
		if h.Address.String() == c.Spec.ControlPlaneEndpoint.Host {
			return c.Spec.ControlPlaneEndpoint, h, nil
		}
	}
	return c.Spec.ControlPlaneEndpoint, nil, nil
}

// Free returns nil when as many hosts as asked for may be offered to Machines, clean of what they were. Otherwise
// the error says how many are.
func (w *World) Free(ctx context.Context, hosts int) error {
	list := &infrav1.ElementalHostList{}
	if err := w.Admin.List(ctx, list, client.InNamespace(Namespace)); err != nil {
		return fmt.Errorf("listing ElementalHosts: %w", err)
	}
	free := 0
	for i := range list.Items {
		h := &list.Items[i]
		if h.Spec.Claim == nil && meta.IsStatusConditionTrue(h.Status.Conditions, infrav1.CleanCondition) &&
			meta.IsStatusConditionTrue(h.Status.Conditions, infrav1.AvailableCondition) {
			free++
		}
	}
	if free != hosts {
		return fmt.Errorf("%d hosts of %d are free, not %d", free, len(list.Items), hosts)
	}
	return nil
}
