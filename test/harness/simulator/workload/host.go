package workload

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/kubeadm"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/objects"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/serving"
)

// etcdPort is the client port of etcd members.
const etcdPort = 2379

// host is a host that got bootstrap data.
type host struct {
	all     *Clusters
	machine fleet.Machine

	// The desired state, protected by all.mu.
	power, network bool
	refused        netip.AddrPort
	// cluster is nil until the host starts to join one.
	cluster *cluster

	// The fields below are protected by cluster.mu.
	kubelet objects.Kubelet
	// local is nil on a worker.
	local *local
	// running is the applied state of power.
	running bool
	// seen is when the kubelet last reached an API server; silent is set when its Node is Unknown.
	seen   time.Time
	silent bool
}

// local is the control-plane part of a host.
type local struct {
	api, etcd       netip.AddrPort
	apiTLS, etcdTLS *tls.Config
	// servers are set while the host runs.
	servers []*serving.Server
	// forwarded is where the port of the API server's Pod is forwarded to, which the host itself does, so that nobody is outside.
	forwarded netip.AddrPort
}

// desiredState is the desired state of a host.
type desiredState struct {
	power, network bool
	refused        netip.AddrPort
}

// desired returns the desired state of a host, and its cluster.
func (h *host) desired() (desiredState, *cluster) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	return desiredState{h.power, h.network, h.refused}, h.cluster
}

// reconcile applies the desired state and repeats this if the state has changed meanwhile.
func (h *host) reconcile() error {
	_, c := h.desired()
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := h.apply()
	c.inspect()
	return err
}

// apply starts, stops or limits the host's servers as the desired state requires. The caller holds
// c.mu.
func (h *host) apply() error {
	to, c := h.desired()
	if _, member := c.hosts[h.machine.Name]; !member {
		to.power = false
	}
	var err error
	if to.power != h.running {
		if to.power {
			err = h.local.start(c)
		} else {
			h.local.stop()
		}
		h.running = to.power && err == nil
	}
	if h.local == nil {
		return err
	}
	h.local.admit(h.machine.Address, to, h.all.outside())
	c.members.set(h.kubelet.Name, h.running && to.network, h.local.forwarded)
	return err
}

// start starts the API server and the etcd member, if the host has them.
func (l *local) start(c *cluster) error {
	if l == nil {
		return nil
	}
	etcd, err := serving.Start(l.etcd, l.etcdTLS, nil, c.serveEtcd(l.etcd))
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	api, err := serving.Start(l.api, l.apiTLS, c.all.outside(), c.serveAPI(l.api))
	if err != nil {
		etcd.Close()
		return fmt.Errorf("starting the API server: %w", err)
	}
	l.servers, l.forwarded = []*serving.Server{api, etcd}, l.api
	if !c.all.o.Site {
		return nil
	}
	forwarded, err := serving.Start(netip.AddrPortFrom(l.api.Addr(), 0), l.apiTLS, nil, c.serveAPI(l.api))
	if err != nil {
		l.stop()
		return fmt.Errorf("forwarding the port of the API server: %w", err)
	}
	l.servers, l.forwarded = append(l.servers, forwarded), forwarded.Address()
	return nil
}

func (l *local) stop() {
	if l == nil {
		return
	}
	for _, server := range l.servers {
		server.Close()
	}
	l.servers = nil
}

// outside returns who may connect to API servers of hosts that have a network; nil means everybody. This process forwards ports
// of Pods in place of the hosts, so etcd admits everybody.
func (c *Clusters) outside() func(netip.Addr) bool {
	if c.o.Site {
		return c.fromSite
	}
	return nil
}

// admit limits connections: only the host itself reaches a disconnected host or a refused port.
func (l *local) admit(own netip.Addr, to desiredState, toAPI func(netip.Addr) bool) {
	itself := func(from netip.Addr) bool { return from == own }
	for i, at := range []netip.AddrPort{l.api, l.etcd} {
		if i >= len(l.servers) {
			return
		}
		switch {
		case !to.network || to.refused == at:
			l.servers[i].Admit(itself)
		case at == l.api:
			l.servers[i].Admit(toAPI)
		default:
			l.servers[i].Admit(nil)
		}
	}
}

// servingAddresses returns the addresses of a control-plane host's servers. Only loopback
// addresses are allowed.
func servingAddresses(m fleet.Machine, at kubeadm.Local) (api, etcd netip.AddrPort, err error) {
	address := m.Address
	if at.Advertised.IsValid() {
		address = at.Advertised.Unmap()
	}
	if !address.IsLoopback() || address != m.Address {
		return api, etcd, fmt.Errorf("advertising %s: %w", address, errForeign)
	}
	return netip.AddrPortFrom(address, at.Port), netip.AddrPortFrom(address, etcdPort), nil
}

var errForeign = errors.New("a simulated host has one address, of the loopback")
