package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/update"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// site is a machine with an agent that was built from these sources, and a
// server that has others.
type site struct {
	t                    *testing.T
	dir, path, configure string
	server               *httptest.Server
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{t: t, dir: dir, path: filepath.Join(dir, "bin", "elemental-agent"), configure: filepath.Join(dir, "config.yaml")}
	offered := filepath.Join(dir, "offered")
	for _, folder := range []string{offered, filepath.Dir(s.path)} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.server = httptest.NewTLSServer(http.FileServer(http.Dir(offered)))
	t.Cleanup(s.server.Close)
	bundle := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw}))
	settings := "servers: [" + s.server.URL + "]\nstateDir: " + dir + "/state\ntrustBundle: |\n  " + strings.ReplaceAll(bundle, "\n", "\n  ") + "\n"
	if err := os.WriteFile(s.configure, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// build builds a package or file into what the server offers.
func (s *site) build(source, version string) *protocol.AgentRelease {
	s.t.Helper()
	path := filepath.Join(s.dir, "built")
	build := exec.CommandContext(s.t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version, "-o", path, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	if err := os.Rename(path, filepath.Join(s.dir, "offered", digest)); err != nil {
		s.t.Fatal(err)
	}
	return &protocol.AgentRelease{Version: version, SHA256: digest}
}

// AgentBinary fetches over HTTP; that of the client is tested with it.
func (s *site) AgentBinary(ctx context.Context, digest string, _ int64, save func(from, size int64, body io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/"+digest, http.NoBody)
	if err != nil {
		return err
	}
	response, err := s.server.Client().Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return save(0, response.ContentLength, response.Body)
}

// updater is that of the program that is installed now.
func (s *site) updater() *update.Updater {
	s.t.Helper()
	dir, err := state.NewDir(filepath.Join(s.dir, "state"))
	if err != nil {
		s.t.Fatal(err)
	}
	running, err := os.ReadFile(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	u, err := update.New(update.Options{
		Documents: dir, Disk: update.System{}, Folder: dir.Path("update"), Path: s.path,
		Running: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(running))), nil },
		Version: s.says(s.path), Source: func() update.Source { return s },
		Probe: func(ctx context.Context, path string) (string, error) {
			return update.ProbeVersion(ctx, retry.System{}, path)
		},
		Clock: retry.System{}, Log: slog.New(slog.NewTextHandler(s.t.Output(), nil)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return u
}

// says is the version that a program prints.
func (s *site) says(path string) string {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), path, "version").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Fields(string(out))[1]
}

// start does what the unit does at a start: the guard, then the program.
func (s *site) start() error {
	s.t.Helper()
	if _, err := os.Stat(s.path + update.PreviousSuffix); err == nil {
		guard := exec.CommandContext(s.t.Context(), s.path+update.PreviousSuffix, "guard", "--config", s.configure)
		if out, err := guard.CombinedOutput(); err != nil {
			s.t.Fatalf("the guard: %v: %s", err, out)
		}
	}
	return exec.CommandContext(s.t.Context(), s.path, "version", "and", "fail").Run()
}

// Real programs replace each other: one release after another, and one that
// does not start is taken back by the one before.
func TestUpdatesRealPrograms(t *testing.T) {
	s := newSite(t)
	first, second := s.build(".", "v1.0.0"), s.build(".", "v1.1.0")
	if err := os.Rename(filepath.Join(s.dir, "offered", first.SHA256), s.path); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := s.updater().Ensure(t.Context(), second, func() {}); !errors.Is(err, agent.ErrRestart) {
		t.Fatal(err)
	}
	t.Logf("replaced within %s", time.Since(began).Round(time.Millisecond))
	if now, before := s.says(s.path), s.says(s.path+update.PreviousSuffix); now != "v1.1.0" || before != "v1.0.0" {
		t.Errorf("installed %s over %s", now, before)
	}
	u := s.updater()
	if err := u.Confirm(); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Ensure(t.Context(), second, func() {}); err != nil {
		t.Fatal(err)
	}
	if report := u.Report(); report.State != protocol.StateSucceeded || report.Version != "v1.1.0" {
		t.Errorf("reports %+v", report)
	}
	if entries, err := os.ReadDir(filepath.Dir(s.path)); err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v", entries, err)
	}

	source := filepath.Join(s.dir, "broken.go")
	broken := "package main\n\nimport \"os\"\n\nvar version string\n\nfunc main() {\n\tif len(os.Args) == 2 && os.Args[1] == \"version\" {\n" +
		"\t\tos.Stdout.WriteString(\"elemental-agent \" + version + \"\\n\")\n\t\treturn\n\t}\n\tos.Exit(7)\n}\n"
	if err := os.WriteFile(source, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	third := s.build(source, "v1.2.0")
	if _, err := u.Ensure(t.Context(), third, func() {}); !errors.Is(err, agent.ErrRestart) {
		t.Fatal(err)
	}
	for start := range update.MaxStarts {
		var failure *exec.ExitError
		if err := s.start(); !errors.As(err, &failure) || failure.ExitCode() != 7 {
			t.Errorf("start %d of what is broken: %v", start+1, err)
		}
	}
	_ = s.start()
	if now := s.says(s.path); now != "v1.1.0" {
		t.Errorf("installed is %s", now)
	}
	if report := s.updater().Report(); report.State != protocol.StateFailed || report.Version != "v1.2.0" || !strings.Contains(report.Message, "3 times") {
		t.Errorf("reports %+v", report)
	}
}
