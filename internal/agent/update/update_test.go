package update_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/update"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

var errBrokeOff = errors.New("connection reset")

// breaksOff sends a few more bytes with each attempt.
func breaksOff(content string, bytes int64) func(string, int64, func(from, size int64, body io.Reader) error) error {
	return func(_ string, offset int64, save func(from, size int64, body io.Reader) error) error {
		end := min(offset+bytes, int64(len(content)))
		err := save(offset, int64(len(content)), strings.NewReader(content[offset:end]))
		if err == nil && end < int64(len(content)) {
			err = errBrokeOff
		}
		return err
	}
}

func TestDownloadGoesOnWhereItBrokeOff(t *testing.T) {
	t.Parallel()
	h := newHost(t, good)
	h.serve = breaksOff(good, 30)
	u := h.mustUpdater()
	again, err := u.Ensure(t.Context(), releaseOf(good), func() {})
	if err != nil || again <= 0 || again > time.Minute {
		t.Fatalf("again after %s, %v", again, err)
	}
	if report := u.Report(); report.State != protocol.StateRunning || !strings.Contains(report.Message, "connection reset") {
		t.Errorf("reports %+v", report)
	}
	// A new plan does not shorten the wait.
	if sooner, err := u.Ensure(t.Context(), releaseOf(good), func() {}); err != nil || sooner != again || len(h.asked) != 1 {
		t.Errorf("again after %s, %v, asked %v", sooner, err, h.asked)
	}
	report, err := h.service(releaseOf(good))
	if err != nil || report.State != protocol.StateSucceeded {
		t.Fatalf("%+v, %v", report, err)
	}
	if len(h.asked) != 3 || h.asked[1] != 30 || h.asked[2] != 60 {
		t.Errorf("asked for offsets %v", h.asked)
	}
}

func TestWorkInterruptsTheDownload(t *testing.T) {
	t.Parallel()
	h := newHost(t, good)
	ctx, cancel := context.WithCancel(t.Context())
	h.serve = func(_ string, _ int64, save func(from, size int64, body io.Reader) error) error {
		cancel()
		return errors.Join(save(0, int64(len(good)), strings.NewReader(good[:10])), ctx.Err())
	}
	u := h.mustUpdater()
	if again, err := u.Ensure(ctx, releaseOf(good), func() {}); again != 0 || err != nil {
		t.Errorf("again after %s, %v", again, err)
	}
	if report := u.Report(); report.State != protocol.StateRunning || report.Message != "" {
		t.Errorf("reports %+v", report)
	}
	h.serve = whole(good)
	if _, err := u.Ensure(t.Context(), releaseOf(good), func() {}); !errors.Is(err, agent.ErrRestart) || h.asked[1] != 10 {
		t.Errorf("%v, asked for offsets %v", err, h.asked)
	}
}

