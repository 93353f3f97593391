package fleet

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
)

// Host is a virtual host. It is safe for concurrent use. Methods that change its power
// return after the change.
type Host struct {
	// Name is the host's name in its Fleet.
	Name string
	// Address is its only address.
	Address netip.Addr

	fleet   *Fleet
	skew    time.Duration
	disk    disk
	network network

	// power is held while the host's power changes.
	power sync.Mutex
	// suspended is the ID of the boot that goes on when a fleet runs the host again; blank: it boots then.
	suspended string

	mu sync.Mutex
	// boot is nil while the host is off.
	boot       *boot
	connection connection.Status
	done       Done
}

// Done counts events of a host.
type Done struct {
	Boots      int `json:"boots"`
	Crashes    int `json:"crashes"`
	Cuts       int `json:"cuts"` // off the network
	Bootstraps int `json:"bootstraps"`
	Resets     int `json:"resets"`
	Upgrades   int `json:"upgrades"` // of Kubernetes
}

// name returns the name of the host with a number, from 0. All names of a fleet have the
// same length.
func (f *Fleet) name(number int) string {
	return fmt.Sprintf("%s-%0*d", f.settings.Prefix, len(strconv.Itoa(f.settings.Count)), number+1)
}

func (f *Fleet) newHost(number int) *Host {
	h := &Host{
		Name: f.name(number), Address: f.block.address(number), fleet: f, disk: disk{documents: map[string]string{}},
	}
	h.disk.hostname = h.Name
	if most := f.settings.ClockSkew; most > 0 {
		random := mathrand.New(mathrand.NewPCG(f.settings.Seed, ^uint64(number)))
		h.skew = time.Duration((2*random.Float64() - 1) * float64(most))
	}
	h.network = network{fleet: f, address: h.Address, root: h.root(), off: true}
	f.counts.move("", stateOff)
	return h
}

// PowerOn switches the host on, if it is off.
func (h *Host) PowerOn() {
	h.power.Lock()
	defer h.power.Unlock()
	if h.current() == nil && h.fleet.ctx.Err() == nil {
		h.start()
	}
}

// PowerOff cuts the power: nothing shuts down in order, and connections end silently.
// The disk survives.
func (h *Host) PowerOff() {
	h.power.Lock()
	defer h.power.Unlock()
	if b := h.current(); b != nil {
		h.halt(b, false)
	}
}

// Reboot reboots the host in order, as an administrator does.
func (h *Host) Reboot() {
	if b := h.current(); b != nil {
		h.restart(b)
	}
}

// restart shuts a boot down in order and starts the next one. It does nothing if that boot
// is over.
func (h *Host) restart(b *boot) {
	h.power.Lock()
	defer h.power.Unlock()
	if h.current() != b {
		return
	}
	h.halt(b, true)
	if h.fleet.ctx.Err() == nil {
		h.start()
	}
}

// Crash kills the agent if it runs. Its jobs continue, and its service restarts it.
func (h *Host) Crash() {
	b := h.current()
	if b == nil {
		return
	}
	b.mu.Lock()
	process := b.process
	b.mu.Unlock()
	if process == nil {
		return
	}
	process.kill()
	h.network.end()
	<-process.over
	h.count(func(d *Done) { d.Crashes++ })
}

// SetNetwork disconnects the host from its network or reconnects it. The setting survives
// power cuts and reboots.
func (h *Host) SetNetwork(up bool) {
	h.power.Lock()
	defer h.power.Unlock()
	b := h.current()
	h.network.set(b == nil, !up, false)
	if !up {
		h.count(func(d *Done) { d.Cuts++ })
	}
	if b != nil && up {
		b.mu.Lock()
		changed := b.networkChanged
		b.mu.Unlock()
		if changed != nil {
			changed()
		}
	}
	if software := h.fleet.settings.Software; software != nil && h.isInstalled() {
		software.Network(h.machine(), up)
	}
}

// start switches on. h.power is held.
func (h *Host) start() {
	h.network.mu.Lock()
	h.network.off = false
	h.network.mu.Unlock()
	ctx, cut := context.WithCancel(context.Background())
	b := &boot{host: h, id: h.suspended, ctx: ctx, cut: cut}
	h.suspended = ""
	h.mu.Lock()
	if b.id == "" {
		b.id = rand.Text()
		h.done.Boots++
	}
	h.boot = b
	h.connection = connection.Status{}
	h.mu.Unlock()
	h.fleet.counts.move(stateOff, stateStarting)
	b.running.Go(b.serve)
}

// halt switches off. h.power is held.
func (h *Host) halt(b *boot, inOrder bool) {
	// In this order: later writes and messages must have no effect.
	b.mu.Lock()
	if b.process != nil {
		b.process.mount.kill()
	}
	b.mu.Unlock()
	h.network.mu.Lock()
	cut := h.network.cut
	h.network.mu.Unlock()
	h.network.set(true, cut, inOrder)
	b.cut()
	if software := h.fleet.settings.Software; software != nil && h.isInstalled() {
		software.Halt(h.machine())
	}
	b.running.Wait()
	h.mu.Lock()
	before := countedAs(h.boot, h.connection)
	h.boot = nil
	h.connection = connection.Status{}
	h.mu.Unlock()
	h.fleet.counts.move(before, stateOff)
}

func (h *Host) current() *boot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boot
}

func (h *Host) isInstalled() bool {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	return h.disk.installed
}

// machine returns the Machine for the host's Software.
func (h *Host) machine() Machine {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	return Machine{Name: h.Name, Hostname: h.disk.hostname, Address: h.Address, Root: h.root(), Dial: h.network.dialAsProgram}
}

// root returns the folder of the root file system. It exists only while the host has
// software.
func (h *Host) root() string { return filepath.Join(h.fleet.folder, h.Name) }

func (h *Host) makeRoot() error {
	if err := os.MkdirAll(h.root(), 0o700); err != nil {
		return fmt.Errorf("making the root file system of %s: %w", h.Name, err)
	}
	return nil
}

func (h *Host) count(change func(*Done)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.done)
}

// setConnection records the agent's connection state.
func (h *Host) setConnection(b *boot, c connection.Status) {
	h.mu.Lock()
	if h.boot != b {
		h.mu.Unlock()
		return
	}
	before := countedAs(b, h.connection)
	h.connection = c
	h.mu.Unlock()
	h.fleet.counts.move(before, countedAs(b, c))
}
