package etcdrestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/checkpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/standstill"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Snapshots has the host's snapshots of etcd; see snapshot.Store.
type Snapshots interface {
	// Verify returns the file of a snapshot of the etcd that the host runs, whose content it has
	// compared with its digest.
	Verify(ctx context.Context, id string) (path string, facts protocol.EtcdSnapshotFacts, err error)
}

// Fetcher downloads snapshots; see fetch.Fetcher.
type Fetcher interface {
	// Fetch downloads the snapshot of an operation, unless the host has it.
	Fetch(ctx context.Context, operation string, want protocol.EtcdRestore) error
}

// ControlPlane is the control plane of this host; see controlplane.Host.
type ControlPlane interface {
	standstill.ControlPlane

	// Ready returns an error unless etcd and the API server are well.
	Ready(ctx context.Context) error
}

// Runner is the operation.Runner of EtcdRestore operations. All fields but Root are required.
type Runner struct {
	Documents state.Files
	// Checkpoints is the folder of checkpoints, which only root can read.
	Checkpoints string
	// Root replaces "/".
	Root         string
	System       durable.System
	Snapshots    Snapshots
	Fetcher      Fetcher
	ControlPlane ControlPlane
	Setup        Setup
	Nodes        Nodes
	// Commands runs etcdutl.
	Commands oscommand.Runner
	// Free returns how many bytes can be written below a folder.
	Free func(folder string) (int64, error)
	// Plan is the plan of the manager.
	Plan  func() state.Plan
	Clock retry.Clock
	Log   *slog.Logger
}

// Run restores etcd, from the recorded step.
func (r *Runner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	if op.EtcdRestore == nil {
		return *failed(stepCheck, protocol.RestoreChangedNothing, "the request names no data"), nil
	}
	s := &restore{Runner: r, op: op, want: *op.EtcdRestore}
	var err error
	if s.at, err = s.document().Load(); err != nil {
		return operation.Result{}, err
	}
	if s.at.Step == "" {
		s.at.Step = stepCheck
		switch {
		case s.want.Rebuild:
			s.at.Step = stepRebuild
		case s.want.Uploaded:
			s.at.Step = stepFetch
		}
	}
	return sequence.Run(ctx, s, progress)
}

// Abort does nothing: no program outlives Run.
func (r *Runner) Abort(state.Operation) error { return nil }

// Cleanup removes the record. The former data stays.
func (r *Runner) Cleanup(op state.Operation) error { return r.Documents.Remove(op.Folder()) }

// CheckWanted returns an error if the manager has withdrawn the restore before it changed
// anything.
func (s *restore) CheckWanted() error {
	if sequence.IsWanted(s.Plan(), s.op) || !slices.Contains(untouched(), s.at.Step) {
		return nil
	}
	// The agent may be stopping: a withdrawal must not leave the kubelet stopped. A way back that
	// fails is repeated, so the record stays.
	if err := errors.Join(s.discard(), rebuild{s}.undo(context.Background())); err != nil {
		return fmt.Errorf("undoing a restore that the manager has withdrawn: %w", err)
	}
	if err := s.Documents.Remove(s.op.Folder()); err != nil {
		return err
	}
	return fmt.Errorf("%w: the manager has withdrawn the restore", operation.ErrNothingDone)
}

func (s *restore) document() state.Document[record] {
	return state.Document[record]{Files: s.Documents, Name: s.op.Folder() + "/etcdrestore.json"}
}

// Save saves the record.
func (s *restore) Save() error { return s.document().Save(s.at) }

func (s *restore) checkpoints() checkpoint.Store {
	return checkpoint.Store{Root: s.Root, Folder: s.Checkpoints, System: s.System}
}

// name is that of the checkpoint, and part of the names of folders.
func (s *restore) name() string { return filepath.Base(s.op.Folder()) }

func failed(step string, outcome protocol.RestoreOutcome, text string) *operation.Result {
	return &operation.Result{State: protocol.StateFailed, Step: step, Message: outcome.Message(text)}
}
