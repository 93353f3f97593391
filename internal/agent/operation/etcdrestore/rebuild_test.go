package etcdrestore_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// lose takes the control plane from the machine, and the data of etcd. A file is left if keep is
// true.
func (m *machine) lose(keep bool) {
	m.t.Helper()
	lost := []string{"/etc/kubernetes", data}
	if !keep {
		lost = append(lost, kubeletSettings)
	}
	for _, path := range lost {
		if err := os.RemoveAll(filepath.Join(m.root, path)); err != nil {
			m.t.Fatal(err)
		}
	}
	m.hadFiles = keep
	if keep {
		m.write(kubeletConfig, former) // with it, the kubelet starts
	}
	// The kubelet that ran goes on, and starts what it finds.
	m.isRunning, m.kubeletRuns, m.isBroken[""] = true, true, true
	m.op.EtcdRestore.Rebuild, m.op.EtcdRestore.ReplaceHealthy = true, false
}

// rebuilt is a Setup that does what kubeadm does. Each file that it writes can be the last one.
type rebuilt struct{ m *machine }

func (r rebuilt) ControlPlane(context.Context, string) error {
	// A reset removes folders that the setup has made, and keeps those that were there.
	entries, err := os.ReadDir(filepath.Join(r.m.root, "/etc/kubernetes"))
	if has := err == nil; has != r.m.hadFiles || len(entries) > 0 {
		r.m.t.Errorf("the folder of Kubernetes is there: %t, with %d entries, and was: %t", has, len(entries), r.m.hadFiles)
	}
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
		if err := r.write(staticpods.Path(component), manifest(component)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.m.credentials)) {
		if err := r.write("/etc/kubernetes/pki/etcd/"+name, r.m.credentials[name]); err != nil {
			return err
		}
	}
	return r.m.setupErr
}

func (r rebuilt) Kubelet(context.Context) error {
	if r.m.kubeletErr != nil {
		return r.m.kubeletErr
	}
	if err := errors.Join(r.write(kubeletConfig, ""), r.write(kubeletSettings, settings)); err != nil {
		return err
	}
	return r.m.life.Do(func() error {
		r.m.kubelet()
		return nil
	})
}

// write writes a file as kubeadm does: neither its name nor its content is durable.
func (r rebuilt) write(path, content string) error {
	path = filepath.Join(r.m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, _, err := r.m.life.Overwrite(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = r.m.life.Create(path)
	}
	if err != nil {
		return err
	}
	if _, err := f.Write([]byte(content)); err != nil {
		return errors.Join(err, f.Close())
	}
	if r.m.kubeletRuns {
		r.m.startPods()
	}
	return f.Close()
}

// A host that has lost all files of Kubernetes and all data serves the snapshot. Its kubelet starts
// only when the data is in its place.
func TestRebuild(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		m := newMachine(t, 1)
		m.lose(keep)
		result, _, err := m.live(0)
		if err != nil || result.State != protocol.StateSucceeded {
			t.Fatalf("got %+v, %v", result, err)
		}
		m.expect(restored)
		if want := []string{"rebuild", "check", "prepare", "halt", "swap", "kubelet", "start", "gate", "nodes", "finish"}; !slices.Equal(m.progress, want) {
			t.Errorf("the steps were %q", m.progress)
		}
		m.expectNoFormerFiles()
		if content, _ := os.ReadFile(filepath.Join(m.root, kubeletConfig)); string(content) == former {
			t.Error("a file of the lost control plane is left")
		}
	}
}

// The snapshot may be at the destination, also when the host has to learn the authority first.
func TestRebuildFromUpload(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1)
	m.lose(false)
	m.upload()
	result, _, err := m.live(0)
	if err != nil || result.State != protocol.StateSucceeded || m.progress[1] != "fetch" {
		t.Fatalf("got %+v, %v, after %q", result, err, m.progress)
	}
	m.expect(restored)
}

// A host that has its control plane keeps it, whatever the manager says.
func TestThreat98_RebuildSparesAControlPlane(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1)
	m.op.EtcdRestore.Rebuild = true
	result, _, err := m.live(0)
	if err != nil || result.State != protocol.StateFailed || !strings.Contains(result.Message, "it has not lost its control plane") ||
		!strings.HasPrefix(result.Message, protocol.RestoreChangedNothing.Message("")) {
		t.Errorf("got %+v, %v", result, err)
	}
	m.expect(former)
	m.expectNoFormerFiles()
}

