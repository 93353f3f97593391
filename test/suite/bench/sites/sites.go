// Package sites has Clusters of one host each, and does Cluster API's part of their upgrades in
// place: what KubeadmControlPlane and the core's controllers write, without their reads.
package sites

import (
	"context"
	"fmt"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/machines"
)

// The versions of Kubernetes before and after the upgrade.
const (
	Former = "v1.36.3"
	Wanted = "v1.36.4"
)

const (
	// atOnce is the number of sites that are written at a time.
	atOnce = 32
	// template is the name of the ElementalMachineTemplate of all sites.
	template = "sites"
)

// Client creates sites and upgrades them. A site's objects have its name.
type Client struct {
	Admin    client.WithWatch
	Machines *machines.Client
	// Count is the number of sites.
	Count int
}

func name(i int) string { return fmt.Sprintf("site-%05d", i) }

func (c *Client) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.Machines.Namespace, Name: name}
}

// each calls do for each site.
func (c *Client) each(ctx context.Context, do func(ctx context.Context, name string) error) error {
	return bare.Each(ctx, c.Count, atOnce, func(ctx context.Context, i int) error { return do(ctx, name(i)) })
}

// Create creates all sites. Each of their Machines claims a host.
func (c *Client) Create(ctx context.Context) error {
	t := &infrav1.ElementalMachineTemplate{ObjectMeta: c.meta(template)}
	t.Spec.Template.Spec = &infrav1.ElementalMachineSpec{}
	if err := c.Admin.Create(ctx, t); err != nil {
		return fmt.Errorf("creating the template of sites: %w", err)
	}
	return c.each(ctx, c.create)
}

func (c *Client) create(ctx context.Context, name string) error {
	if err := c.Machines.CreateClusterOf(ctx, name, func(infra *infrav1.ElementalCluster) {
		infra.Spec.ControlPlaneEndpoint.Host, infra.Spec.InPlace.Mode = "192.0.2.1", infrav1.InPlaceRequired
	}); err != nil {
		return err
	}
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: c.meta(name)}
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: c.meta(name)}
	kcp.Spec.Version, kcp.Spec.Replicas = Former, new(int32(1))
	kcp.Spec.MachineTemplate.Spec.InfrastructureRef = reference(infrav1.GroupVersion.Group, "ElementalMachineTemplate", template)
	for _, nodes := range []*bootstrapv1.KubeadmConfigSpec{&config.Spec, &kcp.Spec.KubeadmConfigSpec} {
		nodes.InitConfiguration.NodeRegistration.Name = name
	}
	kcp.Spec.KubeadmConfigSpec.JoinConfiguration.NodeRegistration.Name = name
	for _, o := range []client.Object{config, kcp} {
		if err := c.Admin.Create(ctx, o); err != nil {
			return fmt.Errorf("creating site %s: %w", name, err)
		}
	}
	if err := c.Machines.CreateMachineOf(ctx, name, name, map[string]string{clusterv1.MachineControlPlaneLabel: ""}); err != nil {
		return err
	}
	if err := patch(ctx, c, &clusterv1.Cluster{ObjectMeta: c.meta(name)}, func(o *clusterv1.Cluster) {
		o.Spec.ControlPlaneRef = reference(controlplanev1.GroupVersion.Group, "KubeadmControlPlane", name)
	}); err != nil {
		return err
	}
	return c.Machines.Release(ctx, name)
}

func reference(group, kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: name}
}

// Join gives each Machine its Node of the former version, as the core does. From now on it has a
// bootstrap configuration, which before would have to control the bootstrap data.
func (c *Client) Join(ctx context.Context) error {
	return c.each(ctx, func(ctx context.Context, name string) error {
		if err := patch(ctx, c, &clusterv1.Machine{ObjectMeta: c.meta(name)}, func(m *clusterv1.Machine) {
			m.Spec.Version = Former
			m.Spec.Bootstrap.ConfigRef = reference(bootstrapv1.GroupVersion.Group, "KubeadmConfig", name)
		}); err != nil {
			return err
		}
		return c.node(ctx, name, Former, metav1.ConditionTrue)
	})
}

