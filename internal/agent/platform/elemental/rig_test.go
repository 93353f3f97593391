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

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// rig is a host with Elemental OS in a directory. Its elemental CLI is the fake in
// testdata.
type rig struct {
	// Platform is nil, because a reset needs only the methods that rig implements.
	platform.Platform

	t      *testing.T
	dir    string
	root   string
	system System
	bootID string
	// dieAt is the number of the write at which the power is cut; 0 means never.
	dieAt, writes int
	// after is true if that write takes effect before the power is cut.
	after   bool
	reboots int
	// fallsBack is true if the boot loader boots the passive system.
	fallsBack bool
	// shutDown cancels the context of alive.
	shutDown context.CancelCauseFunc
	// stuck is true if the host does not reboot.
	stuck bool
	// commands are the command lines that were run.
	commands []string
	// commandErr is the error of every command.
	commandErr error
	leftovers  []string
	// executed are the folders of executed bootstraps, undone those of undone ones.
	executed, undone []string
	// stops counts the calls of Stop.
	stops int
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
	t.Setenv("FAKE_DIR", dir)
	r.boot(ModeActive)
	r.deploy("oci://registry/os:1")
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

// deploy writes a state.yaml that names source as the image of the active system.
func (r *rig) deploy(source string) {
	r.write("run/initramfs/elemental-state/state.yaml",
		"date: now\nstate:\n  label: COS_STATE\n  snapshots:\n    1:\n      source: "+source+"\n      active: true\n")
}

// boot imitates a boot into a system. It changes the markers and the boot ID.
func (r *rig) boot(mode Mode) {
	r.t.Helper()
	if err := os.RemoveAll(filepath.Join(r.root, "run/elemental")); err != nil {
		r.t.Fatal(err)
	}
	r.write("run/elemental/"+string(mode)+"_mode", "1")
	r.bootID += "+"
}

// setBehavior sets what the fake CLI does; see testdata.
func (r *rig) setBehavior(behavior string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "behavior"), []byte(behavior), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// calls returns the arguments and the environment of the calls of the fake CLI.
func (r *rig) calls() string {
	data, _ := os.ReadFile(filepath.Join(r.dir, "calls"))
	return string(data)
}

// await waits until the fake CLI has created a file.
func (r *rig) await(name string) {
	NewWithT(r.t).Eventually(func() error {
		_, err := os.Stat(filepath.Join(r.dir, name))
		return err
	}, time.Minute).Should(Succeed())
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
	store, err := state.Open(&powerCutDisk{Dir: dir, rig: r})
	if err != nil {
		r.t.Fatal(err)
	}
	return store
}

var errPower = errors.New("power cut")

// powerCutDisk fails from the write on at which the power is cut.
type powerCutDisk struct {
	*state.Dir
	rig *rig
}

func (d *powerCutDisk) Write(name string, data []byte) error {
	d.rig.writes++
	if d.rig.dieAt > 0 && d.rig.writes >= d.rig.dieAt {
		if d.rig.writes == d.rig.dieAt && d.rig.after {
			_ = d.Dir.Write(name, data)
		}
		return errPower
	}
	return d.Dir.Write(name, data)
}

// Reboot boots the system that the boot loader would choose.
func (r *rig) Reboot(ctx context.Context) error {
	if r.stuck {
		return errors.New("the unit is not enabled")
	}
	r.reboots++
	next := ModeActive
	if data, err := os.ReadFile(filepath.Join(r.root, "next")); err == nil && string(data) == "recovery" {
		next = ModeRecovery
	} else if r.fallsBack {
		next = ModePassive
	}
	_ = os.Remove(filepath.Join(r.root, "next"))
	r.boot(next)
	r.shutDown(errShutdown)
	return context.Cause(ctx)
}

// errShutdown ends an agent when its host reboots.
var errShutdown = errors.New("the host goes down")

// alive returns the context of an agent until the next reboot.
func (r *rig) alive() context.Context {
	ctx, cancel := context.WithCancelCause(r.t.Context())
	r.shutDown = cancel
	return ctx
}

// Run implements oscommand.Runner.
func (r *rig) Run(_ context.Context, _ string, args ...string) (string, error) {
	line := strings.Join(args, " ")
	r.commands = append(r.commands, line)
	if r.commandErr == nil && strings.HasSuffix(args[0], "editenv") {
		r.write("next", strings.TrimPrefix(args[len(args)-1], "next_entry="))
	}
	return "", r.commandErr
}

func (r *rig) Stop(context.Context) error { r.stops++; return nil }

func (r *rig) Executed() ([]string, error) { return r.executed, nil }

func (r *rig) Undo(_ context.Context, folder string) error {
	r.undone = append(r.undone, folder)
	return nil
}

func (r *rig) Inventory(context.Context) (protocol.Inventory, error) {
	return protocol.Inventory{}, nil
}

func (r *rig) Addresses(context.Context) ([]protocol.Address, error) { return nil, nil }

// Cleanliness reports the rig's leftovers and the file on the persistent partition.
func (r *rig) Cleanliness(context.Context) (protocol.Cleanliness, error) {
	found := r.leftovers
	if _, err := os.Stat(filepath.Join(r.root, "persistent/pod")); err == nil {
		found = append(found, "file /persistent/pod")
	}
	return protocol.Cleanliness{Clean: len(found) == 0, Leftovers: found}, nil
}

// clock records the waits and does not wait.
type clock struct{ waits sync.Map }

func (c *clock) Now() time.Time { return time.Time{} }

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	c.waits.Store(d, true)
	return ctx.Err()
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
