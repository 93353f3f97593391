package nodeupgrade

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
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Stager has bundles unpacked on the disk.
type Stager interface {
	// Stage returns the folder of an unpacked bundle, which has each file of the manifest
	// under its name.
	Stage(ctx context.Context, want protocol.Bundle, progress func(message string)) (folder string, m bundle.Manifest, err error)
	// Retry has the next attempt begin at once.
	Retry(ctx context.Context) error
}

// Inspector finds the programs of Kubernetes on the host.
type Inspector interface {
	Kubernetes(ctx context.Context) (protocol.Kubernetes, error)
}

// Installed is the record of what came from a bundle; see installation.Record.
type Installed interface {
	// Accept is called before files are replaced by those of another bundle.
	Accept(files []bundle.File) error
}

// Kubeadm runs kubeadm; see kubeadm.Program.
type Kubeadm interface {
	Run(ctx context.Context, folder string, args []string, watch func(context.Context)) error
	Abort(folder string) error
}

// Runner is the operation.Runner of NodeUpgrade operations. All fields but Root are
// required, except that a host whose system is an image has no Stager, Installed and Kubeadm,
// and another one no OS.
type Runner struct {
	Documents state.Files
	// Checkpoints is the folder of checkpoints, which only root can read.
	Checkpoints string
	// Root replaces "/".
	Root      string
	System    durable.System
	Stager    Stager
	Inspector Inspector
	Installed Installed
	Kubeadm   Kubeadm
	OS        OS
	// Commands runs systemctl, ctr and nft.
	Commands oscommand.Runner
	Cluster  cluster.Client
	// LocalAddresses returns the addresses of the host.
	LocalAddresses func() []string
	// Free returns how many bytes can be written below a folder.
	Free func(folder string) (int64, error)
	// IsReadOnly reports whether a folder can't be written to.
	IsReadOnly func(folder string) bool
	// BootID identifies the running boot.
	BootID string
	// Plan is the plan of the manager.
	Plan  func() state.Plan
	Clock retry.Clock
	Log   *slog.Logger
}

// Run upgrades the Node, from the recorded step.
func (r *Runner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	if err := r.check(op.NodeUpgrade); err != nil {
		return *failed(stepStage, protocol.UpgradeChangedNothing, err.Error()), nil
	}
	u, err := r.resume(op, progress)
	if err != nil {
		return operation.Result{}, err
	}
	result, err := sequence.Run(ctx, u, progress)
	return result, u.redirection.endSuperseded(ctx, err)
}

// Abort kills kubeadm if it runs.
func (r *Runner) Abort(op state.Operation) error {
	at, err := r.document(op).Load()
	if err != nil || at.Attempt == 0 {
		return err
	}
	return r.Kubeadm.Abort(r.attemptFolder(op, at.Attempt))
}

// Cleanup removes the record. The checkpoint stays.
func (r *Runner) Cleanup(op state.Operation) error { return r.Documents.Remove(op.Folder()) }

// CheckWanted returns an error if the upgrade must not go on: the host is to be reset, or the
// manager has withdrawn the upgrade before it changed anything.
func (u *upgrade) CheckWanted() error {
	plan := u.Plan()
	if plan.Operation != nil && plan.Operation.Type == protocol.OperationReset {
		return operation.ErrSuperseded
	}
	if sequence.IsWanted(plan, u.op) || !slices.Contains(untouched(), u.at.Step) {
		return nil
	}
	if err := errors.Join(u.store().Remove(u.name()), u.Documents.Remove(u.op.Folder())); err != nil {
		return err
	}
	return fmt.Errorf("%w: the manager has withdrawn the upgrade", operation.ErrNothingDone)
}

func (r *Runner) document(op state.Operation) state.Document[record] {
	return state.Document[record]{Files: r.Documents, Name: op.Folder() + "/nodeupgrade.json"}
}

func (r *Runner) store() checkpoint.Store {
	return checkpoint.Store{Root: r.Root, Folder: r.Checkpoints, System: r.System}
}

// attemptFolder is where an attempt of kubeadm has its output. It is kept with the
// checkpoint.
func (r *Runner) attemptFolder(op state.Operation, attempt int) string {
	return filepath.Join(r.Checkpoints, filepath.Base(op.Folder()), fmt.Sprintf("kubeadm-%d", attempt))
}

func failed(step string, outcome protocol.UpgradeOutcome, text string) *operation.Result {
	return &operation.Result{State: protocol.StateFailed, Step: step, Message: outcome.Message(text)}
}
