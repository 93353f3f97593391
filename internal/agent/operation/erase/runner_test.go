package erase

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// reset is a reset with a fixed result.
type reset struct{ result operation.Result }

func (r reset) Run(context.Context, state.Operation, func(string)) (operation.Result, error) {
	return r.result, nil
}
func (reset) Abort(state.Operation) error   { return nil }
func (reset) Cleanup(state.Operation) error { return nil }

func (l *lab) runner(e *Eraser) *Runner {
	l.t.Helper()
	files, err := state.NewDir(filepath.Join(l.dir, "state"))
	if err != nil {
		l.t.Fatal(err)
	}
	return &Runner{
		Runner: reset{operation.Result{State: protocol.StateSucceeded, Message: "note"}}, Documents: files, Eraser: e,
		Log: slog.New(slog.DiscardHandler),
	}
}

func resetOf(method string) state.Operation {
	return state.Operation{Operation: protocol.Operation{Type: protocol.OperationReset, ID: "r", Erase: method}}
}

func TestFailedDiskFailsReset(t *testing.T) {
	l := newLab(t)
	broken, data := l.readOnly("broken"), l.loop("data")
	r := l.runner(l.eraser())
	result, err := r.Run(t.Context(), resetOf(protocol.EraseZero), func(string) {})
	if err != nil || result.State != protocol.StateFailed || result.Step != "erase" ||
		!strings.Contains(result.Message, broken) || strings.Contains(result.Message, data) || len(result.Erased) != 2 {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestErasesOnlyOnRequest(t *testing.T) {
	l := newLab(t)
	data := l.loop("data")
	for name, test := range map[string]struct {
		op    state.Operation
		inner protocol.OperationState
		want  protocol.OperationState
	}{
		"no erasure":     {resetOf(""), protocol.StateSucceeded, protocol.StateSucceeded},
		"a failed reset": {resetOf(protocol.EraseZero), protocol.StateFailed, protocol.StateFailed},
		"another method": {resetOf("Shred"), protocol.StateSucceeded, protocol.StateFailed},
	} {
		r := l.runner(l.eraser())
		r.Runner = reset{operation.Result{State: test.inner}}
		result, err := r.Run(t.Context(), test.op, func(string) {})
		if err != nil || result.State != test.want || len(result.Erased) != 0 {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
	if l.isZero(data) {
		t.Error("the disk was erased")
	}
}

func TestErasureIsStoredUntilReported(t *testing.T) {
	files, err := state.NewDir(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	op, err := store.Begin(resetOf(protocol.EraseZero))
	if err != nil {
		t.Fatal(err)
	}
	op.State, op.Erased = protocol.StateFailed, []protocol.ErasedDisk{{Name: "sdb", Result: protocol.ErasureFails}}
	if err := store.Finish(op); err != nil {
		t.Fatal(err)
	}
	stored, _ := store.Operation(op.Type, op.ID)
	if report := stored.Report(); len(report.Erased) != 1 || report.Erased[0].Name != "sdb" {
		t.Errorf("reported %+v", report)
	}
	if again, err := store.Begin(op); err != nil || again.Erased != nil {
		t.Errorf("the next attempt begins with %+v, %v", again.Erased, err)
	}
}
