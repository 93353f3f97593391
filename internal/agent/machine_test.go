package agent_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// machine is a fake host that records the changes made to it.
type machine struct {
	mu        sync.Mutex
	preflight protocol.Preflight
	bootID    string
	hostname  string
	dirty     []string
	addresses []protocol.Address
	// changed is called after a change of the addresses; it is set before watched is closed.
	changed func()
	watched chan struct{}
	watch   sync.Once
	// scripts counts how often the script of a bootstrap ran.
	scripts map[string]int
	undone  int
	reboots int
	aborted int
	linked  []string
	// labelled, if not nil, gets the labels that the agent sets.
	labelled chan map[string]string
	// fail makes the script fail; hold keeps it running until it is closed.
	fail    error
	hold    chan struct{}
	started chan struct{}
	// cannotClean lists the leftovers that a reset cannot remove.
	cannotClean []string
	// kept has, for each time that a reset has cleaned the host, what it was to keep.
	kept [][]string
	// goesDown is called by a reboot.
	goesDown func()
	// examined, if set, is called when the inventory is taken.
	examined func()
	// kubelet is what a search for the programs of Kubernetes finds; searches counts them.
	kubelet  protocol.Program
	searches int
	// renamed, if set, is called between two polls, when a plan with a host name has come.
	renamed func()
}

func newMachine() *machine {
	return &machine{
		bootID: "boot-1", scripts: map[string]int{}, started: make(chan struct{}, 100), watched: make(chan struct{}),
		addresses: []protocol.Address{{Type: protocol.AddressInternalIP, Address: "192.0.2.1"}},
	}
}

func (m *machine) BootID() (string, error) { return m.bootID, nil }

func (m *machine) LocalAddresses() []string { return nil }

func (m *machine) Inventory(context.Context) (protocol.Inventory, error) {
	m.mu.Lock()
	examined := m.examined
	m.mu.Unlock()
	if examined != nil {
		examined()
	}
	return protocol.Inventory{MachineID: "m"}, nil
}

func (m *machine) Preflight(context.Context) (protocol.Preflight, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.preflight, nil
}

func (m *machine) Kubernetes(context.Context) (protocol.Kubernetes, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.searches++
	return protocol.Kubernetes{Kubelet: m.kubelet}, nil
}

func (m *machine) Addresses(context.Context) ([]protocol.Address, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.addresses, nil
}

func (m *machine) Cleanliness(context.Context) (protocol.Cleanliness, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return protocol.Cleanliness{Clean: len(m.dirty) == 0, Leftovers: m.dirty}, nil
}

func (m *machine) SetHostname(_ context.Context, name string) error {
	m.mu.Lock()
	m.hostname = name
	renamed := m.renamed
	m.mu.Unlock()
	if renamed != nil {
		renamed()
	}
	return nil
}

func (m *machine) WatchAddresses(ctx context.Context, changed func()) error {
	m.mu.Lock()
	m.changed = changed
	m.mu.Unlock()
	m.watch.Do(func() { close(m.watched) })
	<-ctx.Done()
	return nil
}

// changeAddress gives the host another address, once the agent watches its addresses.
func (m *machine) changeAddress(t *testing.T, address string) {
	t.Helper()
	select {
	case <-m.watched:
	case <-time.After(time.Minute):
		t.Fatal("the agent does not watch the host's addresses")
	}
	m.mu.Lock()
	m.addresses = []protocol.Address{{Type: protocol.AddressInternalIP, Address: address}}
	changed := m.changed
	m.mu.Unlock()
	changed()
}

func (m *machine) SetProviderID(_ context.Context, providerID string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.linked = append(m.linked, providerID)
	return true, nil
}

func (m *machine) SetLabels(ctx context.Context, labels map[string]string) (bool, error) {
	if m.labelled != nil {
		select {
		case m.labelled <- labels:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}

func (m *machine) PreexistingPaths() ([]string, error) { return nil, nil }

func (m *machine) Stop(context.Context) error { return nil }

func (m *machine) Reboot(ctx context.Context) error {
	m.mu.Lock()
	m.reboots++
	down := m.goesDown
	m.mu.Unlock()
	if down == nil {
		return errors.New("this host cannot reboot")
	}
	down()
	<-ctx.Done()
	return ctx.Err()
}

func (m *machine) Clean(_ context.Context, preexisting []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(m.kept, preexisting)
	m.dirty = m.cannotClean
	return nil
}
