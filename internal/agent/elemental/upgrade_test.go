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

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const newImage = "oci:registry/os:2"

func upgradeTo(image string) state.Operation {
	return state.Operation{Operation: protocol.Operation{Type: protocol.OperationUpgrade, ID: "u", Image: image}}
}

func (r *rig) upgrader() *Upgrade {
	return &Upgrade{
		System: r.system, Documents: r.store().Documents(), Host: r, BootID: r.bootID, Log: quiet(),
	}
}

// upgrade runs the operation until it has a result, a boot after the other, as the
// agent does.
func (r *rig) upgrade(op state.Operation) agent.Result {
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
	return agent.Result{}
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
		"the same image again, its tag having moved": func(r *rig) { r.deployed("oci://registry/os:2") },
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

func (r *rig) flag(name string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), nil, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// TestUpgradeThatIsNotDoneIsNeverReportedDone has every way in which the wanted
// system can fail to run.
func TestUpgradeThatIsNotDoneIsNeverReportedDone(t *testing.T) {
	for name, test := range map[string]struct {
		image, plays string
		prepare      func(*rig)
		message      string
		reboots      int
	}{
		"the new system does not boot":     {image: newImage, prepare: func(r *rig) { r.falls = true }, message: "rolled back to the passive system", reboots: 1},
		"the CLI fails":                    {image: newImage, plays: "fail", message: "403 Forbidden"},
		"the CLI says it did and did not":  {image: newImage, plays: "liar", message: "does not name"},
		"no image":                         {image: "registry/os:2", message: "is no image"},
		"another flag instead of an image": {image: "oci:x --force", message: "is no image"},
		"the recovery system runs":         {image: newImage, prepare: func(r *rig) { r.boot(ModeRecovery) }, message: "recovery system"},
		"nobody knows what runs": {image: newImage, prepare: func(r *rig) {
			r.write("run/initramfs/elemental-state/state.yaml", "state: {}")
		}, message: "names no active system"},
		"the host does not reboot": {image: newImage, prepare: func(r *rig) { r.stuck = true }, message: "did not reboot"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if test.plays != "" {
				r.plays(test.plays)
			}
			if test.prepare != nil {
				test.prepare(r)
			}
			result := r.upgrade(upgradeTo(test.image))
			if result.State != protocol.StateFailed || !strings.Contains(result.Message, test.message) || r.reboots != test.reboots {
				t.Errorf("%+v after %d reboots", result, r.reboots)
			}
			if strings.Contains(result.Message, "abc") {
				t.Errorf("tells a secret: %s", result.Message)
			}
		})
	}
}

func TestRollBackByHandIsSeen(t *testing.T) {
	r := newRig(t)
	if _, err := r.upgrader().Run(r.alive(), upgradeTo(newImage), func(string) {}); !errors.Is(err, errGoneDown) {
		t.Fatal(err)
	}
	// Somebody made the former system the active one again.
	r.deployed("oci://registry/os:1")
	result := r.upgrade(upgradeTo(newImage))
	if result.State != protocol.StateFailed || result.Message != "rolled back to oci://registry/os:1" {
		t.Errorf("got %+v", result)
	}
}

func TestHangingUpgradeEnds(t *testing.T) {
	r := newRig(t)
	r.plays("hang")
	u := r.upgrader()
	u.CLI.Timeout = 200 * time.Millisecond
	result, err := u.Run(t.Context(), upgradeTo(newImage), func(string) {})
	if err != nil || result.State != protocol.StateFailed || !strings.Contains(result.Message, "it took more than 200ms") {
		t.Errorf("got %+v, %v", result, err)
	}
	pid, err := os.ReadFile(filepath.Join(r.dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(func() bool {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		return err != nil || strings.Contains(string(state), ") Z")
	}, 20*time.Second).Should(BeTrue(), "what it started goes on")
}

// TestInterruptedUpgradeIsBounded stops the agent during the upgrade, again and
// again.
func TestInterruptedUpgradeIsBounded(t *testing.T) {
	r := newRig(t)
	r.plays("cut")
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

// TestUpgradeSurvivesEveryPowerCut cuts the power at every write, before and after
// it took effect.
func TestUpgradeSurvivesEveryPowerCut(t *testing.T) {
	for _, falls := range []bool{false, true} {
		for step := 1; step <= 6; step++ {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("write %d, after=%t, falls back=%t", step, after, falls), func(t *testing.T) {
					r := newRig(t)
					r.dieAt, r.after, r.falls = step, after, falls
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

func TestSourcesAreCompared(t *testing.T) {
	for _, test := range []struct {
		is, want string
		same     bool
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
		if got := (deployed{Source: test.is}).is(test.want, "label"); got != test.same {
			t.Errorf("%q is %q: %t", test.is, test.want, got)
		}
	}
	if (deployed{Source: "oci://registry/os:2", Operation: "other"}).is(newImage, "label") {
		t.Error("took another operation's upgrade for its own")
	}
}

func TestModes(t *testing.T) {
	r := newRig(t)
	for _, mode := range []Mode{ModeActive, ModePassive, ModeRecovery, ModeLive} {
		r.boot(mode)
		if got := r.system.Mode(); got != mode || !r.system.Detect() {
			t.Errorf("%s is seen as %q", mode, got)
		}
	}
	r.boot("")
	if r.system.Mode() != ModeNone || r.system.Detect() {
		t.Error("sees Elemental OS where there is none")
	}
	r.write("run/cos/recovery_mode", "1")
	if r.system.Mode() != ModeRecovery {
		t.Error("does not know the former place of the markers")
	}
	t.Setenv("PATH", t.TempDir())
	if r.system.Detect() {
		t.Error("sees Elemental OS without its program")
	}
}
