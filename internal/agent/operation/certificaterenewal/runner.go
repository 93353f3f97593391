package certificaterenewal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/checkpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// ControlPlane is the control plane of this host; see controlplane.Host.
type ControlPlane interface {
	// Restart ends a program, and returns when the kubelet has started it again.
	Restart(ctx context.Context, program string) error
	// Ready returns an error unless etcd and the API server are well.
	Ready(ctx context.Context) error
}

// Runner is the operation.Runner of CertificateRenewal operations. All fields but Root and Dial are
// required.
type Runner struct {
	Documents state.Files
	// Checkpoints is the folder of checkpoints, which only root can read.
	Checkpoints string
	// Root replaces "/".
	Root         string
	System       durable.System
	ControlPlane ControlPlane
	// Commands runs kubeadm.
	Commands oscommand.Runner
	// Free returns how many bytes can be written below a folder.
	Free func(folder string) (int64, error)
	// Dial connects to the API server of this host; nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Plan is the plan of the manager.
	Plan  func() state.Plan
	Clock retry.Clock
	Log   *slog.Logger
}

// Run renews the certificates, from the recorded step.
func (r *Runner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	s := &renewal{Runner: r, op: op}
	var err error
	if s.at, err = s.document().Load(); err != nil {
		return operation.Result{}, err
	}
	if s.at.Step == "" {
		s.at.Step = stepCheck
	}
	return sequence.Run(ctx, s, progress)
}

// Abort does nothing: no program outlives Run.
func (r *Runner) Abort(state.Operation) error { return nil }

// Cleanup removes the record.
func (r *Runner) Cleanup(op state.Operation) error { return r.Documents.Remove(op.Folder()) }

// CheckWanted returns an error if the manager has withdrawn the renewal before it changed
// anything.
func (s *renewal) CheckWanted() error {
	if sequence.IsWanted(s.Plan(), s.op) || !slices.Contains(untouched(), s.at.Step) {
		return nil
	}
	if err := errors.Join(s.checkpoints().Remove(s.name()), s.Documents.Remove(s.op.Folder())); err != nil {
		return err
	}
	return fmt.Errorf("%w: the manager has withdrawn the renewal", operation.ErrNothingDone)
}

func (s *renewal) document() state.Document[record] {
	return state.Document[record]{Files: s.Documents, Name: s.op.Folder() + "/certificaterenewal.json"}
}

// Save saves the record.
func (s *renewal) Save() error { return s.document().Save(s.at) }

func (s *renewal) checkpoints() checkpoint.Store {
	return checkpoint.Store{Root: s.Root, Folder: s.Checkpoints, System: s.System}
}

// name is that of the checkpoint.
func (s *renewal) name() string { return filepath.Base(s.op.Folder()) }

func failed(step string, outcome protocol.RenewalOutcome, text string) *operation.Result {
	return &operation.Result{State: protocol.StateFailed, Step: step, Message: outcome.Message(text)}
}
