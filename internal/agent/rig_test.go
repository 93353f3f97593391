package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/reboot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/reset"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// scriptRunner is the argument that makes the test binary run a script.
const scriptRunner = "run-script"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == scriptRunner {
		os.Exit(script.Main(os.Args[2]))
	}
	// A runner with the race detector sleeps for a second before it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// rig is a host with its agent.
type rig struct {
	*machine
	t       *testing.T
	manager *manager
	// standby, if set, is a manager that the agent tries when the first one does not answer.
	standby *manager
	disk    *disk
	// life, if set, is used instead of disk.
	life     *life
	token    string
	clock    *clock
	rotate   time.Duration
	readopt  time.Duration
	statuses chan string
	forget   func() error
	keys     hostkey.Keys
	// real, if set, executes bootstrap data in folder.
	real   executing
	folder state.Files
	// dial, if set, connects to managers.
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	log   slog.Handler
	shown func(connection.Status)
	// with changes the options of the agent.
	with func(*agent.Options)
}

type executing interface {
	bootstrap.Executor
	operation.Bootstraps
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return &rig{
		machine: newMachine(), t: t, manager: newManager(t), disk: newDisk(), token: token,
		clock: &clock{}, rotate: 24 * time.Hour, readopt: time.Hour, statuses: make(chan string, 1000),
		keys: hostkey.Keys{Policy: hostkey.Off}, log: slog.DiscardHandler, shown: func(connection.Status) {},
		with: func(*agent.Options) {},
	}
}

// agent returns a new agent with the state on the disk.
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
	log := slog.New(r.log)
	if testing.Verbose() && r.log == slog.DiscardHandler {
		log = slog.New(slog.NewTextHandler(r.t.Output(), nil))
	}
	servers, bundle := []string{r.manager.server.URL}, r.manager.bundle
	if r.standby != nil {
		servers, bundle = append(servers, r.standby.server.URL), bundle+r.standby.bundle
	}
	manager, err := connection.New(connection.Options{
		Store: store, Keys: r.keys, Servers: servers, TrustBundle: bundle, Source: "config", Now: r.clock.Now,
		RotateAfter: r.rotate, Log: log, Dial: r.dial,
	})
	if err != nil {
		return nil, err
	}
	executor := executing(&executor{machine: r.machine, files: files, life: r.life})
	if r.real != nil {
		executor = r.real
	}
	options := agent.Options{
		Store: store, Manager: manager, Token: r.token, Platform: r.machine, Node: r.machine,
		Runners: map[protocol.OperationType]operation.Runner{
			protocol.OperationBootstrap: &bootstrap.Runner{
				Source: func() bootstrap.Source { return manager.Client() }, Documents: store.Documents(), Executor: executor,
				Platform: r.machine, ProviderID: r.machine, Log: log,
			},
			protocol.OperationReset: &reset.Runner{
				Documents: store.Documents(), Platform: r.machine, Bootstraps: executor, BootID: r.bootID, Log: log,
			},
			protocol.OperationReboot: &reboot.Runner{Documents: store.Documents(), Platform: r.machine, BootID: r.bootID, Log: log},
		},
		ReadoptAfter: r.readopt, Clock: r.clock, RemoveToken: r.forget, Rand: func() float64 { return 0.5 }, Log: log,
		Version: "test", BootID: r.bootID,
		Status: func(c connection.Status) {
			r.shown(c)
			r.statuses <- c.State
		},
	}
	r.with(&options)
	return agent.New(options), nil
}

// start runs the agent. The returned function stops it as SIGTERM does, closes its
// connections and returns the result of Run.
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

// clock is the host's clock. Wait returns at once, except for the pauses between
// progress reports and between endpoint checks: these last until the test sends to
// ticks or checks.
type clock struct {
	mu     sync.Mutex
	offset time.Duration
	// step is added by every call of Now.
	step          time.Duration
	ticks, checks chan struct{}
	// waits, if set, receives all pauses.
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
	c.advance(d)
	return ctx.Err()
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// recordPauses makes the clock record its pauses, and makes those between progress reports
// last for ever. It must be called before the start of the agent.
func (c *clock) recordPauses() (pauses chan time.Duration) {
	pauses = make(chan time.Duration, 1000)
	c.waits, c.ticks = pauses, make(chan struct{})
	return pauses
}

// noPauses fails the test if the agent has paused.
func noPauses(t *testing.T, pauses <-chan time.Duration) {
	t.Helper()
	select {
	case d := <-pauses:
		t.Errorf("the agent paused for %s", d)
	default:
	}
}

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}
