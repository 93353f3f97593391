package state_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func open(t *testing.T, path string) (*state.Store, *state.Dir) {
	t.Helper()
	dir, err := state.NewDir(path)
	if err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return store, dir
}

func key(t *testing.T) string {
	t.Helper()
	private, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := identity.EncodeKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReopenKeepsState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	store, _ := open(t, path)
	private := key(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	op := state.Operation{Operation: protocol.Operation{Type: protocol.OperationBootstrap, ID: "x"}, Hostname: "h", StartedAt: now}
	plan := state.Plan{Desired: protocol.Desired{Hostname: "h"}, Operation: &op.Operation}
	trust := state.Trust{Servers: []string{"https://a"}, TrustBundle: "pem", Config: "c"}
	for _, err := range []error{
		store.UpdateIdentity(func(i *state.Identity) { i.Key, i.HostID = private, "id" }),
		store.SetPlan(plan), store.SetTrust(trust), store.SetClock(state.Clock{ServerTime: now, Skew: -time.Hour, Agreed: now}),
		func() error { _, err := store.Begin(op); return err }(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	again, _ := open(t, path)
	if who := again.Identity(); who.Key != private || !who.Enrolled() {
		t.Error("the identity was lost")
	}
	if got := again.Plan(); got.Desired.Hostname != "h" || got.Operation == nil || got.Operation.ID != "x" {
		t.Errorf("plan %+v", got)
	}
	if got := again.Trust(); got.TrustBundle != "pem" || len(got.Servers) != 1 {
		t.Errorf("trust %+v", got)
	}
	if got := again.Clock(); !got.ServerTime.Equal(now) || got.Skew != -time.Hour {
		t.Errorf("clock %+v", got)
	}
	if got, known := again.Operation(protocol.OperationBootstrap, "x"); !known || got.State != protocol.StateRunning || got.Attempt != 1 {
		t.Errorf("operation %+v", got)
	}
	for name, mode := range map[string]os.FileMode{"": 0o700, "identity.json": 0o600, "operations.json": 0o600} {
		info, err := os.Stat(filepath.Join(path, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestCorruptStateIsAnError(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"identity.json":   func(path string) error { return os.WriteFile(path, []byte(`{"key":"nonsense"}`), 0o600) },
		"operations.json": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"plan.json":       func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			store, dir := open(t, path)
			private := key(t)
			if err := store.UpdateIdentity(func(i *state.Identity) { i.Key = private }); err != nil {
				t.Fatal(err)
			}
			if err := damage(filepath.Join(path, name)); err != nil {
				t.Fatal(err)
			}
			_, err := state.Open(dir)
			var corrupt *state.CorruptError
			if !errors.As(err, &corrupt) || corrupt.Name != name || !strings.Contains(err.Error(), "backup") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLostIdentityIsNotReplaced(t *testing.T) {
	path := t.TempDir()
	store, dir := open(t, path)
	if err := store.SetTrust(state.Trust{TrustBundle: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := state.Open(dir); err == nil {
		t.Error("opened a state without its identity")
	}
}

func TestOperationsEndOnce(t *testing.T) {
	store, _ := open(t, t.TempDir())
	op := state.Operation{Operation: protocol.Operation{Type: protocol.OperationBootstrap, ID: "x"}}
	begun, err := store.Begin(op)
	if err != nil {
		t.Fatal(err)
	}
	succeeded := begun
	succeeded.State, succeeded.FinishedAt = protocol.StateSucceeded, time.Unix(10, 0)
	failed := begun
	failed.State = protocol.StateFailed
	for _, result := range []state.Operation{succeeded, failed} {
		if err := store.Finish(result); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := store.Begin(op); err != nil || again.State != protocol.StateSucceeded || again.Attempt != 1 {
		t.Errorf("began twice: %+v, %v", again, err)
	}
	if err := store.Acknowledge(failed); err != nil {
		t.Fatal(err)
	}
	if got, _ := store.Operation(op.Type, op.ID); got.Acknowledged || !got.Reportable() {
		t.Error("another result was acknowledged")
	}
	if err := store.Acknowledge(succeeded); err != nil {
		t.Fatal(err)
	}
	if got, _ := store.Operation(op.Type, op.ID); !got.Acknowledged || got.Reportable() {
		t.Error("not acknowledged")
	}
}

func TestFailedResetIsNotDone(t *testing.T) {
	for _, test := range []struct {
		kind  protocol.OperationType
		state protocol.OperationState
		done  bool
	}{
		{protocol.OperationReset, protocol.StateFailed, false},
		{protocol.OperationReset, protocol.StateSucceeded, true},
		{protocol.OperationBootstrap, protocol.StateFailed, true},
		{protocol.OperationBootstrap, protocol.StateRunning, false},
		{"Fly", protocol.StateUnsupported, true},
	} {
		op := state.Operation{Operation: protocol.Operation{Type: test.kind}, State: test.state}
		if op.Done() != test.done {
			t.Errorf("%s %s: done is %t", test.kind, test.state, op.Done())
		}
	}
}

func TestFoldersAreNamesOnly(t *testing.T) {
	for _, id := range []string{"../../etc", "a/b", "", ".", "..", "-x", strings.Repeat("a", 300), "x\x00y"} {
		op := state.Operation{Operation: protocol.Operation{Type: protocol.OperationBootstrap, ID: id}}
		if folder := op.Folder(); strings.Contains(strings.TrimPrefix(folder, "operations/"), "/") || strings.Contains(folder, "..") || len(folder) > 100 {
			t.Errorf("%q becomes %q", id, folder)
		}
	}
}

func TestPrunesOldAcknowledgedResults(t *testing.T) {
	store, _ := open(t, t.TempDir())
	unacknowledged := state.Operation{Operation: protocol.Operation{Type: protocol.OperationBootstrap, ID: "unacknowledged"}, State: protocol.StateFailed}
	if err := store.Finish(unacknowledged); err != nil {
		t.Fatal(err)
	}
	for i := range 140 {
		op := state.Operation{
			Operation: protocol.Operation{Type: protocol.OperationReset, ID: fmt.Sprint(i)}, State: protocol.StateSucceeded, Acknowledged: true,
		}
		if err := store.Finish(op); err != nil {
			t.Fatal(err)
		}
	}
	if _, known := store.Operation(unacknowledged.Type, unacknowledged.ID); !known || len(store.Operations()) != 128 {
		t.Errorf("unacknowledged result known: %t, %d operations, want 128", known, len(store.Operations()))
	}
	if _, known := store.Operation(protocol.OperationReset, "139"); !known {
		t.Error("pruned the latest result")
	}
}

func TestIdleHostWritesNothing(t *testing.T) {
	path := t.TempDir()
	store, _ := open(t, path)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	modified := func() time.Time {
		info, err := os.Stat(filepath.Join(path, "clock.json"))
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	if err := store.SetClock(state.Clock{ServerTime: now, Agreed: now}); err != nil {
		t.Fatal(err)
	}
	before := modified()
	for i := range 30 {
		at := now.Add(time.Duration(i) * time.Minute)
		if err := store.SetClock(state.Clock{ServerTime: at, Agreed: at}); err != nil {
			t.Fatal(err)
		}
	}
	if !modified().Equal(before) {
		t.Error("wrote within the hour")
	}
	// A corrected server time is stored at once, so that a restart does not use the wrong
	// time.
	right := now.Add(-time.Second)
	if err := store.SetClock(state.Clock{ServerTime: right, Agreed: now}); err != nil || !store.Clock().ServerTime.Equal(right) {
		t.Errorf("server time is %s: %v", store.Clock().ServerTime, err)
	}
}

func TestOneAgentAtATime(t *testing.T) {
	_, dir := open(t, t.TempDir())
	unlock, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Lock(); err == nil || !strings.Contains(err.Error(), "another elemental-agent") {
		t.Errorf("locked twice: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = dir.Lock(); err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestRemoveShreds(t *testing.T) {
	_, dir := open(t, t.TempDir())
	if err := dir.Write("operations/x/data", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	// A second link keeps the content readable after the removal.
	other := dir.Path("other")
	if err := os.Link(dir.Path("operations/x/data"), other); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := dir.Remove("operations/x"); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadFile(other); err != nil || strings.Contains(string(left), "secret") {
		t.Errorf("left %q: %v", left, err)
	}
}

func TestDocument(t *testing.T) {
	_, dir := open(t, t.TempDir())
	document := state.Document[map[string]int]{Files: dir, Name: "operations/x/journal.json"}
	if got, err := document.Load(); err != nil || got != nil {
		t.Errorf("loaded %v: %v", got, err)
	}
	if err := document.Save(map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	if got, err := document.Load(); err != nil || got["a"] != 1 {
		t.Errorf("loaded %v: %v", got, err)
	}
}
