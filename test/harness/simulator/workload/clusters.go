package workload

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	inmemory "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	"sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server/api"
	"sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server/etcd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/kubeadm"
)

// Options are the settings of Clusters. The zero value is kubeadm's and Kubernetes' defaults.
type Options struct {
	// Clock is the clock of hosts and clusters; nil means the system's clock.
	Clock clock.WithDelayedExecution
	// NodeGrace is how long a kubelet may be silent before its Node is Unknown; 0 means 40 s.
	NodeGrace time.Duration
	// JoinTimeout is how long a join tries to find its cluster; 0 means 5 minutes, kubeadm's.
	JoinTimeout time.Duration
	// Site makes API servers admit the hosts of the simulation alone, as at a site behind NAT: everybody else's connections
	// are reset. Strangers returns them.
	Site bool
	// Log gets the logs of the in-memory servers; the zero value drops them.
	Log logr.Logger
}

const (
	defaultNodeGrace   = 40 * time.Second
	defaultJoinTimeout = 5 * time.Minute
)

// Clusters runs the workload clusters on the hosts of a fleet. Create it with New. It is safe for
// concurrent use.
type Clusters struct {
	o       Options
	manager inmemory.Manager
	// api and etcd serve all clusters. The request's Host selects the cluster.
	api, etcd http.Handler
	// life ends with Close.
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu sync.Mutex
	// hosts has the hosts that got bootstrap data, by name.
	hosts map[string]*host
	// clusters has the clusters by the hash of their CA certificate.
	clusters map[string]*cluster
	// addresses has the object group that is served at each address.
	addresses map[netip.Addr]string
	// site has the addresses of all hosts that ever got bootstrap data.
	site      map[netip.Addr]bool
	strangers []netip.Addr
	made      int
	closed    bool
}

var _ fleet.Software = (*Clusters)(nil)

// New returns Clusters without a cluster. The caller must call Close.
func New(ctx context.Context, o Options) (*Clusters, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.NodeGrace == 0 {
		o.NodeGrace = defaultNodeGrace
	}
	if o.JoinTimeout == 0 {
		o.JoinTimeout = defaultJoinTimeout
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	if err := checkPorts(kubeadm.DefaultPort, etcdPort); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making a scheme: %w", err)
		}
	}
	c := &Clusters{o: o, manager: inmemory.NewManager(scheme), hosts: map[string]*host{}, clusters: map[string]*cluster{}, addresses: map[netip.Addr]string{}, site: map[netip.Addr]bool{}}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	c.life, c.end = life, end
	if err := c.manager.Start(ctrl.LoggerInto(life, o.Log)); err != nil {
		end()
		return nil, fmt.Errorf("starting the objects' store: %w", err)
	}
	if err := c.watch(); err != nil {
		c.end()
		return nil, err
	}
	c.api = api.NewAPIServerHandler(c.manager, o.Log, c.group)
	c.etcd = etcd.NewEtcdServerHandler(c.manager, o.Log, c.group)
	return c, nil
}

// Close stops all clusters immediately. When it returns, no listener is left. Files stay.
func (c *Clusters) Close() {
	c.mu.Lock()
	c.closed = true
	var all []*host
	for _, h := range c.hosts {
		h.power = false
		all = append(all, h)
	}
	c.mu.Unlock()
	for _, h := range all {
		_ = h.reconcile()
	}
	c.end()
	c.work.Wait()
}

// later runs work in a goroutine, unless Clusters is closed.
func (c *Clusters) later(work func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Go(work)
	}
}

// group returns the object group that is served at an address, host:port.
func (c *Clusters) group(at string) (string, error) {
	address, err := netip.ParseAddrPort(at)
	if err != nil {
		return "", fmt.Errorf("looking for the cluster at %s: %w", at, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	group, ok := c.addresses[address.Addr().Unmap()]
	if !ok {
		return "", fmt.Errorf("looking for the cluster at %s: no cluster has this address", at)
	}
	return group, nil
}

// Strangers returns the addresses of others than hosts whose connections API servers have reset, see Options.Site.
func (c *Clusters) Strangers() []netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.strangers)
}

// fromSite reports whether a connection to an API server comes from a host, and records those that don't.
func (c *Clusters) fromSite(address netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.site[address] {
		c.strangers = append(c.strangers, address)
	}
	return c.site[address]
}

// Halt stops everything on a host immediately.
func (c *Clusters) Halt(m fleet.Machine) {
	_ = c.change(m, func(h *host) { h.power, h.refused = false, netip.AddrPort{} })
}

// Boot starts the installed software of a host.
func (c *Clusters) Boot(ctx context.Context, m fleet.Machine) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("booting %s: %w", m.Name, err)
	}
	if err := c.change(m, func(h *host) { h.power = true }); err != nil {
		return fmt.Errorf("booting %s: %w", m.Name, err)
	}
	return nil
}

// Network disconnects or reconnects a host.
func (c *Clusters) Network(m fleet.Machine, up bool) {
	_ = c.change(m, func(h *host) { h.network = up })
}

// Refuse makes a host refuse connections to one of its addresses and ports.
func (c *Clusters) Refuse(m fleet.Machine, at netip.AddrPort) {
	_ = c.change(m, func(h *host) { h.refused = at })
}

// change changes the desired state of a host and applies it. Only a start can fail.
func (c *Clusters) change(m fleet.Machine, set func(*host)) error {
	c.mu.Lock()
	h := c.hosts[m.Name]
	if h != nil {
		set(h)
	}
	c.mu.Unlock()
	if h == nil {
		return nil
	}
	return h.reconcile()
}
