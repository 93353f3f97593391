package simulation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/objects"
)

// workloadTimeout bounds a request to a workload cluster.
const workloadTimeout = 5 * time.Second

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: Namespace, Name: name} }

// Machines returns the Machines of a cluster.
func (s *Simulation) Machines(ctx context.Context, cluster string) ([]clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	err := s.Admin.List(ctx, list, client.InNamespace(Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	if err != nil {
		return nil, fmt.Errorf("listing the Machines of cluster %s: %w", cluster, err)
	}
	return list.Items, nil
}

// CheckRunning returns nil if a cluster is Available and has the given number of Machines, all Running, and of Nodes,
// all Ready. Otherwise the error describes what is missing.
func (s *Simulation) CheckRunning(ctx context.Context, cluster string, machines int) error {
	all, err := s.Machines(ctx, cluster)
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
	if err := s.Admin.Get(ctx, key(cluster), c); err != nil {
		return fmt.Errorf("getting cluster %s: %w", cluster, err)
	}
	if available := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ClusterAvailableCondition); available == nil {
		return errors.New("the cluster has no condition Available yet")
	} else if available.Status != "True" {
		return fmt.Errorf("the cluster is not available: %s", available.Message)
	}
	nodes, err := s.Nodes(ctx, cluster)
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

// proxy returns the proxy for requests to workload clusters. As with programs that have HTTPS_PROXY, addresses of this machine
// need none.
func (s *Simulation) proxy(r *http.Request) (*url.URL, error) {
	if _, err := netip.ParseAddr(r.URL.Hostname()); err == nil || s.namesProxy == "" {
		return nil, nil
	}
	return url.Parse(s.namesProxy)
}

// Nodes returns the Nodes of a workload cluster. It uses Cluster API's kubeconfig, and thus the endpoint.
func (s *Simulation) Nodes(ctx context.Context, cluster string) ([]corev1.Node, error) {
	secret := &corev1.Secret{}
	if err := s.Admin.Get(ctx, key(cluster+"-kubeconfig"), secret); err != nil {
		return nil, fmt.Errorf("getting the kubeconfig of cluster %s: %w", cluster, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of cluster %s: %w", cluster, err)
	}
	config.Timeout, config.Proxy = workloadTimeout, s.proxy
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

// Endpoint returns the endpoint of a cluster and the virtual host with its address, or nil without such a host.
func (s *Simulation) Endpoint(ctx context.Context, cluster string) (clusterv1.APIEndpoint, *fleet.Host, error) {
	c := &clusterv1.Cluster{}
	if err := s.Admin.Get(ctx, key(cluster), c); err != nil {
		return clusterv1.APIEndpoint{}, nil, fmt.Errorf("getting cluster %s: %w", cluster, err)
	}
	for _, h := range s.Fleet.Hosts() {
		if h.Address.String() == c.Spec.ControlPlaneEndpoint.Host {
			return c.Spec.ControlPlaneEndpoint, h, nil
		}
	}
	return c.Spec.ControlPlaneEndpoint, nil, nil
}

// CheckFreeHosts returns nil if the given number of hosts are unclaimed, Clean and Available. Otherwise the error has
// their number.
func (s *Simulation) CheckFreeHosts(ctx context.Context, hosts int) error {
	list := &infrav1.ElementalHostList{}
	if err := s.Admin.List(ctx, list, client.InNamespace(Namespace)); err != nil {
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
