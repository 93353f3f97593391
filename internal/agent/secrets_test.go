package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// noPrograms is a host without programs; scripts need none.
type noPrograms struct{}

func (noPrograms) Run(context.Context, host.Command) (string, error) {
	return "", errors.ErrUnsupported
}

// sink collects everything written to it.
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

// add appends a value as JSON.
func (s *sink) add(t *testing.T, value any) {
	t.Helper()
	if err := json.NewEncoder(s).Encode(value); err != nil {
		t.Error(err)
	}
}

// A host is refused, enrols, rotates its key and fails two bootstraps: with data that
// prints its secrets, and with malformed data. No token, key or data appears in a log
// at any level, in a report, or in the connection and operations that
// "elemental-agent status" shows.
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
	output := &sink{}
	r.folder, r.log = dir, slog.NewJSONHandler(output, &slog.HandlerOptions{Level: slog.LevelDebug - 4, AddSource: true})
	r.shown = func(c connection.Status) { output.add(t, c) }
	r.real = &bootstrap.LocalExecutor{
		Files: dir, Dir: dir.Path(""), Root: rootOf(t, "tester"), System: noPrograms{}, ScriptCommand: []string{self, scriptRunner},
	}
	refusal := &protocol.Problem{Type: protocol.ProblemTokenRefused, Title: "Token refused", Status: 403}
	r.manager.set(func(m *manager) {
		m.refuse = func(string) *protocol.Problem { return refusal }
		m.data = []byte("#cloud-config\nwrite_files:\n- path: /file\n  owner: tester:tester\n  content: hush-content\n" +
			"runcmd:\n- echo K3S_TOKEN=hush-setting\n- echo kubeadm join --token hush12.0123456789abcdef --certificate-key hush-key >&2\n- exit 7 # hush-comment\n")
	})
	r.start()
	for state := range r.statuses {
		if state == connection.Disconnected {
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
	output.add(t, r.manager.reports)
	r.manager.mu.Unlock()
	store, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range store.Operations() {
		output.add(t, op)
	}
	text := output.String()
	for _, shown := range []string{"Rotated the host's key", "Token refused", "status 7"} {
		if !strings.Contains(text, shown) {
			t.Errorf("%q is missing, so the test does not check the right output", shown)
		}
	}
	secrets := append([]string{token, "hush", "0123456789abcdef", "PRIVATE KEY"}, append(keys, keysIn(t, dir)...)...)
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(line, secret) }) {
			t.Errorf("exposed a secret: %s", line)
		}
	}
}

// rootOf returns a folder that stands for "/", in which the user who runs the test has a name. Files of the bootstrap
// data belong to that user, because only root may give files away.
func rootOf(t *testing.T, user string) string {
	t.Helper()
	root := t.TempDir()
	id := strconv.Itoa
	for name, line := range map[string]string{
		"passwd": user + ":x:" + id(os.Getuid()) + ":" + id(os.Getgid()) + "::/:/bin/sh\n",
		"group":  user + ":x:" + id(os.Getgid()) + ":\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, "etc"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// keysIn returns parts of the text of the host's key.
func keysIn(t *testing.T, files state.Files) []string {
	t.Helper()
	store, err := state.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(store.Identity().Key, "\n")
	if len(lines) < 3 || len(lines[1]) < 40 {
		t.Fatal("the key is not PEM")
	}
	return []string{lines[1][:40], lines[1][len(lines[1])-20:]}
}
