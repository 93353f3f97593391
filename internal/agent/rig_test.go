package agent_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/script"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/reboot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// scriptRunner makes the test's program the runner of scripts.
const scriptRunner = "run-script"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == scriptRunner {
		os.Exit(script.Main(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

// disk is state.Files in memory that can die.
type disk struct {
	mu      sync.Mutex
	content map[string]string
	// writes counts; at the one numbered dieAt the host dies, before or after
	// the write took effect.
	writes, dieAt int
	after         bool
	dead          chan struct{}
}

var errDead = errors.New("the host is dead")

func newDisk() *disk {
	return &disk{content: map[string]string{}, dieAt: -1, dead: make(chan struct{})}
}

// reborn is the disk as the next boot finds it.
func (d *disk) reborn(dieAt int, after bool) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &disk{content: maps.Clone(d.content), dieAt: dieAt, after: after, dead: make(chan struct{})}
}

func (d *disk) isDead() bool {
	select {
	case <-d.dead:
		return true
	default:
		return false
	}
}

func (d *disk) change(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDead() {
		return errDead
	}
	d.writes++
	if d.writes == d.dieAt {
		if d.after {
			f()
		}
		close(d.dead)
		return errDead
	}
	f()
	return nil
}

func (d *disk) Read(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDead() {
		return nil, errDead
	}
	text, ok := d.content[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

func (d *disk) Write(name string, data []byte) error {
	return d.change(func() { d.content[name] = string(data) })
}

func (d *disk) Remove(name string) error {
	return d.change(func() {
		maps.DeleteFunc(d.content, func(have, _ string) bool { return have == name || strings.HasPrefix(have, name+"/") })
	})
}

// machine is the host under test: what it is and what was done to it.
type machine struct {
	mu        sync.Mutex
	hostname  string
	dirty     []string
	addresses []protocol.Address
	changed   func()
	// scripts counts how often the script of a bootstrap ran.
	scripts map[string]int
	undone  int
	reboots int
	aborted int
	linked  []string
	// fail makes the script fail; hold keeps it running until it is closed.
	fail    error
	hold    chan struct{}
	started chan struct{}
	// cannotClean is what a reset leaves.
	cannotClean []string
	// goesDown is called by a reboot.
	goesDown func()
}

func newMachine() *machine {
	return &machine{
		scripts: map[string]int{}, started: make(chan struct{}, 100), addresses: []protocol.Address{{Type: protocol.AddressInternalIP, Address: "192.0.2.1"}},
	}
}

func (m *machine) Inventory(context.Context) (protocol.Inventory, error) {
	return protocol.Inventory{MachineID: "m"}, nil
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
	defer m.mu.Unlock()
	m.hostname = name
	return nil
}

func (m *machine) WatchAddresses(ctx context.Context, changed func()) error {
	m.mu.Lock()
	m.changed = changed
	m.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (m *machine) Link(_ context.Context, providerID string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.linked = append(m.linked, providerID)
	return true, nil
}

func (m *machine) Present() ([]string, error) { return nil, nil }

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

func (m *machine) Clean(context.Context, []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dirty = m.cannotClean
	return nil
}

// rig is a host with its agent.
type rig struct {
	*machine
	t       *testing.T
	manager *manager
	disk    *disk
	// life, if there is one, is used instead of disk.
	life     *life
	token    string
	bootID   string
	clock    *clock
	rotate   time.Duration
	readopt  time.Duration
	statuses chan string
	// slow, if there is one, is used instead of clock.
	slow   retry.Clock
	forget func() error
	keys   hostkey.Keys
	// real, if there is one, executes bootstrap data in folder.
	real   executing
	folder state.Files
	log    slog.Handler
	shown  func(agent.Connection)
	// with adds to an agent that was put together.
	with func(*agent.Agent)
}

type executing interface {
	agent.Executor
	agent.Undoer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return &rig{
		machine: newMachine(), t: t, manager: newManager(t), disk: newDisk(), token: token, bootID: "boot-1",
		clock: &clock{}, rotate: 24 * time.Hour, readopt: time.Hour, statuses: make(chan string, 1000),
		keys: hostkey.Keys{Policy: hostkey.Off}, log: slog.DiscardHandler, shown: func(agent.Connection) {},
		with: func(*agent.Agent) {},
	}
}

// agent puts an agent together from what is on the disk.
func (r *rig) agent() (*agent.Agent, error) {
	files := state.Files(r.disk)
	if r.life != nil {
		dir, err := state.OpenDir("/state", r.life)
		if err != nil {
			return nil, err
		}
		files = dir
	}
	if r.folder != nil {
		files = r.folder
	}
	store, err := state.Open(files)
	if err != nil {
		return nil, err
	}
	link, err := agent.NewLink(agent.LinkOptions{
		Store: store, Keys: r.keys, Servers: []string{r.manager.server.URL}, TrustBundle: r.manager.bundle, Source: "config", Now: r.clock.Now,
	})
	if err != nil {
		return nil, err
	}
	log := slog.New(r.log)
	if testing.Verbose() && r.log == slog.DiscardHandler {
		log = slog.New(slog.NewTextHandler(r.t.Output(), nil))
	}
	ticking := retry.Clock(r.clock)
	if r.slow != nil {
		ticking = r.slow
	}
	executor := executing(&executor{machine: r.machine, files: files, life: r.life})
	if r.real != nil {
		executor = r.real
	}
	a := agent.New(agent.Options{
		Store: store, Link: link, Token: r.token, Observer: r.machine, Namer: r.machine, Watcher: r.machine, Linker: r.machine,
		Runners: map[protocol.OperationType]agent.Runner{
			protocol.OperationBootstrap: &agent.Bootstrap{
				Source: func() agent.Source { return link.Client() }, Documents: store.Documents(), Executor: executor,
				Observer: r.machine, Surveyor: r.machine, Namer: r.machine, Linker: r.machine, Log: log,
			},
			protocol.OperationReset: &agent.Reset{
				Store: store, Host: r.machine, Undoer: executor, Observer: r.machine, BootID: r.bootID, Log: log,
			},
			protocol.OperationReboot: &reboot.Runner{Documents: store.Documents(), Host: r.machine, BootID: r.bootID, Log: log},
		},
		RotateAfter: r.rotate, ReadoptAfter: r.readopt, Clock: ticking, ForgetTokenFile: r.forget, Rand: func() float64 { return 0.5 }, Log: log,
		Version: "test", BootID: r.bootID,
		Status: func(c agent.Connection) {
			r.shown(c)
			r.statuses <- c.State
		},
	})
	r.with(a)
	return a, nil
}

// start runs the agent; the returned function stops it, as SIGTERM does, and
// returns how it ended. The manager hears nothing more of it then.
func (r *rig) start() (stop func() error) {
	r.t.Helper()
	a, err := r.agent()
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	result := make(chan error, 1)
	go func() { result <- a.Run(ctx) }()
	var once sync.Once
	var ended error
	end := func() error {
		once.Do(func() {
			cancel()
			ended = <-result
		})
		return ended
	}
	r.t.Cleanup(func() { _ = end() })
	return func() error {
		err := end()
		r.manager.hangUp(r.t)
		return err
	}
}

// clock is the host's clock. Waiting takes no time, but for the pauses between
// reports of progress and between looks at the endpoint, which take until they
// are allowed.
type clock struct {
	mu     sync.Mutex
	offset time.Duration
	// step goes by whenever somebody looks.
	step          time.Duration
	ticks, checks chan struct{}
	// waits, if there is one, is told all pauses.
	waits chan<- time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += c.step
	return time.Now().Add(c.offset)
}

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	allowed, look := c.ticks, c.checks != nil && d > 4*time.Minute
	if look {
		allowed = c.checks
	}
	if d == 10*time.Second || look {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-allowed:
		}
	}
	if c.waits != nil {
		select {
		case c.waits <- d:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	c.offset += d
	c.mu.Unlock()
	return ctx.Err()
}

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}
