package update_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/update"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const program = "/usr/local/bin/elemental-agent"

// Programs, with the version that they print and their behaviour.
const (
	present = "program v1.0.0 connects"
	good    = "program v1.1.0 connects, and is somewhat longer than the former one"
	broken  = "program v1.1.0 exits"
	deaf    = "program v1.1.0 reaches nobody"
	older   = "program v0.9.0 connects"
)

func sum(content string) string {
	digest := sha256.Sum256([]byte(content))
	return hex.EncodeToString(digest[:])
}

func releaseOf(content string) *protocol.AgentRelease {
	fields := strings.Fields(content)
	return &protocol.AgentRelease{Version: fields[1], SHA256: sum(content)}
}

// clock advances only by waits.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	return ctx.Err()
}

// host is a machine whose service starts the program at its path.
type host struct {
	t     *testing.T
	disk  *disk
	clock *clock
	// serve is the manager's answer.
	serve func(digest string, offset int64, save func(from, size int64, body io.Reader) error) error
	// asked lists the requested offsets.
	asked []int64
	// ran lists the programs that were executed for their version.
	ran []string
	// starts counts the starts of each program.
	starts map[string]int
}

func newHost(t *testing.T, offered string) *host {
	t.Helper()
	h := &host{t: t, disk: newDisk(), clock: &clock{now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}, starts: map[string]int{}}
	h.disk.put(program, present)
	h.serve = whole(offered)
	return h
}

// whole serves a content from the requested offset on.
func whole(content string) func(string, int64, func(from, size int64, body io.Reader) error) error {
	return func(_ string, offset int64, save func(from, size int64, body io.Reader) error) error {
		if offset > int64(len(content)) {
			offset = 0
		}
		return save(offset, int64(len(content)), strings.NewReader(content[offset:]))
	}
}

func (h *host) AgentBinary(_ context.Context, digest string, offset int64, save func(from, size int64, body io.Reader) error) error {
	h.asked = append(h.asked, offset)
	return h.serve(digest, offset, save)
}

func (h *host) probe(_ context.Context, path string) (string, error) {
	content := h.disk.content(path)
	h.ran = append(h.ran, content)
	if h.disk.names[path].mode != 0o755 {
		return "", errors.New("permission denied")
	}
	if !strings.HasPrefix(content, "program ") {
		return "", errors.New("exec format error")
	}
	return strings.Fields(content)[1], nil
}

// updater returns the updater of the installed program.
func (h *host) updater() (*update.Updater, error) {
	content := h.disk.content(program)
	return update.New(update.Options{
		Documents: documents{h.disk}, Disk: h.disk, Folder: "/state/update", Path: program,
		Running: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader([]byte(content))), nil },
		Version: strings.Fields(content)[1], Source: func() update.Source { return h }, Probe: h.probe,
		Clock: h.clock, Rand: func() float64 { return 0.5 }, Log: slog.New(slog.DiscardHandler),
	})
}

func (h *host) mustUpdater() *update.Updater {
	h.t.Helper()
	u, err := h.updater()
	if err != nil {
		h.t.Fatal(err)
	}
	return u
}

// service starts the installed program, as the systemd unit does, until it keeps
// running. It returns the report of the update, or errDead.
func (h *host) service(pinned *protocol.AgentRelease) (*protocol.AgentUpdate, error) {
	for range 20 {
		if strings.HasPrefix(h.disk.content(program+update.PreviousSuffix), "program ") {
			err := update.Guard(documents{h.disk}, h.disk, h.clock.now, slog.New(slog.DiscardHandler))
			if err != nil && !errors.Is(err, errDead) {
				h.t.Fatalf("the guard: %v", err)
			}
			if h.disk.dead {
				return nil, errDead
			}
		}
		content := h.disk.content(program)
		h.starts[content]++
		switch content {
		case broken:
			continue
		case present, good, deaf:
		default:
			h.t.Fatalf("the installed program is %q, not an agent", content)
		}
		report, err := h.life(content, pinned)
		if err == nil || errors.Is(err, errDead) {
			return report, err
		}
		if !errors.Is(err, agent.ErrRestart) {
			h.t.Fatal(err)
		}
	}
	h.t.Fatal("the program restarts endlessly")
	return nil, nil
}

// life runs a program until the updater is idle.
func (h *host) life(content string, pinned *protocol.AgentRelease) (*protocol.AgentUpdate, error) {
	u, err := h.updater()
	if err != nil {
		return nil, err
	}
	for range 20 {
		if content != deaf {
			if err := u.Confirm(); err != nil {
				return nil, err
			}
		}
		again, err := u.Ensure(context.Background(), pinned, func() {})
		if err != nil {
			return nil, err
		}
		if h.disk.dead {
			return nil, errDead
		}
		report := u.Report()
		if again == 0 || again > time.Hour {
			return report, nil
		}
		if err := h.clock.Wait(context.Background(), again); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the updater never became idle: %+v", u.Report())
}
