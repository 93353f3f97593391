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
	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/table"
)

// bootstrapBytes is as much as kubeadm's data is for a worker, about.
const bootstrapBytes = 8 << 10

// meta is the metadata of an object of a Cluster.
func meta(cluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}
}

// createCluster creates a Cluster and its ElementalCluster as their controllers leave them, with an endpoint of the
// user's. Machines get no host before release.
func (g *rig) createCluster(ctx context.Context, name string) error {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: name}
	if err := g.admin.Create(ctx, cluster); err != nil {
		return fmt.Errorf("creating Cluster %s: %w", name, err)
	}
	infra := &infrav1.ElementalCluster{ObjectMeta: meta(name, name)}
	infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: name, UID: cluster.UID}}
	infra.Spec.ControlPlaneEndpoint.Host = "192.0.2.1"
	if err := g.admin.Create(ctx, infra); err != nil {
		return fmt.Errorf("creating ElementalCluster %s: %w", name, err)
	}
	return nil
}

// release lets all machines of a Cluster have hosts, by one write: it is what Cluster API's core writes when the
// infrastructure is there.
func (g *rig) release(ctx context.Context, name string) error {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = new(true)
	if err := g.admin.Status().Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("releasing the machines of Cluster %s: %w", name, err)
	}
	return nil
}

// createMachine creates a worker as its controllers leave it: a Machine with bootstrap data, and its ElementalMachine.
func (g *rig) createMachine(ctx context.Context, cluster, name string) error {
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
		if err := g.admin.Create(ctx, obj); err != nil {
			return fmt.Errorf("creating machine %s: %w", name, err)
		}
	}
	return nil
}

// createMachines creates a Cluster with so many machines, which get no host before its release.
func (g *rig) createMachines(ctx context.Context, cluster string, count int) error {
	if err := g.createCluster(ctx, cluster); err != nil {
		return err
	}
	g.progress.Say("Creating %s machines", table.Count(count))
	return bare.Each(ctx, count, atOnce, func(ctx context.Context, i int) error {
		return g.createMachine(ctx, cluster, fmt.Sprintf("%s-%05d", cluster, i))
	})
}

// timeClaim creates a machine and returns how long it took until a host was bound to it; limit if none was by then.
func (g *rig) timeClaim(ctx context.Context, cluster, name string, limit time.Duration) (time.Duration, error) {
	start := time.Now()
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := g.createMachine(bounded, cluster, name)
	if err == nil {
		err = g.awaitClaim(bounded, name)
	}
	if bounded.Err() != nil && ctx.Err() == nil {
		return limit, nil
	}
	return time.Since(start), err
}

// awaitClaim waits until a host is bound to a machine.
func (g *rig) awaitClaim(ctx context.Context, name string) error {
	machine, host := &infrav1.ElementalMachine{}, &infrav1.ElementalHost{}
	const every = 10 * time.Millisecond
	for {
		if err := g.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, machine); err != nil {
			return fmt.Errorf("reading machine %s: %w", name, err)
		}
		if ref := machine.Spec.HostRef; ref != nil {
			if err := g.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, host); err != nil {
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