func TestRefusesWhereItCannotBeReplaced(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*host)
		message string
	}{
		"a read-only file system": {func(h *host) { h.disk.readOnly = syscall.EROFS }, "read-only file system: make the folder writable"},
		"a full file system":      {func(h *host) { h.disk.free = 1 << 20 }, "make room"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, good)
			test.change(h)
			u := h.mustUpdater()
			if u.CanUpdate() != (h.disk.readOnly == nil) {
				t.Errorf("able: %t", u.CanUpdate())
			}
			if again := h.refuses(u, releaseOf(good), test.message); again != time.Hour {
				t.Errorf("again after %s", again)
			}
			h.disk.readOnly, h.disk.free = nil, 1<<40
			if report, err := h.service(releaseOf(good)); err != nil || report.State != protocol.StateSucceeded {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}

func TestRefusesWhatDoesNotStart(t *testing.T) {
	t.Parallel()
	const text = "no program v1.1.0"
	h := newHost(t, text)
	if again := h.refuses(h.mustUpdater(), &protocol.AgentRelease{Version: "v1.1.0", SHA256: sum(text)}, "exec format error", text); again != 0 {
		t.Errorf("again after %s", again)
	}
}

// The updater keeps the installed program as a fallback only if it is the running one.
func TestRefusesToKeepAnotherProgram(t *testing.T) {
	t.Parallel()
	h := newHost(t, good)
	u := h.mustUpdater()
	h.disk.put(program, older)
	if _, err := u.Ensure(t.Context(), releaseOf(good), func() {}); err != nil {
		t.Fatal(err)
	}
	if report := u.Report(); report.State != protocol.StateFailed || !strings.Contains(report.Message, "restart the service") {
		t.Errorf("reports %+v", report)
	}
	if got := h.disk.content(program); got != older {
		t.Errorf("installed is %q", got)
	}
}

// A release that reached no server is retried after a day, even if the host's clock
// jumps. A release that the guard rolled back is never retried.
func TestTriesAFailedReleaseAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t, deaf)
	if report, err := h.service(releaseOf(deaf)); err != nil || report.State != protocol.StateFailed {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, jump := range []time.Duration{-50 * 365 * 24 * time.Hour, 0} {
		h.clock.now = h.clock.now.Add(jump)
		u := h.mustUpdater()
		left, err := u.Ensure(t.Context(), releaseOf(deaf), func() {})
		if err != nil || left <= 23*time.Hour || left > 24*time.Hour {
			t.Fatalf("after a jump of %s: again after %s, %v", jump, left, err)
		}
		h.clock.now = h.clock.now.Add(left)
		if _, err := u.Ensure(t.Context(), releaseOf(deaf), func() {}); !errors.Is(err, agent.ErrRestart) {
			t.Fatalf("after a jump of %s and a day: %v", jump, err)
		}
		if report, err := h.service(releaseOf(deaf)); err != nil || report.State != protocol.StateFailed {
			t.Fatalf("%+v, %v", report, err)
		}
	}

	h = newHost(t, broken)
	if report, err := h.service(releaseOf(broken)); err != nil || report.State != protocol.StateFailed {
		t.Fatalf("%+v, %v", report, err)
	}
	h.clock.now = h.clock.now.Add(10000 * time.Hour)
	if _, err := h.service(releaseOf(broken)); err != nil || h.starts[broken] != 3 {
		t.Errorf("%v, started what is broken %d times", err, h.starts[broken])
	}
	// A different pinned release is tried at once.
	h.serve = whole(good)
	if report, err := h.service(releaseOf(good)); err != nil || report.State != protocol.StateSucceeded || report.Version != "v1.1.0" {
		t.Errorf("%+v, %v", report, err)
	}
}

// A trial ends with the first answer of the manager or after TrialTime.
func TestTrial(t *testing.T) {
	t.Parallel()
	h := newHost(t, good)
	former := h.mustUpdater()
	if _, err := former.Ensure(t.Context(), releaseOf(good), func() {}); !errors.Is(err, agent.ErrRestart) {
		t.Fatal(err)
	}
	// An answer to the former program does not confirm the new one.
	if err := former.Confirm(); err != nil {
		t.Fatal(err)
	}
	u := h.mustUpdater()
	for range 2 {
		left, err := u.Ensure(t.Context(), releaseOf(good), func() {})
		if err != nil || left <= 0 {
			t.Fatalf("%s left, %v", left, err)
		}
		h.clock.now = h.clock.now.Add(2 * time.Minute)
	}
	if report := u.Report(); report.State != protocol.StateRunning {
		t.Errorf("reports %+v", report)
	}
	if err := u.Confirm(); err != nil {
		t.Fatal(err)
	}
	h.clock.now = h.clock.now.Add(time.Hour)
	if left, err := u.Ensure(t.Context(), nil, func() {}); left != 0 || err != nil {
		t.Errorf("%s left, %v", left, err)
	}
	if report := u.Report(); report.State != protocol.StateSucceeded || report.Version != "v1.1.0" {
		t.Errorf("reports %+v", report)
	}
	if report := h.mustUpdater().Report(); report == nil || report.State != protocol.StateSucceeded {
		t.Errorf("after a restart reports %+v", report)
	}
}

