package workload

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	inmemory "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/certs"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/objects"
)

// cluster is a workload cluster.
type cluster struct {
	all *Clusters
	// group is the name of its objects in the store.
	group string
	store inmemory.Client
	// authority signs all certificates but those of etcd.
	authority, etcdAuthority *certs.Authority
	members                  members

	// mu is held while hosts are added, removed and changed. Request handlers and store callbacks
	// must not lock it.
	mu    sync.Mutex
	hosts map[string]*host
	// nextInspection is nil while all hosts are healthy.
	nextInspection clock.Timer
}

// etcdID returns a new ID for an etcd cluster or member, unique among all simulated clusters.
func (c *Clusters) etcdID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	return fmt.Sprint(c.made)
}

// addHost adds a host: its objects first, then its servers. The caller holds c.mu. After an error
// the host may be a member that does not run; removeHost removes it.
func (c *cluster) addHost(ctx context.Context, h *host, etcdCluster string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := c.all.o.Clock.Now()
	if err := c.register(ctx, h.kubelet, now); err != nil {
		return err
	}
	if h.local != nil {
		if err := c.addMember(ctx, h, etcdCluster, now); err != nil {
			return err
		}
	}
	c.hosts[h.machine.Name], h.seen = h, now
	c.all.mu.Lock()
	h.cluster = c
	h.power = h.power && !c.all.closed
	on := h.power
	c.all.addresses[h.machine.Address] = c.group
	c.all.mu.Unlock()
	err := h.apply()
	c.inspect()
	if err == nil && !on {
		err = errors.New("the host lost its power")
	}
	return err
}

// addMember adds a control-plane host's static Pods, one of which is an etcd member.
func (c *cluster) addMember(ctx context.Context, h *host, etcdCluster string, now time.Time) error {
	node := h.kubelet.Name
	for _, component := range objects.Components() {
		annotations := map[string]string{}
		if component == objects.Etcd {
			annotations[cloudv1.EtcdClusterIDAnnotationName] = etcdCluster
			annotations[cloudv1.EtcdMemberIDAnnotationName] = c.all.etcdID()
			if len(c.hosts) == 0 {
				annotations[cloudv1.EtcdLeaderFromAnnotationName] = now.Format(time.RFC3339)
			}
		}
		pod := objects.StaticPod(component, h.kubelet, annotations, now)
		// An earlier bootstrap of the host may have left the Pod.
		if err := c.store.Delete(ctx, pod); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing a former Pod %s: %w", pod.Name, err)
		}
		if err := c.store.Create(ctx, pod); err != nil {
			return fmt.Errorf("making Pod %s: %w", pod.Name, err)
		}
	}
	c.members.add(node, member{api: h.local.api, etcd: h.local.etcd, forwarded: h.local.api, up: true})
	return nil
}

// etcdCluster returns the ID of the etcd cluster, which the members' Pods carry.
func (c *cluster) etcdCluster(ctx context.Context) (string, error) {
	pods, err := c.pods(ctx)
	if err != nil {
		return "", err
	}
	for _, pod := range pods {
		if id, ok := pod.Annotations[cloudv1.EtcdClusterIDAnnotationName]; ok {
			return id, nil
		}
	}
	return "", errors.New("the cluster has no etcd member")
}

// register registers a kubelet's Node. As with kubeadm, a Ready Node of that name belongs to
// another host, and the registration fails.
func (c *cluster) register(ctx context.Context, kubelet objects.Kubelet, now time.Time) error {
	node := kubelet.Node(uuid.NewUUID(), now)
	err := c.store.Create(ctx, node)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("registering Node %s: %w", kubelet.Name, err)
		}
		return nil
	}
	var taken bool
	if err := c.updateNode(ctx, kubelet.Name, func(is *corev1.Node) bool {
		taken = objects.IsReady(is)
		if !taken {
			objects.Reregister(is, node)
		}
		return !taken
	}); err != nil {
		return err
	}
	if taken {
		return fmt.Errorf("a Node with name %q and status Ready already exists in the cluster", kubelet.Name)
	}
	return nil
}

// maxConflicts bounds how often an update is tried again after a conflict.
const maxConflicts = 10

// updateNode updates a Node unless it is missing or change returns false.
func (c *cluster) updateNode(ctx context.Context, name string, change func(*corev1.Node) bool) error {
	var err error
	for range maxConflicts {
		node := &corev1.Node{}
		if err = c.store.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			break
		}
		if !change(node) {
			return nil
		}
		if err = c.store.Update(ctx, node); !apierrors.IsConflict(err) {
			break
		}
	}
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("updating Node %s: %w", name, err)
	}
	return nil
}

// updatePod updates a control-plane Pod unless it is missing or change returns false.
func (c *cluster) updatePod(ctx context.Context, name string, change func(*corev1.Pod) bool) error {
	var err error
	for range maxConflicts {
		pod := &corev1.Pod{}
		if err = c.store.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, pod); err != nil {
			break
		}
		if !change(pod) {
			return nil
		}
		if err = c.store.Update(ctx, pod); !apierrors.IsConflict(err) {
			break
		}
	}
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("updating Pod %s: %w", name, err)
	}
	return nil
}

// pods returns the static Pods of all control-plane nodes.
func (c *cluster) pods(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.store.List(ctx, list, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"tier": "control-plane"}); err != nil {
		return nil, fmt.Errorf("listing static Pods: %w", err)
	}
	return list.Items, nil
}

// nodeOf returns the node of an etcd member's Pod.
func nodeOf(pod string) (node string, ok bool) {
	return strings.CutPrefix(pod, objects.PodName(objects.Etcd, ""))
}

// tlsConfig returns the configuration of a server. Clients may or must have a certificate of the
// authority, as demand says.
func tlsConfig(pair certs.Pair, clients *certs.Authority, demand tls.ClientAuthType) (*tls.Config, error) {
	certificate, err := pair.TLS()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate},
		ClientAuth: demand, ClientCAs: clients.Pool(),
	}, nil
}