// node writes what the core reports of a Machine's Node.
func (c *Client) node(ctx context.Context, name, version string, upToDate metav1.ConditionStatus) error {
	return patchStatus(ctx, c, &clusterv1.Machine{ObjectMeta: c.meta(name)}, func(m *clusterv1.Machine) {
		m.Status.NodeRef = clusterv1.MachineNodeReference{Name: name}
		m.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: version}
		m.Status.Conditions = []metav1.Condition{condition(clusterv1.MachineUpToDateCondition, upToDate, 0)}
	})
}

// Pin creates the release of the wanted version.
func (c *Client) Pin(ctx context.Context, digest string, size int64) error {
	r := &infrav1.ElementalKubernetesRelease{ObjectMeta: c.meta(Wanted), Spec: infrav1.ElementalKubernetesReleaseSpec{
		Version: Wanted, Bundles: []infrav1.KubernetesBundle{{Architecture: runtime.GOARCH, SHA256: digest, SizeBytes: size}},
	}}
	if err := c.Admin.Create(ctx, r); err != nil {
		return fmt.Errorf("creating the release of %s: %w", Wanted, err)
	}
	return nil
}

// Hold holds all sites back, or releases them, as a user does.
func (c *Client) Hold(ctx context.Context, held bool) error {
	return c.each(ctx, func(ctx context.Context, name string) error {
		return patch(ctx, c, &clusterv1.Cluster{ObjectMeta: c.meta(name)}, func(o *clusterv1.Cluster) {
			delete(o.Labels, infrav1.HoldUpgradeLabel)
			if held {
				metav1.SetMetaDataLabel(&o.ObjectMeta, infrav1.HoldUpgradeLabel, "")
			}
		})
	})
}

// Bump changes the version of all sites, as a user does, and reports what KubeadmControlPlane and
// the core report then.
func (c *Client) Bump(ctx context.Context) error {
	return c.each(ctx, func(ctx context.Context, name string) error {
		kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: c.meta(name)}
		if err := patch(ctx, c, kcp, func(k *controlplanev1.KubeadmControlPlane) { k.Spec.Version = Wanted }); err != nil {
			return err
		}
		if err := patchStatus(ctx, c, kcp, func(k *controlplanev1.KubeadmControlPlane) {
			k.Status.Conditions = []metav1.Condition{
				condition(controlplanev1.KubeadmControlPlaneRollingOutCondition, metav1.ConditionTrue, k.Generation),
				condition(controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, metav1.ConditionTrue, k.Generation),
				condition(controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition, metav1.ConditionTrue, k.Generation),
			}
		}); err != nil {
			return err
		}
		return c.node(ctx, name, Former, metav1.ConditionFalse)
	})
}

func condition(kind string, status metav1.ConditionStatus, generation int64) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: "Simulated", LastTransitionTime: metav1.Now(), ObservedGeneration: generation}
}

// patch reads an object, changes it and writes the change.
func patch[T client.Object](ctx context.Context, c *Client, o T, change func(T)) error {
	return write(ctx, c, o, change, func(o T, patch client.Patch) error { return c.Admin.Patch(ctx, o, patch) })
}

// patchStatus is patch for the status.
func patchStatus[T client.Object](ctx context.Context, c *Client, o T, change func(T)) error {
	return write(ctx, c, o, change, func(o T, patch client.Patch) error { return c.Admin.Status().Patch(ctx, o, patch) })
}

func write[T client.Object](ctx context.Context, c *Client, o T, change func(T), send func(T, client.Patch) error) error {
	if err := c.Admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return fmt.Errorf("reading %T %s: %w", o, o.GetName(), err)
	}
	before, _ := o.DeepCopyObject().(T)
	change(o)
	if err := send(o, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing %T %s: %w", o, o.GetName(), err)
	}
	return nil
}
