// Package machines creates Clusters and machines for a fleet, as Cluster API leaves them.
package machines

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// bootstrapBytes is the approximate size of kubeadm's bootstrap data for a worker.
const bootstrapBytes = 8 << 10

const (
	// atOnce is the number of machines that are created at a time.
	atOnce = 32
	// stepTimeout bounds AwaitProvisioned.
	stepTimeout = 15 * time.Minute
)

// Client creates Clusters and machines in the fleet's namespace, and waits until they have hosts. It is safe for
// concurrent use.
type Client struct {
	Admin     client.WithWatch
	Namespace string
	// Cluster is the management cluster, whose end ends all waiting.
	Cluster interface {
		Done() <-chan struct{}
		Err() error
	}
	Progress *shell.Progress
}

// meta returns the metadata of an object of a Cluster.
func (m *Client) meta(cluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}
}

// CreateCluster creates a Cluster and its ElementalCluster as their controllers leave them, with an endpoint of the
// user's. Machines get no host before release.
func (m *Client) CreateCluster(ctx context.Context, name string) error {
	return m.CreateClusterOf(ctx, name, func(infra *infrav1.ElementalCluster) { infra.Spec.ControlPlaneEndpoint.Host = "192.0.2.1" })
}

// CreateClusterOf is CreateCluster with another endpoint, which change sets.
func (m *Client) CreateClusterOf(ctx context.Context, name string, change func(*infrav1.ElementalCluster)) error {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: name}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: name}
	if err := m.Admin.Create(ctx, cluster); err != nil {
		return fmt.Errorf("creating Cluster %s: %w", name, err)
	}
	infra := &infrav1.ElementalCluster{ObjectMeta: m.meta(name, name)}
	infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: name, UID: cluster.UID}}
	change(infra)
	if err := m.Admin.Create(ctx, infra); err != nil {
		return fmt.Errorf("creating ElementalCluster %s: %w", name, err)
	}
	return nil
}

// Release lets all machines of a Cluster claim hosts. It makes the one write that Cluster API's core makes when the
// infrastructure is provisioned.
func (m *Client) Release(ctx context.Context, name string) error {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: name}}
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = new(true)
	if err := m.Admin.Status().Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("releasing the machines of Cluster %s: %w", name, err)
	}
	return nil
}

// CreateMachine creates a worker as its controllers leave it: a Machine with bootstrap data, and its ElementalMachine.
func (m *Client) CreateMachine(ctx context.Context, cluster, name string) error {
	return m.CreateMachineOf(ctx, cluster, name, nil)
}

// CreateMachineOf is CreateMachine with further labels of the Machine and the ElementalMachine.
func (m *Client) CreateMachineOf(ctx context.Context, cluster, name string, labels map[string]string) error {
	data := "#cloud-config\n" + strings.Repeat("# what kubeadm needs\n", bootstrapBytes/21)
	secret := &corev1.Secret{ObjectMeta: m.meta(cluster, name), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{
		"value": []byte(data), "format": []byte("cloud-config"),
	}}
	machine := &clusterv1.Machine{ObjectMeta: m.meta(cluster, name), Spec: clusterv1.MachineSpec{
		ClusterName: cluster, Bootstrap: clusterv1.Bootstrap{DataSecretName: &name},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name},
	}}
	infra := &infrav1.ElementalMachine{ObjectMeta: m.meta(cluster, name)}
	maps.Copy(machine.Labels, labels)
	maps.Copy(infra.Labels, labels)
	for _, obj := range []client.Object{secret, machine, infra} {
		if obj == infra {
			infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: machine.UID}}
		}
		if err := m.Admin.Create(ctx, obj); err != nil {
			return fmt.Errorf("creating machine %s: %w", name, err)
		}
	}
	return nil
}

// CreateMachines creates a Cluster with count machines, which claim no hosts before its release.
func (m *Client) CreateMachines(ctx context.Context, cluster string, count int) error {
	if err := m.CreateCluster(ctx, cluster); err != nil {
		return err
	}
	m.Progress.Say("Creating %s machines", table.Count(count))
	return bare.Each(ctx, count, atOnce, func(ctx context.Context, i int) error {
		return m.CreateMachine(ctx, cluster, fmt.Sprintf("%s-%05d", cluster, i))
	})
}

// TimeClaim creates a machine and returns the time until a host was bound to it, or limit if none was bound by then.
func (m *Client) TimeClaim(ctx context.Context, cluster, name string, limit time.Duration) (time.Duration, error) {
	start := time.Now()
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := m.CreateMachine(bounded, cluster, name)
	if err == nil {
		err = m.awaitClaim(bounded, name)
	}
	if bounded.Err() != nil && ctx.Err() == nil {
		return limit, nil
	}
	return time.Since(start), err
}

// awaitClaim waits until a host is bound to a machine.
func (m *Client) awaitClaim(ctx context.Context, name string) error {
	machine, host := &infrav1.ElementalMachine{}, &infrav1.ElementalHost{}
	const every = 10 * time.Millisecond
	for {
		if err := m.Admin.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, machine); err != nil {
			return fmt.Errorf("reading machine %s: %w", name, err)
		}
		if ref := machine.Spec.HostRef; ref != nil {
			if err := m.Admin.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: ref.Name}, host); err != nil {
				return fmt.Errorf("reading the host of machine %s: %w", name, err)
			}
			if host.Spec.Claim != nil && host.Spec.Claim.ID == ref.ClaimID {
				return nil
			}
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the claim of machine %s: %w", name, context.Cause(ctx))
		}
	}
}

// Doubles counts hosts that several machines chose, and machines that claimed several hosts.
func (m *Client) Doubles(ctx context.Context) (int, error) {
	hosts, machines := &infrav1.ElementalHostList{}, &infrav1.ElementalMachineList{}
	for _, list := range []client.ObjectList{hosts, machines} {
		if err := m.Admin.List(ctx, list, client.InNamespace(m.Namespace)); err != nil {
			return 0, fmt.Errorf("looking for doubles: %w", err)
		}
	}
	doubles := 0
	claimed, chosen := map[string]bool{}, map[string]string{}
	for i := range machines.Items {
		ref := machines.Items[i].Spec.HostRef
		if ref == nil {
			continue
		}
		if chosen[ref.Name] != "" {
			doubles++
		}
		chosen[ref.Name] = ref.ClaimID
	}
	for i := range hosts.Items {
		h := &hosts.Items[i]
		if h.Spec.Claim == nil {
			continue
		}
		if claimed[h.Spec.Claim.MachineName] || chosen[h.Name] != h.Spec.Claim.ID {
			doubles++
		}
		claimed[h.Spec.Claim.MachineName] = true
	}
	return doubles, nil
}
