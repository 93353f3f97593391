package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// filesBeside is the number of open files of a process apart from host connections.
const filesBeside = 200

// Settings are the settings of a Fleet. Servers and TrustBundle are required.
type Settings struct {
	// Count is the number of hosts, at most MaxHosts; 0 means 1.
	Count int `json:"count,omitempty"`
	// Prefix is the prefix of host names, before a number from 1; blank means "host".
	Prefix string `json:"prefix,omitempty"`
	// Servers are base URLs of the agent API, TrustBundle has its CA certificates (PEM),
	// and Token is the registration token.
	Servers     []string `json:"servers"`
	TrustBundle string   `json:"trustBundle"`
	Token       string   `json:"token,omitempty"`
	// Software executes bootstrap data. Nil: any data succeeds immediately.
	Software Software `json:"-"`
	// Folder gets the root file systems of hosts with software. Blank: a temporary
	// folder, which Close removes.
	Folder string `json:"folder,omitempty"`
	// Saved is the file with what hosts keep while no fleet runs them. New reads it if it exists, and Close
	// writes it. Then the agents were stopped only: the hosts have not rebooted, unless they were about to.
	// Blank: all is lost.
	Saved string `json:"saved,omitempty"`
	// Version is the version that agents report; blank means "virtual".
	Version string `json:"version,omitempty"`
	// BootTime is how long a host boots before its agent starts.
	BootTime time.Duration `json:"bootTime,omitempty"`
	// AgentRestart is the delay before the service restarts an agent that has ended; 0
	// means 5 s, as in its unit.
	AgentRestart time.Duration `json:"agentRestart,omitempty"`
	// ProbePeriod is the longest time between two probes of a control-plane host; 0 means the
	// agent's own.
	ProbePeriod time.Duration `json:"probePeriod,omitempty"`
	// BundleRate makes hosts download bundles from the manager, each with that many bytes a
	// second, as behind a slow line. 0: any bundle is staged at once.
	BundleRate int `json:"bundleRate,omitempty"`
	// ReadoptAfter is how long no manager must know a host before it asks to be re-adopted; 0
	// means the agent's own time.
	ReadoptAfter time.Duration `json:"readoptAfter,omitempty"`
	// Adjust changes the options of each agent; nil changes nothing. It sets options that agents of v0.1.0 lack:
	// test/suite/skew builds these hosts with such agents.
	Adjust func(*assembly.Options) `json:"-"`
	// ClockSkew is the maximum deviation of host clocks, in either direction.
	ClockSkew time.Duration `json:"clockSkew,omitempty"`
	// DuringUpgrade, if not nil, is called in each upgrade of Kubernetes on a host before
	// anything has changed there. It may block, until ctx ends. With an error, the upgrade
	// fails, and is rolled back. An upgrade that was interrupted calls it again.
	DuringUpgrade func(ctx context.Context, h *Host, to protocol.NodeUpgrade) error `json:"-"`
	// Faults are the initial faults.
	Faults Faults `json:"faults,omitzero"`
	// Seed makes hosts and faults reproducible, apart from the order in which goroutines
	// run.
	Seed uint64 `json:"seed,omitempty"`
	// Log, if not nil, gets the logs of all agents, with the host in each line.
	Log *slog.Logger `json:"-"`
}

// Fleet is a set of virtual hosts. It is safe for concurrent use.
type Fleet struct {
	settings   Settings
	block      *block
	folder     string
	temporary  bool
	hosts      []*Host
	halfClosed halfClosed
	counts     counts

	faults        atomic.Pointer[Faults]
	faultsChanged chan struct{}

	randomMu sync.Mutex
	random   *rand.Rand

	// ctx ends when the fleet is closed.
	ctx context.Context
	end context.CancelFunc

	mu     sync.Mutex
	closed bool
	timers map[*time.Timer]bool
	// running waits for the goroutines that belong to no host.
	running sync.WaitGroup
}

// New returns a Fleet. All hosts are off and have never been on.
func New(s Settings) (*Fleet, error) {
	if s.Count == 0 {
		s.Count = 1
	}
	if s.Prefix == "" {
		s.Prefix = "host"
	}
	if s.Version == "" {
		s.Version = "virtual"
	}
	if s.AgentRestart == 0 {
		s.AgentRestart = 5 * time.Second
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case s.Count < 0 || s.Count > MaxHosts:
		return nil, fmt.Errorf("a fleet has between 1 and %d hosts, not %d", MaxHosts, s.Count)
	case len(s.Servers) == 0 || s.TrustBundle == "":
		return nil, errors.New("hosts have to know a server and what to trust it by")
	}
	if err := s.Faults.check(); err != nil {
		return nil, err
	}
	if err := allowFiles(s.Count); err != nil {
		return nil, err
	}
	f := &Fleet{
		settings: s, faultsChanged: make(chan struct{}, 1), timers: map[*time.Timer]bool{},
		random: rand.New(rand.NewPCG(s.Seed, 0)),
	}
	f.faults.Store(&s.Faults)
	var err error
	if f.block, err = reserveBlock(); err != nil {
		return nil, err
	}
	if err := f.makeFolder(); err != nil {
		return nil, errors.Join(err, f.block.release())
	}
	f.ctx, f.end = context.WithCancel(context.Background())
	for number := range s.Count {
		f.hosts = append(f.hosts, f.newHost(number))
	}
	if err := f.load(); err != nil {
		f.end()
		return nil, errors.Join(err, f.release())
	}
	f.background(func() { f.injectFaults(f.ctx) })
	return f, nil
}

