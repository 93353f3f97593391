package workload

import (
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/certs"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/objects"
)

// inspectInterval is the interval of inspections while a host is not healthy.
const inspectInterval = 5 * time.Second

// inspect simulates kubelets, etcd and the node lifecycle controller when hosts come and go: a running etcd member becomes
// the leader, and the Ready condition of Nodes follows their kubelets' connections. It repeats while a kubelet is not
// connected. The caller holds c.mu.
func (c *cluster) inspect() {
	if c.nextInspection != nil {
		c.nextInspection.Stop()
		c.nextInspection = nil
	}
	if c.all.life.Err() != nil {
		return
	}
	now := c.all.o.Clock.Now()
	c.electLeader(now)
	working, unhealthy := c.isServing(), false
	for _, h := range c.hosts {
		reaches := c.reaches(h)
		if reaches {
			h.seen = now
		}
		unhealthy = unhealthy || !reaches
		silent := !reaches && (h.silent || (working && now.Sub(h.seen) >= c.all.o.NodeGrace))
		if silent != h.silent && c.setReadiness(h, silent, now) {
			h.silent = silent
		}
	}
	if unhealthy {
		c.nextInspection = c.all.o.Clock.AfterFunc(inspectInterval, c.inspectLater)
	}
}

// inspectLater runs inspect in a goroutine, because the clock's callback must not wait for c.mu.
func (c *cluster) inspectLater() {
	c.all.later(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inspect()
	})
}

// isServing reports whether at least one API server works. Controllers run only then.
func (c *cluster) isServing() bool {
	for _, h := range c.hosts {
		if h.local != nil && c.members.work(h.local.api.Addr()) {
			return true
		}
	}
	return false
}

// reaches reports whether a host's kubelet reaches a working API server: on control-plane hosts its own, on workers the
// one in its kubeconfig.
func (c *cluster) reaches(h *host) bool {
	to, _ := h.desired()
	if !h.running || !to.network {
		return false
	}
	if h.local != nil {
		return c.members.work(h.local.api.Addr())
	}
	endpoint, ok := h.server()
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(endpoint)
	if err != nil {
		return h.isServed(c.all.life, endpoint, c.authority.Pool())
	}
	for _, other := range c.hosts {
		if other.local == nil || other.local.api != at || !other.running {
			continue
		}
		its, _ := other.desired()
		return its.network && its.refused != at && c.members.work(at.Addr())
	}
	return false
}

// server returns host and port of the API server in the kubelet's kubeconfig, which the agent may have changed. The host is an
// address, or the name of an endpoint that the host serves itself.
func (h *host) server() (endpoint string, ok bool) {
	text, err := os.ReadFile(filepath.Join(h.machine.Root, kubeletConf))
	if err != nil {
		return "", false
	}
	server, err := certs.Server(text)
	if err != nil {
		return "", false
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", false
	}
	return u.Host, true
}

// setReadiness sets the Ready conditions of a host's Node and Pods. It does not create a deleted
// Node, because kubelets register only at their start. done is false if the caller must try again.
func (c *cluster) setReadiness(h *host, silent bool, now time.Time) (done bool) {
	err := c.updateNode(c.all.life, h.kubelet.Name, func(node *corev1.Node) bool {
		if silent {
			return objects.SetUnknown(node, now)
		}
		return objects.SetReady(node, now)
	})
	if h.local != nil {
		for _, component := range objects.Components() {
			podErr := c.updatePod(c.all.life, objects.PodName(component, h.kubelet.Name), func(pod *corev1.Pod) bool {
				return objects.SetPodReady(pod, !silent, now)
			})
			if err == nil {
				err = podErr
			}
		}
	}
	return err == nil
}

// electLeader makes a running etcd member the leader if the present leader does not run. Without
// quorum it does nothing. The store takes the Pod with the latest annotation, in whole seconds,
// for the leader.
func (c *cluster) electLeader(now time.Time) {
	if !c.members.quorum() {
		return
	}
	pods, err := c.pods(c.all.life)
	if err != nil {
		return
	}
	var leader, candidate string
	var latest time.Time
	for _, pod := range pods {
		node, isEtcd := nodeOf(pod.Name)
		if _, removed := pod.Annotations[cloudv1.EtcdMemberRemoved]; removed || !isEtcd {
			continue
		}
		if c.members.isUp(node) && (candidate == "" || node < candidate) {
			candidate = node
		}
		if since, err := time.Parse(time.RFC3339, pod.Annotations[cloudv1.EtcdLeaderFromAnnotationName]); err == nil && since.After(latest) {
			leader, latest = node, since
		}
	}
	if candidate == "" || c.members.isUp(leader) {
		return
	}
	if !now.After(latest) || now.Truncate(time.Second).Equal(latest) {
		now = latest.Add(time.Second)
	}
	// After an error the next inspection tries again: the leader's host is unhealthy, so there is
	// one.
	_ = c.updatePod(c.all.life, objects.PodName(objects.Etcd, candidate), func(pod *corev1.Pod) bool {
		pod.Annotations[cloudv1.EtcdLeaderFromAnnotationName] = now.Format(time.RFC3339)
		return true
	})
}

// watch subscribes to changes that Cluster API makes in the store.
func (c *Clusters) watch() error {
	for _, one := range []client.Object{&corev1.Node{}, &corev1.Pod{}} {
		informer, err := c.manager.GetCache().GetInformer(c.life, one)
		if err != nil {
			return err
		}
		if err := informer.AddEventHandler(storeEvents{c}); err != nil {
			return err
		}
	}
	return nil
}

// storeEvents handles changes while the store is locked, so it must not call the store.
type storeEvents struct{ all *Clusters }

func (e storeEvents) OnCreate(string, client.Object)  {}
func (e storeEvents) OnGeneric(string, client.Object) {}

// OnUpdate removes etcd members whose Pods are annotated as removed. Their API servers fail from
// then on.
func (e storeEvents) OnUpdate(group string, _, is client.Object) {
	node, isEtcd := nodeOf(is.GetName())
	_, removed := is.GetAnnotations()[cloudv1.EtcdMemberRemoved]
	if !isEtcd || !removed || is.GetNamespace() != metav1.NamespaceSystem {
		return
	}
	if c := e.all.clusterOf(group); c != nil {
		c.members.remove(node)
	}
}

// OnDelete deletes the Pods of deleted Nodes.
func (e storeEvents) OnDelete(group string, is client.Object) {
	if is.GetNamespace() != "" {
		return
	}
	if c := e.all.clusterOf(group); c != nil {
		e.all.later(func() { c.deletePodsOf(is.GetName()) })
	}
}

// clusterOf returns the cluster with an object group, or nil.
func (c *Clusters) clusterOf(group string) *cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.clusters {
		if one.group == group {
			return one
		}
	}
	return nil
}

// deletePodsOf deletes the Pods of a deleted Node. The Pod of an etcd member stays until the
// member is removed from etcd.
func (c *cluster) deletePodsOf(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.store.Get(c.all.life, client.ObjectKey{Name: node}, &corev1.Node{}); err == nil {
		return
	}
	pods, err := c.pods(c.all.life)
	if err != nil {
		return
	}
	for i := range pods {
		_, removed := pods[i].Annotations[cloudv1.EtcdMemberRemoved]
		_, isEtcd := nodeOf(pods[i].Name)
		if pods[i].Spec.NodeName == node && (removed || !isEtcd) {
			_ = c.store.Delete(c.all.life, &pods[i])
		}
	}
}
