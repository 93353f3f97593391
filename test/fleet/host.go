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

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
)

// Host is a virtual host. Its methods may be called at any time by several
// goroutines; those that change its power return when that is done.
type Host struct {
	// Name is the host's in its Fleet.
	Name string
	// Address is its only one.
	Address netip.Addr

	fleet   *Fleet
	skew    time.Duration
	disk    disk
	network network

	// power is held while the host's power changes.
	power sync.Mutex

	mu sync.Mutex
	// boot is nil while the host is off.
	boot       *boot
	connection agent.Connection
	done       Done
}

// Done counts what a host has done.
type Done struct {
	Boots      int `json:"boots"`
	Crashes    int `json:"crashes"`
	Cuts       int `json:"cuts"` // off the network
	Bootstraps int `json:"bootstraps"`
	Resets     int `json:"resets"`
}

// name is the host's that has a number, from 0. All names of a fleet have the same
// length.
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
	h.network = network{fleet: f, address: h.Address, off: true}
	f.counts.move("", stateOff)
	return h
}

// PowerOn switches the host on, if it is off.
func (h *Host) PowerOn() {
	h.power.Lock()
	defer h.power.Unlock()
	if h.current() == nil && h.fleet.life.Err() == nil {
		h.start()
	}
}

// PowerOff is a power cut: nothing is ended in order, and nobody is told. What was on
// the disk remains.
func (h *Host) PowerOff() { h.powerOff(false) }

func (h *Host) powerOff(inOrder bool) {
	h.power.Lock()
	defer h.power.Unlock()
	if b := h.current(); b != nil {
		h.halt(b, inOrder)
	}
}

// Reboot restarts the host, as a person at its console does.
func (h *Host) Reboot() {
	if b := h.current(); b != nil {
		h.restart(b)
	}
}

// restart ends a boot in order and begins the next. It does nothing if that boot is
// over.
func (h *Host) restart(b *boot) {
	h.power.Lock()
	defer h.power.Unlock()
	if h.current() != b {
		return
	}
	h.halt(b, true)
	if h.fleet.life.Err() == nil {
		h.start()
	}
}

// Crash kills the agent, if it runs. What it started goes on, and its service starts
// it again.
func (h *Host) Crash() {
	b := h.current()
	if b == nil {
		return
	}
	b.mu.Lock()
	life := b.life
	b.mu.Unlock()
	if life == nil {
		return
	}
	life.kill()
	h.network.end()
	<-life.over
	h.count(func(d *Done) { d.Crashes++ })
}

// SetNetwork cuts the host off from its network, or joins it up again. A power cut
// and a reboot change nothing about that.
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
	b := &boot{host: h, id: rand.Text(), ctx: ctx, cut: cut}
	h.mu.Lock()
	h.boot = b
	h.connection = agent.Connection{}
	h.done.Boots++
	h.mu.Unlock()
	h.fleet.counts.move(stateOff, stateStarting)
	b.running.Go(b.serve)
}

// halt switches off. h.power is held.
func (h *Host) halt(b *boot, inOrder bool) {
	// In this order: what is written or said from now on never was.
	b.mu.Lock()
	if b.life != nil {
		b.life.mount.kill()
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
	h.connection = agent.Connection{}
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

// machine is the host as its software sees it.
func (h *Host) machine() Machine {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	return Machine{Name: h.Name, Hostname: h.disk.hostname, Address: h.Address, Root: h.root()}
}

// root is the folder of the root file system, which is there only while the host has
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

// connected takes note of how the agent stands with its manager.
func (h *Host) connected(b *boot, c agent.Connection) {
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