// Whatever fails, the host is afterwards what it was: without a control plane, and with the files
// that were left.
func TestRebuildFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(m *machine)
		outcome protocol.RestoreOutcome
		step    string
	}{
		"the setup":       {func(m *machine) { m.setupErr = errors.New("no bootstrap data") }, protocol.RestoreChangedNothing, "rebuild"},
		"the snapshot":    {func(m *machine) { m.openErr = errors.New("its SHA-256 is another") }, protocol.RestoreChangedNothing, "check"},
		"etcdutl":         {func(m *machine) { m.toolErr = errors.New("not found") }, protocol.RestoreChangedNothing, "check"},
		"the kubelet":     {func(m *machine) { m.kubeletErr = errors.New("exit status 1") }, protocol.RestoreRolledBack, "kubelet"},
		"the new control": {func(m *machine) { m.isBroken[restored] = true }, protocol.RestoreRolledBack, "gate"},
	} {
		for _, keep := range []bool{true, false} {
			m := newMachine(t, 1)
			m.lose(keep)
			test.change(m)
			for {
				result, _, err := m.live(0)
				if err != nil {
					continue // the run loop repeats it
				}
				if result.State != protocol.StateFailed || result.Step != test.step || !strings.HasPrefix(result.Message, test.outcome.Message("")) {
					t.Errorf("%s: got %+v", name, result)
				}
				break
			}
			m.expectLost(keep)
		}
	}
}

// newLostMachine returns a machine that has lost its control plane, and can't reach the storage of its snapshot.
func newLostMachine(t *testing.T, keep bool) *machine {
	t.Helper()
	m := newMachine(t, 1)
	m.lose(keep)
	m.upload()
	m.fetchErr = errors.New("no route to host")
	return m
}

// A rebuild that the manager withdraws while the host downloads leaves the host as it was. The agent
// must not drop it before, although no download has succeeded.
func TestRebuildIsWithdrawn(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		m := newLostMachine(t, keep)
		if _, _, err := m.live(0); err == nil || errors.Is(err, operation.ErrNothingDone) || !m.hasManifest("etcd") {
			t.Fatalf("got %v", err)
		}
		m.plan.Operation = nil
		if _, _, err := m.live(0); !errors.Is(err, operation.ErrNothingDone) {
			t.Errorf("got %v", err)
		}
		m.expectLost(keep)
	}
}

// The manager may withdraw the rebuild during the download that fails.
func TestRebuildIsWithdrawnDuringADownload(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		m := newLostMachine(t, keep)
		m.onFetch = func() { m.plan.Operation = nil }
		m.startErr = errors.New("systemd is busy") // the way back is repeated, too
		if _, _, err := m.live(0); !errors.Is(err, operation.ErrNothingDone) {
			t.Errorf("got %v", err)
		}
		m.expectLost(keep)
	}
}

// expectLost checks that the machine is as lose has left it.
func (m *machine) expectLost(keep bool) {
	m.t.Helper()
	content, err := os.ReadFile(filepath.Join(m.root, kubeletConfig))
	if keep && string(content) != former || !keep && err == nil || m.kubeletRuns != keep {
		m.t.Errorf("the file that was left is %q, %v; the kubelet runs: %t", content, err, m.kubeletRuns)
	}
	if m.hasManifest("etcd") || m.served() != "" || m.isRunning {
		m.t.Errorf("the machine has a manifest of etcd: %t, the data %q, and runs: %t", m.hasManifest("etcd"), m.served(), m.isRunning)
	}
	m.expectNoFormerFiles()
}

func (m *machine) expectNoFormerFiles() {
	m.t.Helper()
	if found, err := filepath.Glob(filepath.Join(m.root, "/etc/kubernetes.before-*")); err != nil || len(found) > 0 {
		m.t.Errorf("found %q, %v", found, err)
	}
}

// A power cut, or the death of the agent, at any operation leads to the new data, or back to a host
// without a control plane. etcd never starts without data.
func TestRebuildPowerCuts(t *testing.T) {
	t.Parallel()
	credentials := newCredentials(t)
	for _, test := range []struct{ works, keep, uploaded bool }{{true, true, false}, {true, false, true}, {false, true, false}, {false, false, false}} {
		prepare := func(m *machine) {
			m.lose(test.keep)
			m.isBroken[restored] = !test.works
			if test.uploaded {
				m.upload()
			}
		}
		whole := newMachineWith(t, 1, credentials)
		prepare(whole)
		_, operations, err := whole.live(0)
		if err != nil {
			t.Fatal(err)
		}
		for dieAt := 1; dieAt <= operations; dieAt += stride() {
			for _, isPower := range []bool{true, false} {
				m := newMachineWith(t, uint64(dieAt), credentials)
				prepare(m)
				m.end(operations, dieAt, isPower, test.works)
				if test.works {
					m.expect(restored)
				} else {
					m.expectLost(test.keep)
				}
				if t.Failed() {
					t.Fatalf("after a cut at operation %d of %d, power %t, in the steps %q", dieAt, operations, isPower, m.progress)
				}
			}
		}
	}
}

// end has agents live, of which two die, until the restore has ended as wanted.
func (m *machine) end(operations, dieAt int, isPower, works bool) {
	m.t.Helper()
	for _, at := range []int{dieAt, m.disk.Random.IntN(operations), 0} {
		result, _, err := m.live(at)
		if m.life.Dead && isPower {
			m.boot()
		}
		if m.life.Dead {
			continue
		}
		want := map[bool]protocol.OperationState{true: protocol.StateSucceeded, false: protocol.StateFailed}[works]
		if err != nil || result.State != want {
			m.t.Fatalf("after a cut at operation %d of %d, power %t, in the steps %q: got %+v, %v", dieAt, operations, isPower, m.progress, result, err)
		}
		return
	}
}
