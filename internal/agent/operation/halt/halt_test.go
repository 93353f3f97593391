package halt_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/checkpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable/durabletest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/halt"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/standstill"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func components() []string {
	return []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"}
}

// machine is a host with a control plane. It is the standstill.ControlPlane.
type machine struct {
	t           *testing.T
	root, state string
	disk        *durabletest.Disk
	life        *durabletest.Life
	// isRunning is true while a program of the control plane runs, and isWell if etcd is well
	// then.
	isRunning, isWell bool
	haltErr           error
}

func newMachine(t *testing.T, seed uint64) *machine {
	t.Helper()
	m := &machine{
		t: t, root: t.TempDir(), state: t.TempDir(), disk: durabletest.NewDisk(t.TempDir(), rand.New(rand.NewPCG(seed, 0))),
		isRunning: true,
	}
	for _, component := range components() {
		path := filepath.Join(m.root, staticpods.Path(component))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(component), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *machine) hasManifest(component string) bool {
	content, err := os.ReadFile(filepath.Join(m.root, staticpods.Path(component)))
	return err == nil && string(content) == component
}

// kubelet starts what has a manifest.
func (m *machine) kubelet() { m.isRunning = m.hasManifest("etcd") || m.hasManifest("kube-apiserver") }

func (m *machine) Halt(context.Context) error {
	return m.life.Do(func() error {
		if m.haltErr == nil {
			m.isRunning = false
		}
		return m.haltErr
	})
}

func (m *machine) Start(context.Context) error {
	return m.life.Do(func() error {
		m.kubelet()
		return nil
	})
}

// operation returns an operation, which may halt a healthy control plane.
func operationOf(kind protocol.OperationType) state.Operation {
	op := state.Operation{Attempt: 1}
	op.Type, op.ID, op.ControlPlaneHalt = kind, "claim.1", &protocol.ControlPlaneHalt{ReplaceHealthy: true}
	return op
}

// live is the life of one agent, which dies at an operation of the disk; at 0 it does not.
func (m *machine) live(op state.Operation, dieAt int) (result operation.Result, operations int, err error) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	m.life = &durabletest.Life{Disk: m.disk, DieAt: dieAt, Die: cancel}
	runner := &halt.Runner{
		Standstill: standstill.Standstill{
			Checkpoints: checkpoint.Store{Root: m.root, Folder: filepath.Join(m.state, "checkpoints"), System: m.life}, ControlPlane: m,
		},
		Ready: func(context.Context) error {
			if !m.isRunning || !m.isWell {
				return errors.New("etcd does not answer")
			}
			return nil
		},
	}
	result, err = runner.Run(ctx, op, func(string) {})
	return result, m.life.Done, err
}

// expect checks whether the whole control plane runs, or nothing of it.
func (m *machine) expect(runs bool) {
	m.t.Helper()
	if m.isRunning != runs {
		m.t.Errorf("the control plane runs: %t", m.isRunning)
	}
	for _, component := range components() {
		if m.hasManifest(component) != runs {
			m.t.Errorf("the kubelet has the manifest of %s: %t", component, !runs)
		}
	}
}

// A reboot starts nothing of a control plane that was halted. It runs again after the start.
func TestHaltAndStart(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1)
	for range 2 { // the second time it has nothing to do
		if result, _, err := m.live(operationOf(protocol.OperationControlPlaneHalt), 0); err != nil || result.State != protocol.StateSucceeded {
			t.Fatalf("got %+v, %v", result, err)
		}
		m.disk.CutPower()
		m.kubelet()
		m.expect(false)
	}
	for range 2 {
		if result, _, err := m.live(operationOf(protocol.OperationControlPlaneStart), 0); err != nil || result.State != protocol.StateSucceeded {
			t.Fatalf("got %+v, %v", result, err)
		}
		m.expect(true)
	}
	if entries, err := os.ReadDir(filepath.Join(m.state, "checkpoints")); err != nil || len(entries) != 0 {
		t.Errorf("checkpoints %v, %v", entries, err)
	}
}

// A host whose files are lost has nothing to halt, and its kubelet is stopped all the same.
func TestNothingLeft(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1)
	if err := os.RemoveAll(filepath.Join(m.root, "etc")); err != nil {
		t.Fatal(err)
	}
	if result, _, err := m.live(operationOf(protocol.OperationControlPlaneHalt), 0); err != nil || result.State != protocol.StateSucceeded {
		t.Fatalf("got %+v, %v", result, err)
	}
	m.expect(false)
}

// A control plane that is well is halted only with permission.
func TestThreat90_Healthy(t *testing.T) {
	t.Parallel()
	for permitted, want := range map[bool]protocol.OperationState{true: protocol.StateSucceeded, false: protocol.StateFailed} {
		m := newMachine(t, 1)
		m.isWell = true
		op := operationOf(protocol.OperationControlPlaneHalt)
		op.ControlPlaneHalt.ReplaceHealthy = permitted
		if result, _, err := m.live(op, 0); err != nil || result.State != want {
			t.Errorf("permitted %t: got %+v, %v", permitted, result, err)
		}
		m.expect(!permitted)
	}
}

// A halt that fails for good leaves a control plane that runs.
func TestFailure(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1)
	m.haltErr = errors.New("etcd does not end")
	op := operationOf(protocol.OperationControlPlaneHalt)
	for op.Attempt = 1; op.Attempt < 3; op.Attempt++ {
		if result, _, err := m.live(op, 0); err == nil {
			t.Fatalf("attempt %d: got %+v", op.Attempt, result)
		}
	}
	result, _, err := m.live(op, 0)
	if err != nil || result.State != protocol.StateFailed || result.Message != m.haltErr.Error() {
		t.Errorf("got %+v, %v", result, err)
	}
	m.expect(true)
}

// stride is how many operations lie between two cuts.
func stride() int {
	if testing.Short() {
		return 7
	}
	return 1
}

// A power cut, or the death of the agent, at any operation ends with a control plane that is
// halted, or runs after the start. A host without permission that has begun goes on.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	whole := newMachine(t, 1)
	_, halting, err := whole.live(operationOf(protocol.OperationControlPlaneHalt), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, starting, err := whole.live(operationOf(protocol.OperationControlPlaneStart), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, isPower := range []bool{true, false} {
		for dieAt := 1; dieAt <= halting+starting; dieAt += stride() {
			m := newMachine(t, uint64(dieAt))
			cut := func(kind protocol.OperationType, at int) {
				for _, dieAt := range []int{at, 0} {
					result, _, err := m.live(operationOf(kind), dieAt)
					if !m.life.Dead {
						if err != nil || result.State != protocol.StateSucceeded {
							t.Fatalf("%s after a cut at operation %d: got %+v, %v", kind, at, result, err)
						}
						return
					}
					if isPower {
						m.disk.CutPower()
						m.kubelet()
					}
				}
			}
			cut(protocol.OperationControlPlaneHalt, min(dieAt, halting+1))
			m.expect(false)
			cut(protocol.OperationControlPlaneStart, max(dieAt-halting, 0))
			if m.expect(true); t.Failed() {
				t.Fatalf("after a cut at operation %d of %d and %d", dieAt, halting, starting)
			}
		}
	}
}
