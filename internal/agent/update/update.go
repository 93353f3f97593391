package update

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Delays before a release is tried again: after an interrupted download, after a failure
// that a person can fix, and after a failed trial, which the network may have caused.
const (
	retryBase      = 5 * time.Second
	retryMax       = 10 * time.Minute
	retryRefused   = time.Hour
	retryUnreached = 24 * time.Hour
)

// Source provides the agent's binary; see client.Client.AgentBinary.
type Source interface {
	AgentBinary(ctx context.Context, digest string, offset int64, save func(from, size int64, body io.Reader) error) error
}

// Options are what an Updater works with.
type Options struct {
	Documents state.Files
	Disk      Disk
	// Folder is the folder of the download.
	Folder string
	// Path is the program: a regular file, which the service starts.
	Path string
	// Running opens the running program, which may differ from the file at Path.
	Running func() (io.ReadCloser, error)
	// Version is that of the running program.
	Version string
	Source  func() Source
	// Probe starts a program and returns the version that it prints.
	Probe func(ctx context.Context, path string) (string, error)
	Clock retry.Clock
	Rand  func() float64
	Log   *slog.Logger
}

// Updater is an agent.Updater. Use New.
type Updater struct {
	Options

	// These belong to the caller of Ensure.
	backoff retry.Backoff
	// last is the release of the last attempt; the next attempt is not before notBefore.
	last      protocol.AgentRelease
	notBefore time.Time
	tidied    bool

	mu sync.Mutex
	// self is the digest of the running program; blank until it is needed.
	self string
	at   record
	// until is when a trial ends or a failed release may be tried again; zero means never.
	// It uses the monotonic clock of this process.
	until time.Time
	// current is an update that has no record yet.
	current *protocol.AgentUpdate
}

// New returns an Updater, and reads the state of the last update. The time of a trial
// begins.
func New(o Options) (*Updater, error) {
	at, err := document(o.Documents).Load()
	if err != nil {
		return nil, err
	}
	u := &Updater{Options: o, at: at, backoff: retry.Backoff{Base: retryBase, Max: retryMax, Rand: o.Rand}}
	if at.Phase == "" {
		return u, nil
	}
	self, err := u.running()
	if err != nil {
		return nil, err
	}
	now := o.Clock.Now()
	switch {
	case at.Phase == trial && self == at.SHA256:
		u.until = now.Add(TrialTime)
	case at.Phase == trial:
		err = u.fail(release(at), retryRefused, fmt.Errorf("%s is not what was started from %s after it had been put there: "+
			"was the power cut? is %s what the service starts?", at.To, at.Path, at.Path))
	case at.Phase == confirmed && self != at.SHA256:
		// Somebody replaced the program by hand since.
		u.at = record{}
		err = document(o.Documents).Save(u.at)
	case at.Phase == failed && at.RetryAfter > 0:
		// The host's clock may have jumped since, either way.
		left := min(max(at.FailedAt.Add(at.RetryAfter).Sub(now), 0), at.RetryAfter)
		u.until = now.Add(left)
	}
	return u, err
}

// CanUpdate reports whether the program's folder can be written.
func (u *Updater) CanUpdate() bool { return u.Disk.Writable(filepath.Dir(u.Path)) == nil }

// Report is the state of the current or the last update.
func (u *Updater) Report() *protocol.AgentUpdate {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.current != nil {
		current := *u.current
		return &current
	}
	report := &protocol.AgentUpdate{Version: u.at.To, Message: u.at.Message}
	switch u.at.Phase {
	case trial:
		report.State = protocol.StateRunning
	case confirmed:
		report.State = protocol.StateSucceeded
	case failed:
		report.State = protocol.StateFailed
	default:
		return nil
	}
	return report
}

