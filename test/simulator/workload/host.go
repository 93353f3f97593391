package workload

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/workload/kubeadm"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/workload/objects"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/workload/serving"
)

// etcdPort is where etcd members serve clients.
const etcdPort = 2379

// host is a host that was given bootstrap data.
type host struct {
	all     *Clusters
	machine fleet.Machine

	// What the host is to be, under all.mu.
	power, network bool
	refused        netip.AddrPort
	// cluster is nil until the host is about to be a member.
	cluster *cluster

	// The rest is under cluster.mu.
	kubelet objects.Kubelet
	// local is nil on a worker.
	local *local
	// running is what power was made to be.
	running bool
	// seen is when the kubelet last reached an API server; silent is set when its Node says that it does not.
	seen   time.Time
	silent bool
}

// local is a control-plane host's part.
type local struct {
	api, etcd       netip.AddrPort
	apiTLS, etcdTLS *tls.Config
	// servers are there while the host runs.
	servers []*serving.Server
}

// wish is what a host is to be.
type wish struct {
	power, network bool
	refused        netip.AddrPort
}

// wishes reads what the host is to be, and its cluster.
func (h *host) wishes() (wish, *cluster) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	return wish{h.power, h.network, h.refused}, h.cluster
}

// settle makes the host what it is to be, by now: somebody may have changed that again meanwhile.
func (h *host) settle() error {
	_, c := h.wishes()
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := h.apply()
	c.inspect()
	return err
}

// apply does settle's work on the host; c.mu is held.
func (h *host) apply() error {
	to, c := h.wishes()
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
	h.local.admit(h.machine.Address, to)
	c.members.set(h.kubelet.Name, h.running && to.network)
	return err
}

// start starts the API server and the etcd member, if the host has them.
func (l *local) start(c *cluster) error {
	if l == nil {
		return nil
	}
	etcd, err := serving.Start(l.etcd, l.etcdTLS, c.serveEtcd(l.etcd))
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	api, err := serving.Start(l.api, l.apiTLS, c.serveAPI(l.api))
	if err != nil {
		etcd.Close()
		return fmt.Errorf("starting the API server: %w", err)
	}
	l.servers = []*serving.Server{api, etcd}
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

// admit has a host that is cut off reached by itself only, and so the port of it that it refuses others at.
func (l *local) admit(own netip.Addr, to wish) {
	itself := func(from netip.Addr) bool { return from == own }
	for i, at := range []netip.AddrPort{l.api, l.etcd} {
		if i >= len(l.servers) {
			return
		}
		if to.network && to.refused != at {
			l.servers[i].Admit(nil)
		} else {
			l.servers[i].Admit(itself)
		}
	}
}

// place is where a control-plane host serves. Only loopback addresses are ever served or connected to.
func place(m fleet.Machine, at kubeadm.Local) (api, etcd netip.AddrPort, err error) {
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
