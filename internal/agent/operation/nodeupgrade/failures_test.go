package nodeupgrade_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Failures before anything is changed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	controlPlane, worker := protocol.UpgradeFirstControlPlane, protocol.UpgradeWorker
	for name, test := range map[string]struct {
		role  protocol.UpgradeRole
		spoil func(m *machine)
		step  string
		words []string
	}{
		"a wrong digest":             {worker, func(m *machine) { m.stageErr = fmt.Errorf("the bundle is refused: %w", bundle.ErrWrongDigest) }, "stage", []string{"SHA-256"}},
		"no source":                  {worker, func(m *machine) { m.stageErr = errors.New("no route to host") }, "stage", []string{"no route to host"}},
		"no space":                   {controlPlane, func(m *machine) { m.free = 1 << 20 }, "check", []string{"1 MiB free", "make room"}},
		"a package":                  {worker, func(m *machine) { m.origin = protocol.OriginPackage }, "check", []string{"/usr/bin/kubeadm", "package"}},
		"an unknown owner":           {worker, func(m *machine) { m.origin = "" }, "check", []string{"/usr/bin/kubeadm", "package"}},
		"a missing key":              {controlPlane, func(m *machine) { m.must(os.Remove(m.path("/etc/kubernetes/pki/ca.key"))) }, "check", []string{"ca.key"}},
		"a broken manifest":          {controlPlane, func(m *machine) { m.write("/etc/kubernetes/manifests/kube-scheduler.yaml", "x", 0o600) }, "check", []string{"kube-scheduler.yaml"}},
		"an immutable root":          {worker, func(m *machine) { m.readOnly = "/usr/bin" }, "check", []string{"/usr/bin/kubeadm", "can't be written to"}},
		"no patches":                 {worker, func(m *machine) { m.want.PatchesDirectory = "/etc/kubernetes/patches" }, "check", []string{"/etc/kubernetes/patches", "not on the host"}},
		"patches somewhere":          {worker, func(m *machine) { m.want.PatchesDirectory = "../etc" }, "check", []string{`"../etc" is no absolute path`}},
		"an API server that is down": {controlPlane, func(m *machine) { m.crash(image("kube-apiserver", oldVersion)) }, "check", []string{"5m0s"}},
		"a kubelet that is down":     {worker, func(m *machine) { m.run(false) }, "check", []string{"kubelet"}},
		"an older version": {worker, func(m *machine) {
			m.write("/usr/bin/kubelet", "kubelet "+newVersion, 0o755)
			m.want.Bundle.Version = oldVersion
		}, "check", []string{"older"}},
		"a control plane that is older": {worker, func(m *machine) { m.api.version = oldVersion }, "check", []string{"upgrade the control plane first"}},
		"a control plane as a worker":   {controlPlane, func(m *machine) { m.want.Role = worker }, "check", []string{"control plane"}},
		"a worker as a control plane":   {worker, func(m *machine) { m.want.Role = controlPlane }, "check", []string{"kube-apiserver.yaml"}},
		"no version":                    {worker, func(m *machine) { m.want.Bundle.Version = "latest" }, "stage", []string{"latest"}},
		"a full disk": {controlPlane, func(m *machine) {
			m.disk.Full = func(path string) bool { return strings.Contains(path, "/checkpoints/") }
		}, "checkpoint", []string{"no space left"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, test.role, 1)
			test.spoil(m)
			kubelet := m.read("/usr/bin/kubelet")
			m.expectFailure(m.finish(), test.step, protocol.UpgradeChangedNothing, test.words...)
			if got := m.read("/usr/bin/kubelet"); got != kubelet || len(m.runs) > 0 || m.api.cordons > 0 {
				t.Errorf("the Node was changed: %q, %v", got, m.runs)
			}
			if entries, _ := os.ReadDir(m.path("/state/checkpoints")); len(entries) > 0 {
				t.Errorf("a checkpoint is left: %v", entries)
			}
		})
	}
}

func TestWaysBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		role     protocol.UpgradeRole
		crashing string
		step     string
		outcome  protocol.UpgradeOutcome
		// controlPlane is the version of the static Pods in the end.
		controlPlane string
		words        []string
	}{
		"a kubelet of a worker that ends": {
			protocol.UpgradeWorker, newVersion, "gate", protocol.UpgradeRolledBack, "",
			[]string{"the Node serves with " + oldVersion, "gate: it was not well"},
		},
		"a kubelet of a control plane that ends": {
			protocol.UpgradeFirstControlPlane, newVersion, "gate", protocol.UpgradePartlyDone, newVersion,
			[]string{"the Node serves with " + oldVersion + " and API server " + newVersion},
		},
		"an API server that crashes": {
			protocol.UpgradeFirstControlPlane, image("kube-apiserver", newVersion), "kubeadm", protocol.UpgradeRolledBack, oldVersion,
			[]string{"the Node serves with " + oldVersion + " and API server " + oldVersion, "attempt 1, the last one, failed", "kube-apiserver did not come up"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, test.role, 1)
			m.crash(test.crashing)
			m.expectFailure(m.finish(), test.step, test.outcome, test.words...)
			m.expectServing(oldVersion, test.controlPlane)
			m.expectCheckpoint()
			// The next request continues where this one ended.
			m.crash()
			m.operationID = "two"
			wanted := m.operation().Operation
			m.plan.Operation = &wanted
			if result := m.finish(); result.State != protocol.StateSucceeded {
				t.Fatalf("the next upgrade: %+v", result)
			}
			m.expectServing(newVersion, newVersion)
		})
	}
}

// What fails at once may succeed a moment later. No component was replaced.
func TestRepeatsWhatFailsAtOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t, protocol.UpgradeControlPlane, 1)
	m.refusal = errors.New("etcd has no leader")
	m.expectFailure(m.finish(), "kubeadm", protocol.UpgradeRolledBack, "attempt 3, the last one, failed", "etcd has no leader")
	m.expectServing(oldVersion, oldVersion)

	m = newMachine(t, protocol.UpgradeControlPlane, 1)
	m.refusal = errors.New("etcd has no leader")
	m.onKubeadm = func() {
		if len(m.runs) == 2 {
			m.refusal = nil
		}
	}
	if result := m.finish(); result.State != protocol.StateSucceeded {
		t.Errorf("got %+v", result)
	}
}

// Neither version of the kubelet works: a person has to look.
func TestLeftBroken(t *testing.T) {
	t.Parallel()
	m := newMachine(t, protocol.UpgradeControlPlane, 1)
	m.crash(newVersion)
	m.onRestart = func() { m.crash(newVersion, oldVersion) }
	m.expectFailure(m.finish(), "gate", protocol.UpgradeLeftBroken, "kubelet", "/state/checkpoints/nodeupgrade-one/etcd.db")
}

// A manager that serves the bundle later is waited for. An attempt that failed before the request
// delays it once only, so that the manager decides when the next attempt begins.
func TestWaitsForTheBundle(t *testing.T) {
	t.Parallel()
	m := newMachine(t, protocol.UpgradeWorker, 1)
	m.stageErr = fmt.Errorf("%w: it serves others", bundle.ErrNotServed)
	attempts := 0
	m.onStage = func() {
		if attempts++; attempts == 10 {
			m.stageErr = nil
		}
	}
	if result := m.finish(); result.State != protocol.StateSucceeded {
		t.Errorf("got %+v", result)
	}
	if m.stageRetries != 1 {
		t.Errorf("asked %d times for an attempt at once", m.stageRetries)
	}
}

// An upgrade that the manager withdraws during a step that fails leaves nothing behind: neither its
// record nor a checkpoint, which has keys.
func TestWithdrawal(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(m *machine){
		"stage":              func(m *machine) { m.stageErr = errors.New("no route to host") },
		"the manager's turn": func(m *machine) { m.stageErr = fmt.Errorf("%w: it serves others", bundle.ErrNotServed) },
		"checkpoint": func(m *machine) {
			m.disk.Full = func(path string) bool { return strings.Contains(path, "/checkpoints/") }
		},
	} {
		m := newMachine(t, protocol.UpgradeWorker, 1)
		spoil(m)
		m.onStage = func() { m.plan.Operation = nil }
		if _, _, err := m.live(0); !errors.Is(err, operation.ErrNothingDone) {
			t.Errorf("%s: got %v", name, err)
		}
		m.expectServing(oldVersion, "")
		for _, folder := range []string{"operations", "checkpoints"} {
			if found, _ := os.ReadDir(m.path("/state/" + folder)); len(found) > 0 {
				t.Errorf("%s: %q are left in %s", name, found, folder)
			}
		}
	}
}

