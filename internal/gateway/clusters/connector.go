package clusters

import (
	"context"
	"fmt"
	"net"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

// Options of a Connector.
type Options struct {
	// Cache has Clusters and ElementalClusters. Live reads Secrets past it.
	Cache, Live client.Reader
	// Dial connects to an API server of the cluster. The context bounds the dial, not the
	// connection.
	Dial  func(ctx context.Context, cluster types.NamespacedName) (net.Conn, error)
	Clock clock.PassiveClock
	// Namespace is the only one in the cache; blank for all.
	Namespace string
}

// Connector implements proxy.Clusters. It is safe for concurrent use.
type Connector struct {
	o  Options
	mu sync.Mutex
	// known are the clusters that were connected to.
	known map[types.NamespacedName]*cluster
}

// New returns a Connector.
func New(o Options) *Connector {
	return &Connector{o: o, known: map[types.NamespacedName]*cluster{}}
}

// Connect implements proxy.Clusters. Users have access through the gateway if the cluster's
// endpoint is of type Tunnel, or spec.access is set.
func (c *Connector) Connect(ctx context.Context, key types.NamespacedName, as proxy.Identity) (proxy.Connection, error) {
	found, err := c.connection(ctx, key, (*infrav1.ElementalCluster).AdmitsUsers)
	if err != nil {
		return proxy.Connection{}, err
	}
	token, err := found.account.Token(ctx, as)
	if err != nil {
		return proxy.Connection{}, fmt.Errorf("%w: %w", proxy.ErrUnreachable, err)
	}
	return proxy.Connection{Requests: found.requests, Upgrades: found.upgrades, Host: found.host, Token: token}, nil
}

// Admin returns a client of the workload cluster that has the rights of the kubeconfig which
// Cluster API's controllers use. It knows few kinds: see scheme.
func (c *Connector) Admin(ctx context.Context, key types.NamespacedName) (client.Client, error) {
	found, err := c.connection(ctx, key, (*infrav1.ElementalCluster).HasTunnels)
	if err != nil {
		return nil, err
	}
	return found.admin, nil
}

// connection returns how to connect to a cluster that may be connected to, or
// proxy.ErrNoCluster.
func (c *Connector) connection(ctx context.Context, key types.NamespacedName, may func(*infrav1.ElementalCluster) bool) (*cluster, error) {
	owner, infra, err := c.find(ctx, key)
	if err != nil {
		return nil, err
	}
	if infra == nil || !may(infra) {
		c.forget(key)
		return nil, fmt.Errorf("finding Cluster %s: %w", key, proxy.ErrNoCluster)
	}
	return c.cluster(ctx, key, identity{uid: owner.UID, isNamed: infra.EndpointType() == infrav1.EndpointTypeTunnel})
}

// find returns a Cluster and its ElementalCluster, which refer to each other
// (docs/adr/0044); nil if there are none.
func (c *Connector) find(ctx context.Context, key types.NamespacedName) (*clusterv1.Cluster, *infrav1.ElementalCluster, error) {
	if c.o.Namespace != "" && key.Namespace != c.o.Namespace {
		return nil, nil, nil
	}
	owner, infra := &clusterv1.Cluster{}, &infrav1.ElementalCluster{}
	if err := c.o.Cache.Get(ctx, key, owner); err != nil {
		return nil, nil, ignoreNotFound("Cluster", err)
	}
	ref := owner.Spec.InfrastructureRef
	if ref.Name == "" {
		return nil, nil, nil
	}
	if err := c.o.Cache.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: ref.Name}, infra); err != nil {
		return nil, nil, ignoreNotFound("ElementalCluster", err)
	}
	if !ownership.IsInfraCluster(infra, owner) {
		return nil, nil, nil
	}
	return owner, infra, nil
}

func ignoreNotFound(kind string, err error) error {
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("getting %s: %w", kind, err)
	}
	return nil
}

// cluster returns how to connect to a cluster. It reads the kubeconfig once in readInterval, and
// keeps connections and account until the kubeconfig changes.
func (c *Connector) cluster(ctx context.Context, key types.NamespacedName, is identity) (*cluster, error) {
	c.mu.Lock()
	known := c.known[key]
	c.mu.Unlock()
	if known != nil && known.identity == is && c.o.Clock.Since(known.readAt) < readInterval {
		return known, nil
	}
	kubeconfig, err := c.kubeconfig(ctx, key)
	if err != nil {
		return nil, err
	}
	if known != nil && known.identity == is && known.kubeconfig == kubeconfig {
		renewed := *known
		renewed.readAt = c.o.Clock.Now()
		return c.remember(key, &renewed), nil
	}
	made, err := c.connectTo(key, is, kubeconfig)
	if err != nil {
		return nil, err
	}
	return c.remember(key, made), nil
}

// remember stores how to connect to a cluster, and returns it. If another request has stored the
// same kubeconfig first, remember returns that one: two accounts would create the same
// ServiceAccount, and one of them would fail.
func (c *Connector) remember(key types.NamespacedName, made *cluster) *cluster {
	c.mu.Lock()
	former := c.known[key]
	isRenewed := former != nil && former.requests == made.requests
	if former != nil && !isRenewed && former.identity == made.identity && former.kubeconfig == made.kubeconfig {
		c.mu.Unlock()
		return former
	}
	c.known[key] = made
	c.mu.Unlock()
	if former != nil && !isRenewed {
		former.close()
	}
	return made
}

func (c *Connector) forget(key types.NamespacedName) {
	c.mu.Lock()
	former := c.known[key]
	delete(c.known, key)
	c.mu.Unlock()
	if former != nil {
		former.close()
	}
}
