package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// bootstrapBytes is the approximate size of kubeadm's bootstrap data for a worker.
const bootstrapBytes = 8 << 10

// meta returns the metadata of an object of a Cluster.
func meta(cluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}
}

// machineClient creates Clusters and machines in the fleet's namespace, and waits until they have hosts.
type machineClient struct {
	cluster  *embedded.Cluster
	admin    client.WithWatch
	progress *shell.Progress
}

// createCluster creates a Cluster and its ElementalCluster as their controllers leave them, with an endpoint of the
// user's. Machines get no host before release.
func (m *machineClient) createCluster(ctx context.Context, name string) error {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: name}
	if err := m.admin.Create(ctx, cluster); err != nil {
		return fmt.Errorf("creating Cluster %s: %w", name, err)
	}
	infra := &infrav1.ElementalCluster{ObjectMeta: meta(name, name)}
	infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: name, UID: cluster.UID}}
	infra.Spec.ControlPlaneEndpoint.Host = "192.0.2.1"
	if err := m.admin.Create(ctx, infra); err != nil {
		return fmt.Errorf("creating ElementalCluster %s: %w", name, err)
	}
	return nil
}

// release lets all machines of a Cluster claim hosts. It makes the one write that Cluster API's core makes when the
// infrastructure is provisioned.
func (m *machineClient) release(ctx context.Context, name string) error {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = new(true)
	if err := m.admin.Status().Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("releasing the machines of Cluster %s: %w", name, err)
	}
	return nil
}

// createMachine creates a worker as its controllers leave it: a Machine with bootstrap data, and its ElementalMachine.
func (m *machineClient) createMachine(ctx context.Context, cluster, name string) error {
	data := "#cloud-config\n" + strings.Repeat("# what kubeadm needs\n", bootstrapBytes/21)
	secret := &corev1.Secret{ObjectMeta: meta(cluster, name), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{
		"value": []byte(data), "format": []byte("cloud-config"),
	}}
	machine := &clusterv1.Machine{ObjectMeta: meta(cluster, name), Spec: clusterv1.MachineSpec{
		ClusterName: cluster, Bootstrap: clusterv1.Bootstrap{DataSecretName: &name},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name},
	}}
	infra := &infrav1.ElementalMachine{ObjectMeta: meta(cluster, name)}
	for _, obj := range []client.Object{secret, machine, infra} {
		if obj == infra {
			infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: machine.UID}}
		}
		if err := m.admin.Create(ctx, obj); err != nil {
			return fmt.Errorf("creating machine %s: %w", name, err)
		}
	}
	return nil
}

// createMachines creates a Cluster with count machines, which claim no hosts before its release.
func (m *machineClient) createMachines(ctx context.Context, cluster string, count int) error {
	if err := m.createCluster(ctx, cluster); err != nil {
		return err
	}
	m.progress.Say("Creating %s machines", table.Count(count))
	return bare.Each(ctx, count, atOnce, func(ctx context.Context, i int) error {
		return m.createMachine(ctx, cluster, fmt.Sprintf("%s-%05d", cluster, i))
	})
}

// timeClaim creates a machine and returns the time until a host was bound to it, or limit if none was bound by then.
func (m *machineClient) timeClaim(ctx context.Context, cluster, name string, limit time.Duration) (time.Duration, error) {
	start := time.Now()
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := m.createMachine(bounded, cluster, name)
	if err == nil {
		err = m.awaitClaim(bounded, name)
	}
	if bounded.Err() != nil && ctx.Err() == nil {
		return limit, nil
	}
	return time.Since(start), err
}

// awaitClaim waits until a host is bound to a machine.
func (m *machineClient) awaitClaim(ctx context.Context, name string) error {
	machine, host := &infrav1.ElementalMachine{}, &infrav1.ElementalHost{}
	const every = 10 * time.Millisecond
	for {
		if err := m.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, machine); err != nil {
			return fmt.Errorf("reading machine %s: %w", name, err)
		}
		if ref := machine.Spec.HostRef; ref != nil {
			if err := m.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, host); err != nil {
				return fmt.Errorf("reading the host of machine %s: %w", name, err)
			}
			if host.Spec.Claim != nil && host.Spec.Claim.ID == ref.ClaimID {
				return nil
			}
		}
		if err := pause(ctx, every); err != nil {
			return fmt.Errorf("waiting for the claim of machine %s: %w", name, err)
		}
	}
}

// doubles counts hosts that several machines chose, and machines that claimed several hosts.
func (m *machineClient) doubles(ctx context.Context) (int, error) {
	hosts, machines := &infrav1.ElementalHostList{}, &infrav1.ElementalMachineList{}
	for _, list := range []client.ObjectList{hosts, machines} {
		if err := m.admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
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
