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

	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/workload/certs"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/workload/objects"
)

// lookEvery is how often hosts are looked at while something is amiss with one.
const lookEvery = 5 * time.Second

// inspect does what kubelets, etcd and the node lifecycle controller do when a host comes or goes: an etcd
// member that runs leads, and Nodes say whether their kubelets reach an API server. It comes back while some
// don't. c.mu is held.
func (c *cluster) inspect() {
	if c.next != nil {
		c.next.Stop()
		c.next = nil
	}
	if c.all.life.Err() != nil {
		return
	}
	now := c.all.o.Clock.Now()
	c.elect(now)
	working, amiss := c.works(), false
	for _, h := range c.hosts {
		reaches := c.reaches(h)
		if reaches {
			h.seen = now
		}
		amiss = amiss || !reaches
		silent := !reaches && (h.silent || (working && now.Sub(h.seen) >= c.all.o.NodeGrace))
		if silent != h.silent && c.mark(h, silent, now) {
			h.silent = silent
		}
	}
	if amiss {
		c.next = c.all.o.Clock.AfterFunc(lookEvery, c.look)
	}
}

// look is inspect, later. A clock must not wait for the lock.
func (c *cluster) look() {
	c.all.later(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inspect()
	})
}

// works reports whether some API server answers, and so controllers work.
func (c *cluster) works() bool {
	for _, h := range c.hosts {
		if h.local != nil && c.members.work(h.local.api.Addr()) {
			return true
		}
	}
	return false
}

// reaches reports whether a host's kubelet reaches an API server that works: on control-plane hosts their own,
// on workers the one in its kubeconfig.
func (c *cluster) reaches(h *host) bool {
	to, _ := h.wishes()
	if !h.running || !to.network {
		return false
	}
	if h.local != nil {
		return c.members.work(h.local.api.Addr())
	}
	at, ok := h.server()
	if !ok {
		return false
	}
	for _, other := range c.hosts {
		if other.local == nil || other.local.api != at || !other.running {
			continue
		}
		its, _ := other.wishes()
		return its.network && its.refused != at && c.members.work(at.Addr())
	}
	return false
}

// server is where the host's kubelet finds the API server. The agent may have changed it.
func (h *host) server() (at netip.AddrPort, ok bool) {
	text, err := os.ReadFile(filepath.Join(h.machine.Root, kubeletConf))
	if err != nil {
		return at, false
	}
	server, err := certs.Server(text)
	if err != nil {
		return at, false
	}
	u, err := url.Parse(server)
	if err != nil {
		return at, false
	}
	at, err = netip.ParseAddrPort(u.Host)
	return at, err == nil
}

// mark says in the Node and its Pods whether the kubelet is heard of. A Node that was deleted stays so, since
// kubelets register when they start only. done is false where it has to be tried again.
func (c *cluster) mark(h *host, silent bool, now time.Time) (done bool) {
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

// elect makes a member the leader that runs, unless one is or none can be. The store knows the leader by the
// latest time that a Pod is annotated with, to the second.
func (c *cluster) elect(now time.Time) {
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
	// It is tried again, since a leader that is down has a host that is amiss.
	_ = c.updatePod(c.all.life, objects.PodName(objects.Etcd, candidate), func(pod *corev1.Pod) bool {
		pod.Annotations[cloudv1.EtcdLeaderFromAnnotationName] = now.Format(time.RFC3339)
		return true
	})
}

// watch has the clusters hear of changes that Cluster API makes.
func (c *Clusters) watch() error {
	for _, one := range []client.Object{&corev1.Node{}, &corev1.Pod{}} {
		informer, err := c.manager.GetCache().GetInformer(c.life, one)
		if err != nil {
			return err
		}
		if err := informer.AddEventHandler(ears{c}); err != nil {
			return err
		}
	}
	return nil
}

// ears hear of changes while the store is locked: they must not call it.
type ears struct{ all *Clusters }

func (e ears) OnCreate(string, client.Object)  {}
func (e ears) OnGeneric(string, client.Object) {}

// OnUpdate hears of etcd members that are removed: their API servers can do nothing any more.
func (e ears) OnUpdate(group string, _, is client.Object) {
	node, isEtcd := nodeOf(is.GetName())
	_, removed := is.GetAnnotations()[cloudv1.EtcdMemberRemoved]
	if !isEtcd || !removed || is.GetNamespace() != metav1.NamespaceSystem {
		return
	}
	if c := e.all.named(group); c != nil {
		c.members.remove(node)
	}
}

// OnDelete hears of Nodes that are deleted, whose Pods are collected then.
func (e ears) OnDelete(group string, is client.Object) {
	if is.GetNamespace() != "" {
		return
	}
	if c := e.all.named(group); c != nil {
		e.all.later(func() { c.collect(is.GetName()) })
	}
}

// named finds a cluster by its group.
func (c *Clusters) named(group string) *cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.clusters {
		if one.group == group {
			return one
		}
	}
	return nil
}

// collect removes the Pods of a Node that is gone. An etcd member stays one until it is removed as such.
func (c *cluster) collect(node string) {
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
