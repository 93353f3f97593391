package elemental

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const newImage = "oci:registry/os:2"

func upgradeTo(image string) state.Operation {
	return state.Operation{Operation: protocol.Operation{Type: protocol.OperationUpgrade, ID: "u", Image: image}}
}

func (r *rig) upgrader() *UpgradeRunner {
	return &UpgradeRunner{
		System: r.system, Documents: r.store().Documents(), Platform: r, BootID: r.bootID, Log: quiet(),
	}
}

// upgrade runs the operation after each boot until it has a result, as the agent
// does.
func (r *rig) upgrade(op state.Operation) operation.Result {
	r.t.Helper()
	for range 12 {
		result, err := r.upgrader().Run(r.alive(), op, func(string) {})
		if err == nil {
			return result
		}
		if errors.Is(err, errPower) {
			r.dieAt = 0
			r.boot(r.system.Mode())
		}
	}
	r.t.Fatal("no result")
	return operation.Result{}
}

func (r *rig) upgrades() int { return strings.Count(r.calls(), "upgrade\n") }

func TestUpgrade(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"v2":                func(*rig) {},
		"v2 without labels": func(r *rig) { r.flag("no-labels") },
		"v1": func(r *rig) {
			r.flag("v1")
			r.write("run/initramfs/cos-state/state.yaml", "date: now\nstate:\n  active:\n    source: oci://registry/os:1\n")
			if err := os.RemoveAll(filepath.Join(r.root, "run/initramfs/elemental-state")); err != nil {
				r.t.Fatal(err)
			}
		},
		"the same tag of a new image": func(r *rig) { r.deploy("oci://registry/os:2") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			prepare(r)
			result := r.upgrade(upgradeTo(newImage))
			if result.State != protocol.StateSucceeded || r.upgrades() != 1 || r.reboots != 1 {
				t.Errorf("%+v after %d upgrades and %d reboots", result, r.upgrades(), r.reboots)
			}
			want := "upgrade\nELEMENTAL_UPGRADE_SNAPSHOT_LABELS=elemental-agent-operation=" + labelOf("u") +
				"\nELEMENTAL_UPGRADE_SYSTEM=oci:registry/os:2\n"
			if r.calls() != want {
				t.Errorf("called\n%s", r.calls())
			}
		})
	}
}

// flag creates a file that changes the fake CLI; see testdata.
func (r *rig) flag(name string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), nil, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// If the requested system does not run for any reason, the upgrade fails.
func TestFailedUpgrade(t *testing.T) {
	for name, test := range map[string]struct {
		image, behavior string
		prepare         func(*rig)
		message         string
		reboots         int
	}{
		"the new system does not boot":        {image: newImage, prepare: func(r *rig) { r.fallsBack = true }, message: "rolled back to the passive system", reboots: 1},
		"the CLI fails":                       {image: newImage, behavior: "fail", message: "403 Forbidden"},
		"the CLI succeeds without an upgrade": {image: newImage, behavior: "no-op", message: "does not name"},
		"no image":                            {image: "registry/os:2", message: "is no image"},
		"another flag instead of an image":    {image: "oci:x --force", message: "is no image"},
		"the recovery system runs":            {image: newImage, prepare: func(r *rig) { r.boot(ModeRecovery) }, message: "recovery system"},
		"unknown active system": {image: newImage, prepare: func(r *rig) {
			r.write("run/initramfs/elemental-state/state.yaml", "state: {}")
		}, message: "names no active system"},
		"the host does not reboot": {image: newImage, prepare: func(r *rig) { r.stuck = true }, message: "did not reboot"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if test.behavior != "" {
				r.setBehavior(test.behavior)
			}
			if test.prepare != nil {
				test.prepare(r)
			}
			result := r.upgrade(upgradeTo(test.image))
			if result.State != protocol.StateFailed || !strings.Contains(result.Message, test.message) || r.reboots != test.reboots {
				t.Errorf("%+v after %d reboots", result, r.reboots)
			}
			if strings.Contains(result.Message, "abc") {
				t.Errorf("the message contains a secret: %s", result.Message)
			}
		})
	}
}

func TestRollbackByAdministrator(t *testing.T) {
	r := newRig(t)
	if _, err := r.upgrader().Run(r.alive(), upgradeTo(newImage), func(string) {}); !errors.Is(err, errShutdown) {
		t.Fatal(err)
	}
	// An administrator made the former system the active one again.
	r.deploy("oci://registry/os:1")
	result := r.upgrade(upgradeTo(newImage))
	if result.State != protocol.StateFailed || result.Message != "rolled back to oci://registry/os:1" {
		t.Errorf("got %+v", result)
	}
}

