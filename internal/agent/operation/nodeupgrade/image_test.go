package nodeupgrade_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/elemental"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	newImage  = "oci:registry/os:2"
	stateFile = "/run/initramfs/elemental-state/state.yaml"
	// tools has the stand-in of the elemental program.
	tools = "../../platform/elemental/testdata"
)

// images is Elemental OS on a machine. Its elemental program is a stand-in: no real one is run.
type images struct {
	*machine

	// folder is where the stand-in keeps what it does.
	folder string
	// fallsBack is true if the boot loader boots the former image instead of the new one.
	fallsBack bool
	// isStuck is true if the host does not reboot.
	isStuck bool
	// isUndrained is true if the new image was booted by a power cut, before the drain.
	isUndrained bool
	// isRebooted is true if the host has rebooted, so that nothing is lost.
	isRebooted bool
	// onStart is called at each start, and onNewImage when the new image has been booted.
	onStart, onNewImage func()
}

// newImages returns a machine with Elemental OS and a request for the new image.
func newImages(t *testing.T, role protocol.UpgradeRole, seed uint64) *images {
	t.Helper()
	m := newMachine(t, role, seed)
	m.want = protocol.NodeUpgrade{Role: role, OSImage: newImage, DrainTimeoutSeconds: 600}
	m.api.pods = []pod{{name: "web"}}
	m.api.version = oldVersion
	i := &images{machine: m, folder: t.TempDir()}
	m.images = i
	m.must(os.Symlink(m.root, filepath.Join(i.folder, "root")))
	folder, err := filepath.Abs(tools)
	m.must(err)
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	t.Setenv("FAKE_DIR", i.folder)
	m.write("/run/elemental/active_mode", "1", 0o644)
	m.write(stateFile, "date: now\nstate:\n  snapshots:\n    1:\n      source: oci://registry/os:1\n      active: true\n", 0o644)
	return i
}