// allowFiles raises the limit of open files to what the hosts need.
func allowFiles(hosts int) error {
	need := uint64(hosts + filesBeside)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if limit.Cur >= need {
		return nil
	}
	if limit.Max < need {
		return fmt.Errorf("%d hosts take %d open files, and this process may have %d: raise the hard limit (ulimit -Hn), or have fewer hosts",
			hosts, need, limit.Max)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raising the limit of open files to %d: %w", limit.Max, err)
	}
	return nil
}

func (f *Fleet) makeFolder() (err error) {
	if f.settings.Folder == "" {
		f.temporary = true
		if f.folder, err = os.MkdirTemp("", "elemental-fleet-"); err != nil {
			return fmt.Errorf("making a folder for the file systems of hosts: %w", err)
		}
		return nil
	}
	if f.folder, err = filepath.Abs(f.settings.Folder); err != nil {
		return fmt.Errorf("finding the folder for the file systems of hosts: %w", err)
	}
	if err := os.MkdirAll(f.folder, 0o700); err != nil {
		return fmt.Errorf("making a folder for the file systems of hosts: %w", err)
	}
	return nil
}

// Hosts returns all hosts, sorted by name.
func (f *Fleet) Hosts() []*Host { return f.hosts }

// Host returns the host with a name, or nil.
func (f *Fleet) Host(name string) *Host {
	for _, h := range f.hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// PowerOn switches all hosts on, in random order and evenly over a duration; 0 means all
// at once. It returns when the last host is on, or with the cause of ctx's end.
func (f *Fleet) PowerOn(ctx context.Context, over time.Duration) error {
	return f.Each(ctx, f.hosts, over, (*Host).PowerOn)
}

// Each calls do for each of the hosts, in random order and evenly over a duration. It
// returns after the last call, or with the cause of ctx's end.
func (f *Fleet) Each(ctx context.Context, hosts []*Host, over time.Duration, do func(*Host)) error {
	if !f.each(ctx.Done(), hosts, over, do) {
		return context.Cause(ctx)
	}
	return nil
}

// each is Each; it reports whether it was completed.
func (f *Fleet) each(stop <-chan struct{}, hosts []*Host, over time.Duration, do func(*Host)) bool {
	f.randomMu.Lock()
	order := f.random.Perm(len(hosts))
	f.randomMu.Unlock()
	began := time.Now()
	next := make(chan *Host)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for h := range next {
				do(h)
			}
		})
	}
	defer workers.Wait()
	defer close(next)
	for i, number := range order {
		due := time.Until(began.Add(over * time.Duration(i) / time.Duration(len(order))))
		if due > 0 {
			timer := time.NewTimer(due)
			select {
			case <-stop:
				timer.Stop()
				return false
			case <-timer.C:
			}
		}
		select {
		case <-stop:
			return false
		case next <- hosts[number]:
		}
	}
	return true
}

// Close switches all hosts off, waits until their goroutines have ended, and writes
// Settings.Saved. It keeps the files in Settings.Folder.
func (f *Fleet) Close() error {
	f.mu.Lock()
	closed := f.closed
	f.closed = true
	for timer := range f.timers {
		timer.Stop()
	}
	f.timers = nil
	f.mu.Unlock()
	if closed {
		return nil
	}
	f.end()
	f.each(nil, f.hosts, 0, (*Host).suspend)
	f.running.Wait()
	f.halfClosed.close()
	return errors.Join(f.save(), f.release())
}

// release gives back what the fleet has taken from the machine.
func (f *Fleet) release() error {
	err := f.block.release()
	if f.temporary {
		if failure := os.RemoveAll(f.folder); failure != nil {
			err = errors.Join(err, fmt.Errorf("removing the file systems of hosts: %w", failure))
		}
	}
	return err
}

// background runs a function that Close waits for, unless the fleet is closed.
func (f *Fleet) background(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.running.Go(do)
	}
}

// later runs a function after a delay, unless the fleet is closed by then.
func (f *Fleet) later(d time.Duration, do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		f.mu.Lock()
		delete(f.timers, timer)
		f.mu.Unlock()
		f.background(do)
	})
	f.timers[timer] = true
}
