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
)

// filesBeside is how many files a process has open beside the connections of hosts.
const filesBeside = 200

// Settings are what a Fleet is made from. Servers and TrustBundle have to be there.
type Settings struct {
	// Count is how many hosts there are, at most MaxHosts; 0 means 1.
	Count int `json:"count,omitempty"`
	// Prefix begins the names of hosts; blank means "host". A number from 1 follows.
	Prefix string `json:"prefix,omitempty"`
	// Servers are base URLs of the agent API, TrustBundle is the PEM that it is to be
	// trusted by, and Token lets hosts in.
	Servers     []string `json:"servers"`
	TrustBundle string   `json:"trustBundle"`
	Token       string   `json:"token,omitempty"`
	// Software is what bootstrap data makes of hosts. Nil: any data succeeds at once.
	Software Software `json:"-"`
	// Folder gets the root file systems of hosts that have software. Blank: a
	// temporary one, which Close removes.
	Folder string `json:"folder,omitempty"`
	// BootTime is how long a host boots before its agent starts.
	BootTime time.Duration `json:"bootTime,omitempty"`
	// AgentRestart is how long the service waits before it starts an agent again that
	// has ended; 0 means 5 s, as its unit does.
	AgentRestart time.Duration `json:"agentRestart,omitempty"`
	// ClockSkew is how far the clocks of hosts are off at most, either way.
	ClockSkew time.Duration `json:"clockSkew,omitempty"`
	// Faults are what goes wrong from the beginning.
	Faults Faults `json:"faults,omitzero"`
	// Seed makes hosts and faults come out the same again, as far as the order in
	// which hosts do things is the same.
	Seed uint64 `json:"seed,omitempty"`
	// Log gets what agents log, each line with its host. Nil: nobody does.
	Log *slog.Logger `json:"-"`
}

// Fleet is a number of virtual hosts. Its methods may be called by several
// goroutines.
type Fleet struct {
	settings  Settings
	block     *block
	folder    string
	temporary bool
	hosts     []*Host
	limbo     limbo
	counts    counts

	faults        atomic.Pointer[Faults]
	faultsChanged chan struct{}

	randomMu sync.Mutex
	random   *rand.Rand

	// life ends when the fleet is closed.
	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	timers map[*time.Timer]bool
	// running are goroutines that belong to no host.
	running sync.WaitGroup
}

// New makes a Fleet. All hosts are off, and have never been on.
func New(s Settings) (*Fleet, error) {
	if s.Count == 0 {
		s.Count = 1
	}
	if s.Prefix == "" {
		s.Prefix = "host"
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
	f.life, f.end = context.WithCancel(context.Background())
	for number := range s.Count {
		f.hosts = append(f.hosts, f.newHost(number))
	}
	f.background(func() { f.disturb(f.life) })
	return f, nil
}

// allowFiles raises the limit of open files as far as hosts need it.
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

// Hosts are all of them, in the order of their names.
func (f *Fleet) Hosts() []*Host { return f.hosts }

// Host finds one by its name in the fleet; nil if there is none.
func (f *Fleet) Host(name string) *Host {
	for _, h := range f.hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// PowerOn switches all hosts on, in random order and spread evenly over a time: 0 is
// a storm. It returns when the last is on, or with the cause of ctx's end.
func (f *Fleet) PowerOn(ctx context.Context, over time.Duration) error {
	return f.Each(ctx, f.hosts, over, (*Host).PowerOn)
}

// Each does something to some of the hosts, in random order and spread evenly over a
// time. It returns when the last is done, or with the cause of ctx's end.
func (f *Fleet) Each(ctx context.Context, hosts []*Host, over time.Duration, do func(*Host)) error {
	if !f.each(ctx.Done(), hosts, over, do) {
		return context.Cause(ctx)
	}
	return nil
}

// each is Each, and false if it was stopped before the last.
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

// Close switches all hosts off and returns when nothing of them is left, but for what
// is in a Folder that was named.
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
	f.each(nil, f.hosts, 0, func(h *Host) { h.powerOff(true) })
	f.running.Wait()
	f.limbo.close()
	err := f.block.release()
	if f.temporary {
		if failure := os.RemoveAll(f.folder); failure != nil {
			err = errors.Join(err, fmt.Errorf("removing the file systems of hosts: %w", failure))
		}
	}
	return err
}

// background runs something that Close waits for, unless the fleet is closed.
func (f *Fleet) background(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.running.Go(do)
	}
}

// later does something after a time, unless the fleet is closed by then.
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
