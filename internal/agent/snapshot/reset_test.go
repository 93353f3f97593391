package snapshot_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// resetOnly is a reset that does nothing but end.
type resetOnly struct {
	operation.Runner

	result protocol.OperationState
}

func (r resetOnly) Run(context.Context, state.Operation, func(string)) (operation.Result, error) {
	return operation.Result{State: r.result}, nil
}

// A reset takes snapshots with it only if it succeeds and erases data disks too.
func TestThreat66_Reset(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		erase  string
		result protocol.OperationState
		stays  bool
	}{
		"a reset":                         {"", protocol.StateSucceeded, true},
		"with erasure":                    {protocol.EraseDiscard, protocol.StateSucceeded, false},
		"with erasure, but it has failed": {protocol.EraseZero, protocol.StateFailed, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			documents, err := state.NewDir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			const name = snapshot.Folder + "/0123456789abcdef/1.db"
			if err := documents.Write(name, []byte("secret")); err != nil {
				t.Fatal(err)
			}
			runner := &snapshot.ResetRunner{Runner: resetOnly{result: test.result}, Documents: documents}
			result, err := runner.Run(t.Context(), state.Operation{Operation: protocol.Operation{Erase: test.erase}}, func(string) {})
			if err != nil || result.State != test.result {
				t.Errorf("got %v, %v", result, err)
			}
			if _, err := documents.Read(name); errors.Is(err, fs.ErrNotExist) == test.stays {
				t.Errorf("got %v", err)
			}
		})
	}
}
