package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/kubeadm"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/objects"
)

// reachInterval is how often a host that is to be upgraded looks for its API server.
const reachInterval = 500 * time.Millisecond

var _ fleet.Upgrader = (*Clusters)(nil)

// CheckUpgrade waits until the host reaches its API server. It returns an error if the host was
// upgraded out of turn: kubeadm takes the version of all hosts but the first from the cluster,
// and no kubelet may be newer than an API server.
func (c *Clusters) CheckUpgrade(ctx context.Context, m fleet.Machine, to protocol.NodeUpgrade) error {
	h, err := c.member(m)
	if err != nil {
		return err
	}
	for {
		if isReached, err := h.checkTurn(ctx, to); isReached || err != nil {
			return err
		}
		again := c.o.Clock.NewTimer(reachInterval)
		select {
		case <-again.C():
		case <-ctx.Done():
			again.Stop()
			return fmt.Errorf("waiting for the API server: %w", context.Cause(ctx))
		}
	}
}

// member returns a host that is a node.
func (c *Clusters) member(m fleet.Machine) (*host, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hosts[m.Name]; h != nil && h.cluster != nil {
		return h, nil
	}
	return nil, errors.New("the host is no node")
}

// checkTurn returns an error if it is not the host's turn. isReached is false if that can't be
// known now.
func (h *host) checkTurn(ctx context.Context, to protocol.NodeUpgrade) (isReached bool, err error) {
	_, one := h.desired()
	one.mu.Lock()
	defer one.mu.Unlock()
	if !one.reaches(h) {
		return false, nil
	}
	if (h.local != nil) == (to.Role == protocol.UpgradeWorker) {
		return true, fmt.Errorf("the host has another role than %s", to.Role)
	}
	configured, err := one.configuration(ctx)
	if err != nil {
		return true, err
	}
	version := to.Bundle.Version
	if to.Role != protocol.UpgradeFirstControlPlane && configured.KubernetesVersion != version {
		return true, fmt.Errorf("the cluster is configured for Kubernetes %s", configured.KubernetesVersion)
	}
	servers, err := one.serverImages(ctx)
	if err != nil {
		return true, err
	}
	image := objects.Image(objects.APIServer, version)
	switch {
	case to.Role == protocol.UpgradeControlPlane && !slices.Contains(servers, image):
		return true, errors.New("the cluster has not been upgraded by a first host")
	case to.Role == protocol.UpgradeWorker && slices.ContainsFunc(servers, func(is string) bool { return is != image }):
		return true, errors.New("the kubelet would be newer than an API server")
	}
	return true, nil
}

// configuration returns the ClusterConfiguration.
func (c *cluster) configuration(ctx context.Context) (kubeadm.Cluster, error) {
	stored := &corev1.ConfigMap{}
	if err := c.store.Get(ctx, configKey(), stored); err != nil {
		return kubeadm.Cluster{}, fmt.Errorf("getting the cluster's configuration: %w", err)
	}
	return kubeadm.ReadCluster([]byte(stored.Data[objects.ConfigKey]))
}

func configKey() client.ObjectKey {
	return client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: objects.ConfigName}
}

// serverImages returns the image of each API server.
func (c *cluster) serverImages(ctx context.Context) ([]string, error) {
	pods, err := c.pods(ctx)
	if err != nil {
		return nil, err
	}
	var images []string
	for _, pod := range pods {
		if pod.Name == objects.PodName(objects.APIServer, pod.Spec.NodeName) {
			images = append(images, pod.Spec.Containers[0].Image)
		}
	}
	return images, nil
}

// Upgrade simulates kubeadm upgrade and a new kubelet. The API server and the etcd member of the
// host restart.
func (c *Clusters) Upgrade(ctx context.Context, m fleet.Machine, to protocol.NodeUpgrade, progress func(step string)) error {
	h, err := c.member(m)
	if err != nil {
		return err
	}
	_, one := h.desired()
	one.mu.Lock()
	defer one.mu.Unlock()
	if !one.reaches(h) {
		return errors.New("the host does not reach its API server")
	}
	version := to.Bundle.Version
	if to.Role == protocol.UpgradeFirstControlPlane {
		if err := one.configure(ctx, version); err != nil {
			return err
		}
	}
	if h.local != nil {
		if err := one.upgradeStaticPods(ctx, h, version); err != nil {
			return err
		}
	}
	progress("kubelet")
	h.kubelet.Version = version
	return one.updateNode(ctx, h.kubelet.Name, func(node *corev1.Node) bool {
		changed := node.Status.NodeInfo.KubeletVersion != version
		node.Status.NodeInfo.KubeletVersion = version
		return changed
	})
}

// configure writes the version into the ClusterConfiguration, as kubeadm upgrade apply does. The caller holds c.mu.
func (c *cluster) configure(ctx context.Context, version string) error {
	stored := &corev1.ConfigMap{}
	if err := c.store.Get(ctx, configKey(), stored); err != nil {
		return fmt.Errorf("getting the cluster's configuration: %w", err)
	}
	text, err := kubeadm.SetVersion([]byte(stored.Data[objects.ConfigKey]), version)
	if err != nil {
		return err
	}
	if stored.Data[objects.ConfigKey] == string(text) {
		return nil
	}
	stored.Data[objects.ConfigKey] = string(text)
	if err := c.store.Update(ctx, stored); err != nil {
		return fmt.Errorf("writing the cluster's configuration: %w", err)
	}
	return nil
}

// upgradeStaticPods replaces the static Pods of a control-plane host. The caller holds c.mu.
func (c *cluster) upgradeStaticPods(ctx context.Context, h *host, version string) error {
	if err := h.writeManifests(version); err != nil {
		return err
	}
	h.local.stop()
	h.running = false
	c.members.set(h.kubelet.Name, false, h.local.forwarded)
	err := h.apply()
	c.inspect()
	if err != nil {
		return fmt.Errorf("restarting the API server: %w", err)
	}
	for _, component := range objects.Components() {
		image := objects.Image(component, version)
		if err := c.updatePod(ctx, objects.PodName(component, h.kubelet.Name), func(pod *corev1.Pod) bool {
			changed := pod.Spec.Containers[0].Image != image
			pod.Spec.Containers[0].Image = image
			return changed
		}); err != nil {
			return err
		}
	}
	return nil
}
