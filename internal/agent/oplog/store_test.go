package oplog_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oplog"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// rig is a keeper in a real state directory.
type rig struct {
	*oplog.Store
	*testing.T

	dir    *state.Dir
	hostID string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := state.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, dir: dir, hostID: "h1"}
	r.restart()
	return r
}

// restart replaces the keeper, as a restart of the agent does.
func (r *rig) restart() {
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	r.Store = oplog.New(oplog.Options{
		Files: r.dir, HostID: func() string { return r.hostID }, Now: func() time.Time { return at }, Log: slog.New(slog.DiscardHandler),
	})
}

func bootstrapOf(id string) state.Operation {
	op := state.Operation{Attempt: 1}
	op.Type, op.ID, op.MachineName, op.ClusterName = protocol.OperationBootstrap, id, "m1", "c1"
	return op
}

func (r *rig) read() protocol.HostLog {
	r.Helper()
	log, err := r.Read(protocol.OperationBootstrap, func(string) []operation.Output {
		return []operation.Output{{Name: "runcmd", Text: []byte("so far\n")}}
	})
	if err != nil {
		r.Fatal(err)
	}
	return log
}

func TestLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	op := bootstrapOf("1")
	r.Begin(op)
	r.Add(op, "fetch")
	if log := r.read(); log.State != protocol.StateRunning || !strings.Contains(string(log.Text), "so far") {
		t.Errorf("while it runs: %s: %s", log.State, log.Text)
	}
	r.restart()
	r.End(op, operation.Result{State: protocol.StateFailed, Step: "runcmd", Message: "exit status 1"}, []operation.Output{
		{Name: "bootcmd", Text: []byte("ready\r\n")}, {Name: "runcmd", Text: []byte("\x1b[31mjoining\x1b[0m --token abcdef.0123456789abcdef\n")},
	})
	log := r.read()
	want := `Bootstrap 1 for Machine m1 of Cluster c1: Failed

2026-05-04T12:00:00Z Bootstrap begins, attempt 1
2026-05-04T12:00:00Z fetch
2026-05-04T12:00:00Z Failed: runcmd: exit status 1

== bootcmd ==
ready

== runcmd ==
[31mjoining[0m --token [redacted]
`
	if string(log.Text) != want {
		t.Errorf("got\n%s\nwant\n%s", log.Text, want)
	}
	if log.OperationID != "1" || log.Redactions != 1 || log.CutBytes != 0 {
		t.Errorf("got %s, %d redactions, %d bytes cut", log.OperationID, log.Redactions, log.CutBytes)
	}
	r.Begin(bootstrapOf("2"))
	if text := string(r.read().Text); strings.Contains(text, "exit status") || !strings.HasPrefix(text, "Bootstrap 2") {
		t.Errorf("the log of the former operation remains: %s", text)
	}
}

// Secrets are not even on the disk, which outlives the reset, and only root can read what is.
func TestThreat87_NoSecretOnDisk(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	op := bootstrapOf("1")
	r.Begin(op)
	r.Add(op, "script with password=hunter2")
	r.End(op, operation.Result{State: protocol.StateFailed, Message: "Authorization: Basic hunter2"}, []operation.Output{
		{Name: "runcmd", Text: []byte("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\n--certificate-key hunter2")},
	})
	found := 0
	err := fs.WalkDir(os.DirFS(r.dir.Path(".")), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		found++
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		text, err := r.dir.Read(path)
		if strings.Contains(string(text), "hunter2") {
			t.Errorf("%s has a secret: %s", path, text)
		}
		return err
	})
	if err != nil || found != 1 {
		t.Errorf("found %d files, %v", found, err)
	}
	if log := r.read(); log.Redactions != 4 {
		t.Errorf("got %d redactions: %s", log.Redactions, log.Text)
	}
}

// A machine that is enrolled as another host, such as for another tenant, shows nothing of before.
func TestThreat87_LogIsTheHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	op := bootstrapOf("1")
	r.Begin(op)
	r.End(op, operation.Result{State: protocol.StateSucceeded}, nil)
	r.hostID = "h2"
	if log := r.read(); log.OperationID != "" || len(log.Text) != 0 {
		t.Errorf("got %s: %s", log.OperationID, log.Text)
	}
}

// Whatever programs print, the log has its limit, and both ends stay.
func TestThreat87_LogIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	op := bootstrapOf("1")
	r.Begin(op)
	for i := range 250 {
		r.Add(op, fmt.Sprintf("step %d %s", i, strings.Repeat("é", 1500)))
	}
	printed := []operation.Output{
		{Name: "first", Text: []byte("the beginning\n" + strings.Repeat("a line of output\n", 100_000))},
		{Name: "last", Text: []byte(strings.Repeat("a line of output\n", 100_000) + "the end\n")},
	}
	r.End(op, operation.Result{State: protocol.StateFailed}, printed)
	log := r.read()
	text := string(log.Text)
	if len(text) > protocol.MaxLogBytes || !utf8.ValidString(text) || log.CutBytes < 2_000_000 {
		t.Errorf("got %d bytes, %d cut", len(text), log.CutBytes)
	}
	for _, part := range []string{"step 0 ", "the end\n", "bytes left out"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in the log", part)
		}
	}
}

// A log that can't be read does not keep the next one from being written.
func TestDamagedLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.dir.Write("logs/bootstrap.json", []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(protocol.OperationBootstrap, nil); err == nil {
		t.Error("a damaged log was read")
	}
	r.Begin(bootstrapOf("1"))
	if log := r.read(); log.OperationID != "1" {
		t.Errorf("got %s", log.OperationID)
	}
}
