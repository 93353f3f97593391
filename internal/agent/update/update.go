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

// TrialTime is how long a new program may run without reaching the manager.
const TrialTime = 5 * time.Minute

// Pauses before a release is tried again: after a download that broke off, after
// a refusal that a person can put right, and after a trial that failed, for
// which the network may have been to blame.
const (
	retryBase      = 5 * time.Second
	retryMax       = 10 * time.Minute
	retryRefused   = time.Hour
	retryUnreached = 24 * time.Hour
)

// Source hands out the agent's binary; see client.Client.AgentBinary.
type Source interface {
	AgentBinary(ctx context.Context, digest string, offset int64, save func(from, size int64, body io.Reader) error) error
}

// Options are what an Updater works with.
type Options struct {
	Documents state.Files
	Disk      Disk
	// Folder is where the download is kept.
	Folder string
	// Path is the program: a regular file, and the one that is started next.
	Path string
	// Running opens the program that runs, whatever is at Path by now.
	Running func() (io.ReadCloser, error)
	// Version is that of the program that runs.
	Version string
	Source  func() Source
	// Probe starts a program and returns the version that it says it is.
	Probe func(ctx context.Context, path string) (string, error)
	Clock retry.Clock
	Rand  func() float64
	Log   *slog.Logger
}

// Updater is an agent.Updater. Use New.
type Updater struct {
	Options

	// These belong to the caller of Keep.
	backoff retry.Backoff
	// last is the release that was tried last; it is not tried before notBefore.
	last      protocol.AgentRelease
	notBefore time.Time
	tidied    bool

	mu sync.Mutex
	// self is the digest of the program that runs, once it was needed.
	self string
	at   record
	// until is when a trial ends or a failed release may be tried again; zero
	// means never. It is of this process, and so of the monotonic clock.
	until time.Time
	// going is an update that has not come as far as a record.
	going *protocol.AgentUpdate
}

// New reads how the last update went. The time of a trial begins.
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

func release(at record) protocol.AgentRelease {
	return protocol.AgentRelease{Version: at.To, SHA256: at.SHA256}
}

// Able reports whether the program's folder can be written.
func (u *Updater) Able() bool { return u.Disk.Writable(filepath.Dir(u.Path)) == nil }

// Connected confirms a trial.
func (u *Updater) Connected() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at.Phase != trial || u.self != u.at.SHA256 {
		return nil
	}
	next := u.at
	next.Phase = confirmed
	if err := document(u.Documents).Save(next); err != nil {
		return err
	}
	u.at = next
	u.Log.Info("Updated", "version", u.at.To, "from", u.at.From)
	return nil
}

// Report is how the last update went, or goes.
func (u *Updater) Report() *protocol.AgentUpdate {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.going != nil {
		going := *u.going
		return &going
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

// Keep makes the pinned release the program; see agent.Updater.
func (u *Updater) Keep(ctx context.Context, pinned *protocol.AgentRelease, changed func()) (time.Duration, error) {
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
	return u.judge(ctx, want, u.replace(ctx, want), changed)
}

// refusal is a release that is not taken, and not tried again for a while.
type refusal struct {
	err error
	// retry is how long, 0 for ever.
	retry time.Duration
}

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

// judge decides what becomes of an update by how an attempt ended.
func (u *Updater) judge(ctx context.Context, want protocol.AgentRelease, err error, changed func()) (time.Duration, error) {
	if _, unwritten := errors.AsType[*state.WriteError](err); unwritten || errors.Is(err, agent.ErrRestart) {
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
		// There is something else to do; what was fetched is kept.
		return 0, nil
	}
	u.Log.Warn("Could not update the agent, and tries again", "version", want.Version, "error", err)
	u.announce(want, err.Error(), changed)
	wait := u.backoff.Next() + client.RetryAfter(err)
	u.notBefore = u.Clock.Now().Add(wait)
	return wait, nil
}

// endTrial returns how long a trial still lasts. One that is over without the
// manager having answered is taken back, and so is one that was about to be
// when this process began.
func (u *Updater) endTrial() (left time.Duration, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.self == "" || u.self != u.at.SHA256 {
		return 0, nil
	}
	switch u.at.Phase {
	case trial:
		if left := u.until.Sub(u.Clock.Now()); left > 0 {
			return left, nil
		}
		if err := u.fail(release(u.at), retryUnreached, fmt.Errorf("%s ran for %s and did not reach the manager; %s was put back. "+
			"It is tried again after a day, or when the pinned release changes", u.at.To, TrialTime, u.at.From)); err != nil {
			return 0, err
		}
	case failed:
	default:
		return 0, nil
	}
	done, err := putBack(u.Disk, u.Path)
	if err != nil || !done {
		u.Log.Error("Could not put the former agent back, so this one goes on", "error", err, "path", u.Path+PreviousSuffix)
		return 0, nil
	}
	u.Log.Warn("Put the former agent back", "version", u.at.From, "instead", u.at.To, "reason", u.at.Message)
	return 0, agent.ErrRestart
}

// fail records a release that is not to be tried again for a while. The caller
// holds mu, or is the only one.
func (u *Updater) fail(want protocol.AgentRelease, after time.Duration, reason error) error {
	now := u.Clock.Now()
	next := record{
		Phase: failed, From: u.Version, To: want.Version, SHA256: want.SHA256, Path: u.Path,
		Message: reason.Error(), FailedAt: now.UTC().Round(0), RetryAfter: after,
	}
	if u.at.is(want) {
		next.From, next.StartedAt, next.Attempts = u.at.From, u.at.StartedAt, u.at.Attempts
	}
	if err := document(u.Documents).Save(next); err != nil {
		return err
	}
	u.at, u.going, u.until = next, nil, time.Time{}
	if after > 0 {
		u.until = now.Add(after)
	}
	return nil
}

// refused tells whether the release failed and may not be tried yet, and after
// how long it may, 0 for never.
func (u *Updater) refused(want protocol.AgentRelease) (left time.Duration, refused bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at.Phase != failed || !u.at.is(want) {
		return 0, false
	}
	if u.until.IsZero() {
		return 0, true
	}
	left = u.until.Sub(u.Clock.Now())
	return max(left, 0), left > 0
}

// satisfied notes that the pinned release runs, if anything else was said of
// updates before.
func (u *Updater) satisfied(want protocol.AgentRelease, changed func()) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	said := u.at.Phase != "" || u.going != nil
	if !said || u.going == nil && u.at.Phase == confirmed && u.at.is(want) {
		return nil
	}
	next := record{Phase: confirmed, From: u.at.From, To: want.Version, SHA256: want.SHA256, Path: u.Path}
	if err := document(u.Documents).Save(next); err != nil {
		return err
	}
	u.at, u.going = next, nil
	changed()
	return nil
}

// announce notes what goes on. An attempt begins only once: one more after a
// failure is no news.
func (u *Updater) announce(want protocol.AgentRelease, message string, changed func()) {
	next := protocol.AgentUpdate{Version: want.Version, State: protocol.StateRunning, Message: message}
	u.mu.Lock()
	defer u.mu.Unlock()
	begun := u.going != nil && u.going.Version == want.Version || u.at.Phase == failed && u.at.is(want)
	if message == "" && begun || u.going != nil && *u.going == next {
		return
	}
	u.going = &next
	changed()
}

// running is the digest of the program that runs.
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

// tidy removes, once, what updates that are over have left.
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