// A program that was killed during its rollback finishes the rollback itself, even
// without the guard.
func TestFinishesARollback(t *testing.T) {
	t.Parallel()
	h := newHost(t, deaf)
	if _, err := h.mustUpdater().Ensure(t.Context(), releaseOf(deaf), func() {}); !errors.Is(err, agent.ErrRestart) {
		t.Fatal(err)
	}
	u := h.mustUpdater()
	h.clock.now = h.clock.now.Add(update.TrialTime)
	h.disk.dieAt, h.disk.after = h.disk.changes+1, true
	if _, err := u.Ensure(t.Context(), releaseOf(deaf), func() {}); errors.Is(err, agent.ErrRestart) {
		t.Fatal("not killed")
	}
	h.disk.revive(false, nil)
	if _, err := h.mustUpdater().Ensure(t.Context(), releaseOf(deaf), func() {}); !errors.Is(err, agent.ErrRestart) {
		t.Errorf("goes on: %v", err)
	}
	if got := h.disk.content(program); got != present {
		t.Errorf("installed is %q", got)
	}
}

// The guard does nothing while the former program is installed.
func TestGuardLeavesTheFormerProgram(t *testing.T) {
	t.Parallel()
	h := newHost(t, good)
	if _, err := h.mustUpdater().Ensure(t.Context(), releaseOf(good), func() {}); !errors.Is(err, agent.ErrRestart) {
		t.Fatal(err)
	}
	h.disk.put(program, present)
	before := h.disk.content(documentFolder + "update.json")
	for range update.MaxStarts + 2 {
		if err := update.Guard(documents{h.disk}, h.disk, h.clock.now, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	if after := h.disk.content(documentFolder + "update.json"); after != before {
		t.Errorf("recorded %s", after)
	}
}

// A host that runs the pinned release reports no update, unless it reported a failure
// before.
func TestSatisfied(t *testing.T) {
	t.Parallel()
	h := newHost(t, older)
	u := h.mustUpdater()
	shouting := releaseOf(present)
	shouting.SHA256 = strings.ToUpper(shouting.SHA256)
	if again, err := u.Ensure(t.Context(), shouting, func() {}); again != 0 || err != nil || u.Report() != nil {
		t.Errorf("again after %s, %v, reports %+v", again, err, u.Report())
	}
	h.refuses(u, releaseOf(older), "older")
	changed := 0
	for range 2 {
		if again, err := u.Ensure(t.Context(), releaseOf(present), func() { changed++ }); again != 0 || err != nil {
			t.Errorf("again after %s, %v", again, err)
		}
	}
	if report := u.Report(); report.State != protocol.StateSucceeded || report.Version != "v1.0.0" || changed != 1 {
		t.Errorf("reports %+v, changed %d times", report, changed)
	}
}

// A program that was replaced by hand does not count as an update.
func TestForgetsAnUpdateThatWasReplaced(t *testing.T) {
	t.Parallel()
	h := newHost(t, good)
	if report, err := h.service(releaseOf(good)); err != nil || report.State != protocol.StateSucceeded {
		t.Fatalf("%+v, %v", report, err)
	}
	h.disk.put(program, present)
	if report := h.mustUpdater().Report(); report != nil {
		t.Errorf("reports %+v", report)
	}
}

// If the updater cannot write its record, it fails before it replaces the program.
func TestEndsWhenItCannotRemember(t *testing.T) {
	t.Parallel()
	h := newHost(t, good)
	u := h.mustUpdater()
	h.disk.fullFor = documentFolder + "update.json"
	if _, err := u.Ensure(t.Context(), releaseOf(good), func() {}); err == nil || errors.Is(err, agent.ErrRestart) {
		t.Errorf("%v", err)
	}
	if got := h.disk.content(program); got != present {
		t.Errorf("runs %q", got)
	}
}