// Ensure makes the pinned release the program; see agent.Updater.
func (u *Updater) Ensure(ctx context.Context, pinned *protocol.AgentRelease, changed func()) (time.Duration, error) {
	if left, err := u.endTrial(); left > 0 || err != nil {
		return left, err
	}
	u.tidy()
	if pinned == nil {
		return 0, nil
	}
	want := protocol.AgentRelease{Version: pinned.Version, SHA256: strings.ToLower(pinned.SHA256)}
	self, err := u.running()
	if err != nil {
		u.Log.Error("Could not see which agent this is, and doesn't update it", "error", err)
		return retryMax, nil
	}
	if self == want.SHA256 {
		return 0, u.satisfied(want, changed)
	}
	if want != u.last {
		u.last, u.notBefore = want, time.Time{}
		u.backoff.Reset()
	}
	if left, refused := u.refused(want); refused {
		return left, nil
	}
	if left := u.notBefore.Sub(u.Clock.Now()); left > 0 {
		return left, nil
	}
	u.announce(want, "", changed)
	return u.conclude(ctx, want, u.replace(ctx, want), changed)
}

// conclude handles the result of an attempt, and returns when to try again.
func (u *Updater) conclude(ctx context.Context, want protocol.AgentRelease, err error, changed func()) (time.Duration, error) {
	if state.IsWriteError(err) || errors.Is(err, agent.ErrRestart) {
		return 0, err
	}
	if no, ok := errors.AsType[*refusal](err); ok {
		u.Log.Error("Doesn't update the agent", "version", want.Version, "error", err)
		u.mu.Lock()
		defer u.mu.Unlock()
		if err := u.fail(want, no.retry, err); err != nil {
			return 0, err
		}
		u.tidied = false
		changed()
		return no.retry, nil
	}
	if ctx.Err() != nil {
		// There is an operation to run. The next attempt resumes the download.
		return 0, nil
	}
	u.Log.Warn("Could not update the agent, and tries again", "version", want.Version, "error", err)
	u.announce(want, err.Error(), changed)
	wait := u.backoff.Next() + client.RetryAfter(err)
	u.notBefore = u.Clock.Now().Add(wait)
	return wait, nil
}

// satisfied records that the pinned release runs, if another state was reported before.
func (u *Updater) satisfied(want protocol.AgentRelease, changed func()) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	hasState := u.at.Phase != "" || u.current != nil
	if !hasState || u.current == nil && u.at.Phase == confirmed && u.at.is(want) {
		return nil
	}
	next := record{Phase: confirmed, From: u.at.From, To: want.Version, SHA256: want.SHA256, Path: u.Path}
	if err := document(u.Documents).Save(next); err != nil {
		return err
	}
	u.at, u.current = next, nil
	changed()
	return nil
}

// announce sets the state of the current update. A retry after a failure changes nothing.
func (u *Updater) announce(want protocol.AgentRelease, message string, changed func()) {
	next := protocol.AgentUpdate{Version: want.Version, State: protocol.StateRunning, Message: message}
	u.mu.Lock()
	defer u.mu.Unlock()
	begun := u.current != nil && u.current.Version == want.Version || u.at.Phase == failed && u.at.is(want)
	if message == "" && begun || u.current != nil && *u.current == next {
		return
	}
	u.current = &next
	changed()
}

// running returns the digest of the running program.
func (u *Updater) running() (_ string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.self != "" {
		return u.self, nil
	}
	program, err := u.Running()
	if err != nil {
		return "", fmt.Errorf("opening the program that runs: %w", err)
	}
	defer func() { err = errors.Join(err, program.Close()) }()
	u.self, err = digestOf(program)
	return u.self, err
}

// tidy removes, once, the files of ended updates.
func (u *Updater) tidy() {
	if u.tidied {
		return
	}
	u.tidied = true
	for _, path := range []string{u.Path + nextSuffix, u.Path + PreviousSuffix} {
		if err := remove(u.Disk, path); err != nil {
			u.Log.Warn("Could not remove what an update left", "error", err)
		}
	}
}