// equip has the runner change images, and nothing else.
func (i *images) equip(r *nodeupgrade.Runner, documents state.Files) {
	r.Stager, r.Installed, r.Kubeadm = nil, nil, nil
	r.OS = &elemental.UpgradeRunner{
		System: elemental.System{Root: i.root}, Documents: documents, Platform: i, BootID: strconv.Itoa(i.boots),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// BootID implements platform.Rebooter.
func (i *images) BootID() (string, error) { return strconv.Itoa(i.boots), nil }

// Reboot implements platform.Rebooter. The agent dies with the host.
func (i *images) Reboot(ctx context.Context) error {
	if i.isStuck {
		return os.ErrPermission
	}
	return i.life.Do(func() error {
		i.isRebooted, i.life.Dead = true, true
		i.life.Die()
		return context.Cause(ctx)
	})
}

// start starts the host, after a power cut if it did not reboot, with the system that the boot
// loader chooses.
func (i *images) start() {
	if i.isRebooted {
		i.disk.Shutdown()
	}
	i.boot()
	i.isRebooted = false
	happen(i.onStart)
	i.must(os.RemoveAll(i.path("/run/elemental")))
	isNew := strings.Contains(i.read(stateFile), "registry/os:2")
	if isNew && i.fallsBack {
		i.write("/run/elemental/passive_mode", "1", 0o644)
		return
	}
	i.write("/run/elemental/active_mode", "1", 0o644)
	if isNew {
		i.isUndrained = i.isUndrained || i.api.cordons == 0
		happen(i.onNewImage)
	}
}

// upgrade runs the agent until it has a result. It dies at an operation; 0 means never.
func (i *images) upgrade(dieAt int) operation.Result {
	i.t.Helper()
	for range 12 {
		result, _, err := i.live(dieAt)
		if result != nil {
			return *result
		}
		if !i.life.Dead {
			i.t.Fatalf("no result without a cut: %v", err)
		}
		dieAt = 0
		if i.isRebooted || !i.outlives {
			i.start()
		}
	}
	i.t.Fatal("there is no result")
	return operation.Result{}
}

// deployments returns how often the elemental program was run.
func (i *images) deployments() int {
	data, _ := os.ReadFile(filepath.Join(i.folder, "calls"))
	return strings.Count(string(data), "upgrade\n")
}

func TestImage(t *testing.T) {
	for _, role := range roles() {
		t.Run(string(role), func(t *testing.T) {
			i := newImages(t, role, 1)
			if result := i.upgrade(0); result.State != protocol.StateSucceeded || result.Message != "" {
				t.Fatalf("got %+v", result)
			}
			i.expectServing(oldVersion, oldVersion)
			if i.deployments() != 1 || i.boots != 1 || len(i.runs) != 0 || len(i.commands) != 0 {
				t.Errorf("deployed %d times, booted %d times, kubeadm %d times, %q", i.deployments(), i.boots, len(i.runs), i.commands)
			}
			if !slices.Equal(i.api.evictions, []string{"web"}) || i.api.cordons != 2 {
				t.Errorf("evicted %q, changed the cordon %d times", i.api.evictions, i.api.cordons)
			}
			want := []string{"check", "image", "drain", "reboot", "reboot", "gate", "finish"}
			steps := slices.DeleteFunc(slices.Clone(i.progress), func(s string) bool { return strings.Contains(s, ":") })
			if !slices.Equal(steps, want) {
				t.Errorf("the steps are %q", steps)
			}
		})
	}
}

// Without another Node there is no drain.
func TestImageWithoutDrain(t *testing.T) {
	i := newImages(t, protocol.UpgradeFirstControlPlane, 1)
	i.want.DrainTimeoutSeconds = 0
	if result := i.upgrade(0); result.State != protocol.StateSucceeded || i.api.cordons != 0 {
		t.Errorf("got %+v, changed the cordon %d times", result, i.api.cordons)
	}
}

func TestImageFails(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*images)
		step    string
		outcome protocol.UpgradeOutcome
		words   []string
		boots   int
	}{
		"the new image does not boot": {
			func(i *images) { i.fallsBack = true }, "reboot", protocol.UpgradeRolledBack,
			[]string{"the Node serves with v1.35.4", "rolled back to the passive system, because " + newImage + " did not boot"}, 1,
		},
		"no Node after the way back": {
			func(i *images) {
				i.fallsBack = true
				i.onStart = func() { i.crash(oldVersion) }
			}, "reboot", protocol.UpgradeLeftBroken, []string{"did not boot"}, 1,
		},
		"the new image's kubelet does not run": {
			func(i *images) { i.onNewImage = func() { i.crash(oldVersion) } }, "gate", protocol.UpgradeLeftBroken, nil, 1,
		},
		"another version in the new image": {
			func(i *images) {
				i.onNewImage = func() { i.write("/usr/bin/kubelet", "kubelet "+newVersion, 0o755) }
			}, "gate", protocol.UpgradePartlyDone, []string{"the Node serves with v1.36.3", "has v1.36.3, not v1.35.4"}, 1,
		},
		"the image can't be fetched": {
			func(i *images) { i.must(os.WriteFile(filepath.Join(i.folder, "behavior"), []byte("fail"), 0o644)) },
			"image", protocol.UpgradeChangedNothing, []string{"403 Forbidden"}, 0,
		},
		"the host does not reboot": {
			func(i *images) { i.isStuck = true }, "reboot", protocol.UpgradePartlyDone, []string{"did not reboot into it", "the Node serves with v1.35.4"}, 0,
		},
		"a Node that is not well": {
			func(i *images) { i.run(false) }, "check", protocol.UpgradeChangedNothing, nil, 0,
		},
		"no image": {
			func(i *images) { i.want.OSImage = "os:2" }, "image", protocol.UpgradeChangedNothing, []string{"is no image"}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newImages(t, protocol.UpgradeControlPlane, 1)
			test.prepare(i)
			i.expectFailure(i.upgrade(0), test.step, test.outcome, test.words...)
			if i.boots != test.boots {
				t.Errorf("booted %d times", i.boots)
			}
			if test.outcome != protocol.UpgradeLeftBroken && i.api.unschedulable {
				t.Error("the Node is still cordoned")
			}
		})
	}
}

