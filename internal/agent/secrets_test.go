package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/apply"
	onhost "github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/executor"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// noPrograms are those of a host that has none; scripts need none.
type noPrograms struct{}

func (noPrograms) Run(context.Context, apply.Command) (string, error) {
	return "", errors.ErrUnsupported
}

// sink keeps all that is written.
type sink struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// keep adds what would be shown or sent.
func (s *sink) keep(t *testing.T, what any) {
	t.Helper()
	if err := json.NewEncoder(s).Encode(what); err != nil {
		t.Error(err)
	}
}

// A host is refused, enrols, rotates its key, and fails twice to become a node:
// by data that prints its secrets, and by data that cannot be read. Of its token,
// keys and data nothing is in a log at any level, in a report, or in what
// "elemental-agent status" shows, which is the connection and the operations.
func TestThreat27_AgentTellsNoSecret(t *testing.T) {
	r := newRig(t)
	dir, err := state.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	told := &sink{}
	r.folder, r.log = dir, slog.NewJSONHandler(told, &slog.HandlerOptions{Level: slog.LevelDebug - 4, AddSource: true})
	r.shown = func(c agent.Connection) { told.keep(t, c) }
	r.real = &onhost.Executor{
		Files: dir, Dir: dir.Path(""), Root: "/", System: noPrograms{}, Runner: []string{self, scriptRunner},
	}
	refusal := &protocol.Problem{Type: protocol.ProblemTokenRefused, Title: "Token refused", Status: 403}
	r.manager.set(func(m *manager) {
		m.refuse = func(string) *protocol.Problem { return refusal }
		m.data = []byte("#cloud-config\nwrite_files:\n- path: " + filepath.Join(t.TempDir(), "file") + "\n  content: hush-content\n" +
			"runcmd:\n- echo K3S_TOKEN=hush-setting\n- echo kubeadm join --token hush12.0123456789abcdef --certificate-key hush-key >&2\n- exit 7 # hush-comment\n")
	})
	r.start()
	for state := range r.statuses {
		if state == agent.Disconnected {
			break
		}
	}
	r.manager.set(func(m *manager) { m.refuse = nil })
	r.manager.await(t, "connected", func(m *manager) bool { return m.polls > 0 })
	keys := keysIn(t, dir)
	r.aged()
	r.manager.await(t, "the key is rotated", rotated)
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "the script failed", ended("a", protocol.StateFailed))
	r.manager.set(func(m *manager) {
		m.data = []byte("#cloud-config\nruncmd: {hush-mapping: [hush-list\npassword: hush-password\n")
	})
	r.manager.want(bootstrapOf("b"), protocol.Desired{})
	r.manager.await(t, "the data was refused", ended("b", protocol.StateFailed))

	r.manager.mu.Lock()
	told.keep(t, r.manager.reports)
	r.manager.mu.Unlock()
	store, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range store.Operations() {
		told.keep(t, op)
	}
	text := told.String()
	for _, shown := range []string{"Rotated the host's key", "Token refused", "status 7"} {
		if !strings.Contains(text, shown) {
			t.Errorf("%q is missing, so this looks in the wrong place", shown)
		}
	}
	secrets := append([]string{token, "hush", "0123456789abcdef", "PRIVATE KEY"}, append(keys, keysIn(t, dir)...)...)
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(line, secret) }) {
			t.Errorf("told a secret: %s", line)
		}
	}
}

// keysIn are parts of the text of the host's keys.
func keysIn(t *testing.T, files state.Files) []string {
	t.Helper()
	store, err := state.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(store.Identity().Key, "\n")
	if len(lines) < 3 || len(lines[1]) < 40 {
		t.Fatal("the key looks like something else")
	}
	return []string{lines[1][:40], lines[1][len(lines[1])-20:]}
}
