package elemental

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// rig is a host with Elemental OS below a directory, whose elemental program is the
// stand-in in testdata.
type rig struct {
	t      *testing.T
	dir    string
	root   string
	system System
	bootID string
	// dieAt is the write at which the power is cut, before it or after it took
	// effect; 0: never.
	dieAt, writes int
	after         bool
	// reboots counts; falls is whether the boot loader falls back.
	reboots  int
	falls    bool
	goesDown context.CancelCauseFunc
	// stuck keeps the host from rebooting.
	stuck bool
	// commands are those that were run, and broken fails them.
	commands []string
	broken   error
	// leftovers are what the host has of a node, and executed what bootstraps it ran.
	leftovers []string
	executed  []string
	undone    []string
	stopped   int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, dir: dir, root: filepath.Join(dir, "root"), bootID: "boot-0"}
	r.system = System{Root: r.root}
	bin, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("STANDIN", dir)
	r.boot(ModeActive)
	r.deployed("oci://registry/os:1")
	r.write("persistent/pod", "data")
	private, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := identity.EncodeKey(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.store().UpdateIdentity(func(i *state.Identity) { i.Key = string(text) }); err != nil {
		t.Fatal(err)
	}
	r.writes = 0
	return r
}

func (r *rig) write(name, content string) {
	r.t.Helper()
	path := filepath.Join(r.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// deployed is what state.yaml says before anything is done.
func (r *rig) deployed(source string) {
	r.write("run/initramfs/elemental-state/state.yaml",
		"date: now\nstate:\n  label: COS_STATE\n  snapshots:\n    1:\n      source: "+source+"\n      active: true\n")
}

// boot is a boot into a system: the markers change, and the boot's ID.
func (r *rig) boot(mode Mode) {
	r.t.Helper()
	if err := os.RemoveAll(filepath.Join(r.root, "run/elemental")); err != nil {
		r.t.Fatal(err)
	}
	r.write("run/elemental/"+string(mode)+"_mode", "1")
	r.bootID += "+"
}

// plays tells the stand-in how to behave.
func (r *rig) plays(what string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "plays"), []byte(what), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// calls are how the stand-in was called.
func (r *rig) calls() string {
	data, _ := os.ReadFile(filepath.Join(r.dir, "calls"))
	return string(data)
}

// await waits until the stand-in has made a file.
func (r *rig) await(name string) {
	NewWithT(r.t).Eventually(func() error {
		_, err := os.Stat(filepath.Join(r.dir, name))
		return err
	}, 20*time.Second).Should(Succeed())
}

// shell runs a command of a boot stage.
func (r *rig) shell(command string) {
	r.t.Helper()
	if out, err := exec.CommandContext(r.t.Context(), "sh", "-ec", command).CombinedOutput(); err != nil {
		r.t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

func (r *rig) stateDir() string { return filepath.Join(r.root, StateDir) }

func (r *rig) store() *state.Store {
	r.t.Helper()
	dir, err := state.NewDir(r.stateDir())
	if err != nil {
		r.t.Fatal(err)
	}
	store, err := state.Open(&mortal{Dir: dir, rig: r})
	if err != nil {
		r.t.Fatal(err)
	}
	return store
}

var errPower = errors.New("power cut")

// mortal is a disk that can lose power.
type mortal struct {
	*state.Dir
	rig *rig
}

func (m *mortal) Write(name string, data []byte) error {
	m.rig.writes++
	if m.rig.dieAt > 0 && m.rig.writes >= m.rig.dieAt {
		if m.rig.writes == m.rig.dieAt && m.rig.after {
			_ = m.Dir.Write(name, data)
		}
		return errPower
	}
	return m.Dir.Write(name, data)
}

// Reboot boots what the boot loader would choose.
func (r *rig) Reboot(ctx context.Context) error {
	if r.stuck {
		return errors.New("the unit is not enabled")
	}
	r.reboots++
	next := ModeActive
	if data, err := os.ReadFile(filepath.Join(r.root, "next")); err == nil && string(data) == "recovery" {
		next = ModeRecovery
	} else if r.falls {
		next = ModePassive
	}
	_ = os.Remove(filepath.Join(r.root, "next"))
	r.boot(next)
	r.goesDown(errGoneDown)
	return context.Cause(ctx)
}

// errGoneDown ends an agent whose host goes down.
var errGoneDown = errors.New("the host goes down")

// alive is the context of one life of the agent, which a reboot ends.
func (r *rig) alive() context.Context {
	ctx, cancel := context.WithCancelCause(r.t.Context())
	r.goesDown = cancel
	return ctx
}

// Run is the rig's Commander.
func (r *rig) Run(_ context.Context, _ string, args ...string) (string, error) {
	line := strings.Join(args, " ")
	r.commands = append(r.commands, line)
	if r.broken == nil && strings.HasSuffix(args[0], "editenv") {
		r.write("next", strings.TrimPrefix(args[len(args)-1], "next_entry="))
	}
	return "", r.broken
}

func (r *rig) Stop(context.Context) error { r.stopped++; return nil }

func (r *rig) Executed() ([]string, error) { return r.executed, nil }

func (r *rig) Undo(_ context.Context, folder string) error {
	r.undone = append(r.undone, folder)
	return nil
}

func (r *rig) Inventory(context.Context) (protocol.Inventory, error) {
	return protocol.Inventory{}, nil
}

func (r *rig) Addresses(context.Context) ([]protocol.Address, error) { return nil, nil }

// Cleanliness sees the persistent partition.
func (r *rig) Cleanliness(context.Context) (protocol.Cleanliness, error) {
	found := r.leftovers
	if _, err := os.Stat(filepath.Join(r.root, "persistent/pod")); err == nil {
		found = append(found, "file /persistent/pod")
	}
	return protocol.Cleanliness{Clean: len(found) == 0, Leftovers: found}, nil
}

// clock waits for nothing.
type clock struct{ waits sync.Map }

func (c *clock) Now() time.Time { return time.Time{} }

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	c.waits.Store(d, true)
	return ctx.Err()
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