// A host does only what its operating system can do.
func TestImagesAndBundlesOfOtherHosts(t *testing.T) {
	m := newMachine(t, protocol.UpgradeWorker, 1)
	m.want = protocol.NodeUpgrade{Role: protocol.UpgradeWorker, OSImage: newImage}
	m.expectFailure(m.finish(), "stage", protocol.UpgradeChangedNothing, "does not run Elemental OS")
	i := newImages(t, protocol.UpgradeWorker, 1)
	i.want = protocol.NodeUpgrade{Role: protocol.UpgradeWorker, Bundle: protocol.Bundle{Version: newVersion}}
	i.expectFailure(i.upgrade(0), "stage", protocol.UpgradeChangedNothing, "this host runs Elemental OS")
}

// A withdrawn request is dropped until the image is deployed, and goes on after that.
func TestWithdrawnImage(t *testing.T) {
	i := newImages(t, protocol.UpgradeWorker, 1)
	i.plan = state.Plan{}
	if result, _, err := i.live(0); result != nil || err == nil || i.deployments() != 0 {
		t.Errorf("got %+v, %v after %d deployments", result, err, i.deployments())
	}
}

// sampledImages is how many operations lie between two cuts of a sample. The cases begin at
// different ones.
const sampledImages = 11

// An image that is cut short at any operation, by the power or by a kill of the agent, ends
// booted, or at the former image with a reason.
func TestPowerCutsOfImages(t *testing.T) {
	first := 0
	for _, role := range []protocol.UpgradeRole{protocol.UpgradeControlPlane, protocol.UpgradeWorker} {
		for _, outlives := range []bool{false, true} {
			for _, fallsBack := range []bool{false, true} {
				first++
				t.Run(fmt.Sprintf("%s/killed=%t/falls back=%t", role, outlives, fallsBack), func(t *testing.T) {
					step := sampledImages
					if *everyCut {
						step = 1
					}
					operations := newImages(t, role, 1).operations()
					for dieAt := 1 + first%step; dieAt <= operations; dieAt += step {
						i := newImages(t, role, uint64(dieAt))
						i.outlives, i.fallsBack = outlives, fallsBack
						i.expectEnd(i.upgrade(dieAt))
						if t.Failed() {
							t.Fatalf("after a cut at operation %d of %d, with the steps %q", dieAt, operations, i.progress)
						}
					}
				})
			}
		}
	}
}

// operations returns of how many operations an upgrade consists.
func (i *images) operations() int {
	i.t.Helper()
	for total := 0; ; i.start() {
		result, done, _ := i.live(0)
		if total += done; result != nil {
			return total
		}
	}
}

// expectEnd fails the test unless the host runs the new image, or the former one with a reason.
func (i *images) expectEnd(result operation.Result) {
	i.t.Helper()
	isNew := i.read("/run/elemental/active_mode") != "" && strings.Contains(i.read(stateFile), "registry/os:2")
	want := protocol.UpgradeOutcome("")
	if i.fallsBack {
		want = protocol.UpgradeRolledBack
	}
	if got := protocol.UpgradeOutcomeOf(result.Message); got != want || isNew == i.fallsBack || i.deployments() != 1 {
		i.t.Errorf("got %+v after %d deployments", result, i.deployments())
	}
	if i.isUndrained && len(i.api.evictions) > 0 {
		i.t.Errorf("evicted %q after the reboot that the drain is for", i.api.evictions)
	}
	i.expectServing(oldVersion, oldVersion)
}
