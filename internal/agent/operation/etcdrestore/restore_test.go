package etcdrestore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestRestore(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1)
	m.write(filepath.Join(data, "member.before-EtcdRestore-old", "snap/db"), "older")
	result, _, err := m.live(0)
	if err != nil || result.State != protocol.StateSucceeded || !strings.Contains(result.Message, "/var/lib/etcd/member.before-") {
		t.Fatalf("got %+v, %v", result, err)
	}
	m.expect(restored)
	if got := m.folders(); len(got) != 2 || got[0] != "member" || !strings.HasPrefix(got[1], "member.before-") {
		t.Errorf("the folder of the data has %q", got)
	}
	kept, err := os.ReadFile(filepath.Join(m.root, data, m.folders()[1], "snap/db"))
	if err != nil || string(kept) != former {
		t.Errorf("the former data is %q, %v", kept, err)
	}
	if want := []string{"check", "prepare", "halt", "swap", "start", "gate", "nodes", "finish"}; !slices.Equal(m.progress, want) {
		t.Errorf("the steps were %q", m.progress)
	}
}

// What is not the confirmed snapshot of this cluster is never used, and nothing is halted.
func TestThreat71_Refusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(m *machine)
		message string
	}{
		"no request":        {func(m *machine) { m.op.EtcdRestore = nil }, "names no data"},
		"damaged":           {func(m *machine) { m.openErr = errors.New("its SHA-256 is another") }, "its SHA-256 is another"},
		"another snapshot":  {func(m *machine) { m.facts.SHA256 = "def" }, "was confirmed for abc"},
		"another cluster":   {func(m *machine) { m.facts.Cluster.Name = "d" }, "belongs to the cluster ns/d"},
		"another namespace": {func(m *machine) { m.facts.Cluster.Namespace = "other" }, "belongs to the cluster other/c"},
		"a healthy member":  {func(m *machine) { m.op.EtcdRestore.ReplaceHealthy = false }, "replaceHealthy"},
		"a healthy member, its own data": {func(m *machine) {
			m.survive()
			m.isBroken[former] = false
		}, "replaceHealthy"},
		"no etcdutl":  {func(m *machine) { m.toolErr = errors.New("not found") }, "etcdutl does not run on this host"},
		"a full disk": {func(m *machine) { m.free = 100 << 20 }, "make room"},
		"no etcd":     {func(m *machine) { _ = os.Remove(filepath.Join(m.root, staticpods.Path("etcd"))) }, "no member of etcd"},
		"no name": {func(m *machine) {
			m.write(staticpods.Path("etcd"), "kind: Pod\nspec:\n  containers:\n  - image: etcd:3\n")
		}, "no --name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, 1)
			test.change(m)
			result, _, err := m.live(0)
			if err != nil || result.State != protocol.StateFailed || !strings.Contains(result.Message, test.message) ||
				!strings.HasPrefix(result.Message, protocol.RestoreChangedNothing.Message("")) {
				t.Errorf("got %+v, %v", result, err)
			}
			if m.served() != former || !m.isRunning || len(m.folders()) != 1 {
				t.Errorf("the data is %q in %q, running: %t", m.served(), m.folders(), m.isRunning)
			}
		})
	}
}

// A member that is not well gets its data without further permission, and so does one that has
// lost its data.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for _, hasData := range []bool{true, false} {
		m := newMachine(t, 1)
		m.op.EtcdRestore.ReplaceHealthy, m.isBroken[former], m.isBroken[""] = false, true, true
		if !hasData {
			if err := os.RemoveAll(filepath.Join(m.root, data)); err != nil {
				t.Fatal(err)
			}
		}
		result, _, err := m.live(0)
		if err != nil || result.State != protocol.StateSucceeded {
			t.Fatalf("got %+v, %v", result, err)
		}
		m.expect(restored)
	}
}

// A member that has lost the others goes on with its own data. The control plane is halted before
// the data is read.
func TestOwnData(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1)
	m.survive()
	result, _, err := m.live(0)
	if err != nil || result.State != protocol.StateSucceeded || !strings.Contains(result.Message, "the data that this host had") {
		t.Fatalf("got %+v, %v", result, err)
	}
	m.expect(former + alone)
	if want := []string{"check", "prepare", "halt", "copy", "swap", "start", "gate", "nodes", "finish"}; !slices.Equal(m.progress, want) {
		t.Errorf("the steps were %q", m.progress)
	}
}

// Without data, and with data that etcdutl can't read, the host stays as it is.
func TestOwnDataIsUnusable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(m *machine)
		outcome protocol.RestoreOutcome
		served  string
	}{
		"none": {func(m *machine) {
			m.isBroken[""] = true
			_ = os.RemoveAll(filepath.Join(m.root, data, "member"))
		}, protocol.RestoreChangedNothing, ""},
		"damaged": {func(m *machine) { m.copyErr = errors.New("invalid database") }, protocol.RestoreRolledBack, former},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, 1)
			m.survive()
			test.change(m)
			result, _, err := m.live(0)
			if err != nil || result.State != protocol.StateFailed || !strings.HasPrefix(result.Message, test.outcome.Message("")) {
				t.Errorf("got %+v, %v", result, err)
			}
			m.expect(test.served)
		})
	}
}

func TestWayBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(m *machine)
		outcome protocol.RestoreOutcome
		served  string
	}{
		"to data that was well":     {func(*machine) {}, protocol.RestoreRolledBack, former},
		"to data that was not well": {func(m *machine) { m.isBroken[former] = true }, protocol.RestoreRolledBack, former},
		"without former data": {func(m *machine) {
			m.isBroken[""] = true
			_ = os.RemoveAll(filepath.Join(m.root, data, "member"))
		}, protocol.RestoreLeftBroken, restored},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, 1)
			m.isBroken[restored] = true
			test.change(m)
			result, _, err := m.live(0)
			if err != nil || result.State != protocol.StateFailed || result.Step != "gate" || !strings.HasPrefix(result.Message, test.outcome.Message("")) {
				t.Errorf("got %+v, %v", result, err)
			}
			m.expect(test.served)
			if got := m.folders(); len(got) != 1 {
				t.Errorf("the folder of the data has %q", got)
			}
		})
	}
}

// A restore that the manager withdraws before it has changed anything leaves nothing behind.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1)
	m.plan = state.Plan{}
	_, _, err := m.live(0)
	if !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("got %v", err)
	}
	m.expect(former)
	if got := m.folders(); len(got) != 1 {
		t.Errorf("the folder of the data has %q", got)
	}
}

// own returns what etcdutl makes from the database that the member has. Nothing else may use that
// meanwhile.
func (m *machine) own(args []string) string {
	if m.isRunning || !slices.Contains(args, "--skip-hash-check") {
		m.t.Errorf("etcdutl runs with %q, and the control plane runs: %t", args, m.isRunning)
	}
	is, err := os.ReadFile(args[3])
	if err != nil {
		m.t.Error(err)
	}
	return string(is) + alone
}

// stride is how many operations lie between two cuts.
func stride() int {
	if testing.Short() {
		return 13
	}
	return 1
}

// A snapshot at the destination is downloaded before anything else, and stays among the host's.
func TestUploaded(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1)
	m.upload()
	result, _, err := m.live(0)
	if err != nil || result.State != protocol.StateSucceeded {
		t.Fatalf("got %+v, %v", result, err)
	}
	m.expect(restored)
	if want := []string{"fetch", "check", "prepare", "halt", "swap", "start", "gate", "nodes", "finish"}; !slices.Equal(m.progress, want) {
		t.Errorf("the steps were %q", m.progress)
	}
	if list, err := m.store.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("got %+v, %v", list, err)
	}
}

// A download is tried again, and not for ever. Nothing is halted for it.
func TestDownloadFails(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1)
	m.upload()
	m.fetchErr = errors.New("no route to host")
	attempts := 0
	for {
		result, _, err := m.live(0)
		attempts += len(m.progress)
		m.progress = nil
		if err != nil {
			continue
		}
		if result.State != protocol.StateFailed || result.Step != "fetch" || result.Message != protocol.RestoreChangedNothing.Message("no route to host") {
			t.Errorf("got %+v", result)
		}
		break
	}
	if attempts != 20 {
		t.Errorf("%d attempts", attempts)
	}
	m.expect(former)
}

// A power cut, or the death of the agent, at any operation leads to the new data, or back to the
// former data if the new one does not work. etcd never starts without data.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	credentials := newCredentials(t)
	own := func(m *machine) { m.survive() }
	uploaded := func(m *machine) { m.upload() }
	for _, test := range []struct {
		works  bool
		served string
		source func(*machine)
	}{
		{true, restored, func(*machine) {}}, {false, former, func(*machine) {}}, {true, restored, uploaded},
		{true, former + alone, own}, {false, former, own},
	} {
		works, served := test.works, test.served
		whole := newMachine(t, 1)
		whole.isBroken[restored], whole.isBroken[former+alone] = !works, !works
		test.source(whole)
		_, operations, err := whole.live(0)
		if err != nil {
			t.Fatal(err)
		}
		for dieAt := 1; dieAt <= operations; dieAt += stride() {
			for _, isPower := range []bool{true, false} {
				m := newMachineWith(t, uint64(dieAt), credentials)
				m.isBroken[restored], m.isBroken[former+alone] = !works, !works
				test.source(m)
				m.end(operations, dieAt, isPower, works)
				if m.expect(served); t.Failed() {
					t.Fatalf("after a cut at operation %d of %d, in the steps %q", dieAt, operations, m.progress)
				}
			}
		}
	}
}

func manifest(component string) string {
	return fmt.Sprintf("kind: Pod\nspec:\n  containers:\n  - image: registry.k8s.io/%s:v1.36.3\n    command:\n    - %s\n"+
		"    - --name=host-1\n    - --initial-advertise-peer-urls=https://192.0.2.1:2380\n", component, component)
}

// folders returns the names in the folder of the data.
func (m *machine) folders() []string {
	m.t.Helper()
	entries, err := os.ReadDir(filepath.Join(m.root, data))
	if err != nil {
		m.t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