// A plan without the upgrade does not stop it once kubeadm has begun.
func TestNoWithdrawalAfterKubeadm(t *testing.T) {
	t.Parallel()
	m := newMachine(t, protocol.UpgradeControlPlane, 1)
	m.onKubeadm = func() { m.plan.Operation = &protocol.Operation{Type: protocol.OperationReboot, ID: "x"} }
	if result := m.finish(); result.State != protocol.StateSucceeded {
		t.Errorf("got %+v", result)
	}
}

func TestResetSupersedes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, protocol.UpgradeControlPlane, 1)
	m.onKubeadm = func() { m.plan.Operation = &protocol.Operation{Type: protocol.OperationReset, ID: "x"} }
	if _, _, err := m.live(0); !errors.Is(err, operation.ErrSuperseded) {
		t.Errorf("got %v", err)
	}
	if got := m.read("/usr/bin/kubelet"); got != "kubelet "+oldVersion {
		t.Errorf("the upgrade went on: %q", got)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare   func(m *machine)
		evictions int
		cordons   int
		note      string
	}{
		"a patch": {prepare: func(m *machine) {
			m.write("/usr/bin/kubelet", "kubelet v1.36.3", 0o755)
		}},
		"no timeout":            {prepare: func(m *machine) { m.want.DrainTimeoutSeconds = 0 }},
		"a budget forever":      {prepare: func(m *machine) { m.api.pods[0].refusals = 1 << 30; m.want.DrainTimeoutSeconds = 20 }, evictions: 5, cordons: 2, note: "1 Pods are left: default/web; default/web: the API server answers 429"},
		"a Pod that never ends": {prepare: func(m *machine) { m.api.pods[0].neverLeaves = true; m.want.DrainTimeoutSeconds = 20 }, evictions: 5, cordons: 2, note: "1 Pods are left: default/web"},
		"cordoned by a person":  {prepare: func(m *machine) { m.api.unschedulable = true }, evictions: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, protocol.UpgradeWorker, 1)
			m.api.pods = []pod{{name: "web"}}
			test.prepare(m)
			wasCordoned := m.api.unschedulable
			result := m.finish()
			if result.State != protocol.StateSucceeded || !strings.Contains(result.Message, test.note) || (test.note == "") != (result.Message == "") {
				t.Errorf("got %+v", result)
			}
			if len(m.api.evictions) != test.evictions || m.api.cordons != test.cordons || m.api.unschedulable != wasCordoned {
				t.Errorf("evicted %q, changed the cordon %d times", m.api.evictions, m.api.cordons)
			}
		})
	}
}

// Checkpoints have the keys of the cluster, so a reset removes them.
func TestResetRemovesCheckpoints(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result operation.Result
		stays  bool
	}{
		"a success": {result: operation.Result{State: protocol.StateSucceeded}},
		"a failure": {result: operation.Result{State: protocol.StateFailed}, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, protocol.UpgradeControlPlane, 1)
			m.finish()
			documents, err := state.NewDir(m.path("/state"))
			m.must(err)
			runner := nodeupgrade.ResetRunner{Runner: resets{result: test.result}, Documents: documents}
			got, err := runner.Run(t.Context(), state.Operation{}, func(string) {})
			if err != nil || got.State != test.result.State {
				t.Errorf("got %+v, %v", got, err)
			}
			if _, err := os.Stat(m.path("/state/checkpoints")); (err == nil) != test.stays {
				t.Errorf("got %v", err)
			}
		})
	}
}

// resets is a reset with a result.
type resets struct {
	operation.Runner

	result operation.Result
}

func (r resets) Run(context.Context, state.Operation, func(string)) (operation.Result, error) {
	return r.result, nil
}