// clockUntil is a clock whose waits are over when the function returns.
type clockUntil func()

func (clockUntil) Now() time.Time { return time.Now() }

func (c clockUntil) Wait(context.Context, time.Duration) error {
	c()
	return nil
}

func TestUpgradeTimeout(t *testing.T) {
	r := newRig(t)
	r.setBehavior("hang")
	u := r.upgrader()
	u.CLI.Clock = clockUntil(func() { r.await("hangs") })
	result, err := u.Run(t.Context(), upgradeTo(newImage), func(string) {})
	if err != nil || result.State != protocol.StateFailed || !strings.Contains(result.Message, "it took more than 2h0m0s") {
		t.Errorf("got %+v, %v", result, err)
	}
	pid, err := os.ReadFile(filepath.Join(r.dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(func() bool {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		return err != nil || strings.Contains(string(state), ") Z")
	}, time.Minute).Should(BeTrue(), "a child process of the CLI still runs")
}

// The agent is stopped during each attempt.
func TestInterruptedUpgradeFails(t *testing.T) {
	r := newRig(t)
	r.setBehavior("block")
	for range maxAttempts {
		_ = os.Remove(filepath.Join(r.dir, "hangs"))
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			r.await("hangs")
			stop()
		}()
		if result, err := r.upgrader().Run(ctx, upgradeTo(newImage), func(string) {}); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %+v, %v", result, err)
		}
	}
	result := r.upgrade(upgradeTo(newImage))
	if result.State != protocol.StateFailed || !strings.Contains(result.Message, "interrupted 3 times") {
		t.Errorf("got %+v", result)
	}
}

// The power is cut before and after each write.
func TestUpgradeSurvivesEveryPowerCut(t *testing.T) {
	for _, falls := range []bool{false, true} {
		for step := 1; step <= 6; step++ {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("write %d, after=%t, falls back=%t", step, after, falls), func(t *testing.T) {
					r := newRig(t)
					r.dieAt, r.after, r.fallsBack = step, after, falls
					result := r.upgrade(upgradeTo(newImage))
					want := protocol.StateSucceeded
					if r.system.Mode() != ModeActive {
						want = protocol.StateFailed
					}
					if result.State != want || r.upgrades() != 1 {
						t.Errorf("%+v after %d upgrades", result, r.upgrades())
					}
				})
			}
		}
	}
}

func TestDeploymentIsFrom(t *testing.T) {
	for _, test := range []struct {
		source, image string
		want          bool
	}{
		{"oci://registry/os:1", "oci:registry/os:1", true},
		{"oci://registry/os:1", "docker:registry/os:1", true},
		{"oci://registry:5000/os:latest", "oci:registry:5000/os", true},
		{"oci://docker.io/library/os:1", "docker:os:1", true},
		{"dir:///run/x", "dir:/run/x", true},
		{"oci://registry/os@sha256:1", "oci:registry/os@sha256:1", true},
		{"oci://registry/os:1", "oci:registry/os:2", false},
		{"oci://registry/os:1", "oci:other/os:1", false},
		{"dir:///x", "file:/x", false},
		{"", newImage, false},
	} {
		if got := (deployment{Source: test.source}).isFrom(test.image, "label"); got != test.want {
			t.Errorf("%q is from %q: %t", test.source, test.image, got)
		}
	}
	if (deployment{Source: "oci://registry/os:2", Operation: "other"}).isFrom(newImage, "label") {
		t.Error("mistook the upgrade of another operation for its own")
	}
}

func TestModes(t *testing.T) {
	r := newRig(t)
	for _, mode := range []Mode{ModeActive, ModePassive, ModeRecovery, ModeLive} {
		r.boot(mode)
		if got := r.system.Mode(); got != mode || !r.system.Detect() {
			t.Errorf("mode %s is detected as %q", mode, got)
		}
	}
	r.boot("")
	if r.system.Mode() != ModeNone || r.system.Detect() {
		t.Error("detects Elemental OS without markers")
	}
	r.write("run/cos/recovery_mode", "1")
	if r.system.Mode() != ModeRecovery {
		t.Error("does not find the markers of older versions")
	}
	t.Setenv("PATH", t.TempDir())
	if r.system.Detect() {
		t.Error("detects Elemental OS without the CLI")
	}
}
