package nodeupgrade

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/checkpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of an upgrade, in order, and the step of the way back.
const (
	stepStage      = protocol.UpgradeStepStage
	stepCheck      = "check"
	stepCheckpoint = "checkpoint"
	stepKubeadm    = "kubeadm"
	stepDrain      = "drain"
	stepKubelet    = "kubelet"
	stepGate       = "gate"
	stepFinish     = "finish"
	stepBack       = "rollback"
)

// untouched are the steps that change nothing on the Node.
func untouched() []string { return []string{stepStage, stepCheck, stepCheckpoint} }

// maxAttempts bounds how often a step that failed is repeated.
const maxAttempts = 3

// record is the progress of an upgrade, on disk.
type record struct {
	// Step is the one that may have been begun.
	Step string `json:"step"`
	// Tries counts failures of the step, if it is stage, checkpoint or rollback.
	Tries int `json:"tries,omitempty"`
	// Retried is true once the bundle need not wait for an earlier attempt to stage it.
	Retried bool `json:"retried,omitempty"`
	// From is the kubelet's version before, and Server that of the host's API server.
	From   string `json:"from,omitempty"`
	Server string `json:"server,omitempty"`
	// Programs are the files to replace.
	Programs []program `json:"programs,omitempty"`
	// Attempt is the attempt of kubeadm that was begun last, and Ended the last one that
	// has failed.
	Attempt int `json:"attempt,omitempty"`
	Ended   int `json:"ended,omitempty"`
	// Failure is that of the attempt Ended.
	Failure string `json:"failure,omitempty"`
	// BootID is the boot in which Attempt was begun, and BeganAt when.
	BootID  string    `json:"bootID,omitempty"`
	BeganAt time.Time `json:"beganAt,omitzero"`
	// Futile is true if the attempt Ended shows that another one would fail too.
	Futile bool `json:"futile,omitempty"`
	// Distrusted is true if the power was cut during the attempt Ended: files that kubeadm
	// wrote may be cut short.
	Distrusted bool `json:"distrusted,omitempty"`
	// Served is true once an API server of the new version was ready on this host.
	Served bool `json:"served,omitempty"`
	// ServedBy are the digests of the manifests with which the API server and etcd were well,
	// by their paths.
	ServedBy map[string]string `json:"servedBy,omitempty"`
	// DrainUntil is when the drain ends at the latest; zero before it begins.
	DrainUntil time.Time `json:"drainUntil,omitzero"`
	// Cordoned is true if the upgrade cordons the Node, so that it has to uncordon it.
	Cordoned bool `json:"cordoned,omitempty"`
	// Note is the message of a success.
	Note string `json:"note,omitempty"`
	// FailedStep and Cause say why the way back was begun.
	FailedStep string `json:"failedStep,omitempty"`
	Cause      string `json:"cause,omitempty"`
}

// program is a program on the host that the bundle replaces.
type program struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// upgrade is an upgrade while it runs.
type upgrade struct {
	*Runner

	op       state.Operation
	want     protocol.NodeUpgrade
	at       record
	progress func(string)

	redirection *redirection
}

// resume returns the upgrade at its recorded step.
func (r *Runner) resume(op state.Operation, progress func(string)) (*upgrade, error) {
	u := &upgrade{Runner: r, op: op, want: *op.NodeUpgrade, progress: progress}
	u.redirection = &redirection{upgrade: u}
	var err error
	if u.at, err = r.document(op).Load(); err != nil {
		return nil, err
	}
	if u.at.Step == "" {
		u.at.Step = stepStage
		if u.want.OSImage != "" {
			u.at.Step = stepCheck
		}
	}
	return u, nil
}

func (u *upgrade) save() error { return u.document(u.op).Save(u.at) }

// name is that of the checkpoint.
func (u *upgrade) name() string { return filepath.Base(u.op.Folder()) }

func (u *upgrade) isControlPlane() bool { return u.want.Role != protocol.UpgradeWorker }

// next runs the recorded step. A nil result means that another step follows.
func (u *upgrade) next(ctx context.Context) (*operation.Result, error) {
	u.progress(u.at.Step)
	step := u.at.Step
	run, following := u.steps(step)
	if run == nil {
		return nil, fmt.Errorf("the upgrade is at step %q, which this agent doesn't know: update the agent", step)
	}
	u.redirection.direct(ctx)
	err := run(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("upgrading the Node: %w", context.Cause(ctx))
	case state.IsWriteError(err) || errors.Is(err, operation.ErrSuperseded):
		return nil, err
	case err != nil:
		return u.fail(ctx, step, err)
	case step == stepBack && u.want.OSImage != "":
		return reimage{u}.judge(ctx)
	case step == stepBack:
		return wayBack{u}.judge(ctx)
	case step == stepFinish:
		return &operation.Result{State: protocol.StateSucceeded, Message: u.at.Note}, nil
	}
	u.at.Step, u.at.Tries = following, 0
	return nil, u.save()
}

// steps returns what a step does, and the step that follows.
func (u *upgrade) steps(step string) (run func(context.Context) error, following string) {
	if u.want.OSImage != "" {
		return reimage{u}.steps(step)
	}
	switch step {
	case stepStage:
		return u.stage, stepCheck
	case stepCheck:
		return examination{u}.run, stepCheckpoint
	case stepCheckpoint:
		return u.checkpoint, stepKubeadm
	case stepKubeadm:
		return attempts{u}.run, stepDrain
	case stepDrain:
		return u.drain, stepKubelet
	case stepKubelet:
		return u.kubelet, stepGate
	case stepGate:
		return u.gate, stepFinish
	case stepFinish:
		return u.finish, ""
	case stepBack:
		return wayBack{u}.run, ""
	}
	return nil, ""
}

// fail decides what follows the failure of a step. An error means that the step is
// repeated.
func (u *upgrade) fail(ctx context.Context, step string, cause error) (*operation.Result, error) {
	if _, isSettled := errors.AsType[final](cause); step == stepReboot && !isSettled {
		return nil, fmt.Errorf("%s: %w", step, cause)
	}
	switch step {
	case stepDrain, stepFinish:
		return nil, fmt.Errorf("%s: %w", step, cause)
	case stepKubeadm, stepKubelet, stepReboot, stepGate:
		u.Log.Error("An upgrade of the Node failed; going back", "id", u.op.ID, "step", step, "error", cause)
		u.at.Step, u.at.Tries, u.at.FailedStep, u.at.Cause = stepBack, 0, step, short(cause)
		return nil, u.save()
	case stepStage:
		if errors.Is(cause, bundle.ErrNotServed) {
			return nil, fmt.Errorf("%w: %s: %w", operation.ErrNothingDone, step, cause)
		}
	}
	u.at.Tries++
	if err := u.save(); err != nil {
		return nil, err
	}
	isFinal := u.at.Tries >= maxAttempts || step == stepCheck || step == stepImage || errors.Is(cause, bundle.ErrWrongDigest)
	switch {
	case isFinal && step == stepBack:
		result := wayBack{u}.result(protocol.UpgradeLeftBroken, "the way back failed: "+short(cause))
		return &result, u.redirection.end(ctx)
	case isFinal:
		result := failed(step, protocol.UpgradeChangedNothing, short(cause))
		return &result, u.store().Remove(u.name())
	case step == stepBack:
		return nil, fmt.Errorf("%s: %w", step, cause)
	}
	return nil, fmt.Errorf("%w: %s: %w", operation.ErrNothingDone, step, cause)
}

// kept returns the checkpoint.
func (u *upgrade) kept() (*checkpoint.Checkpoint, error) { return u.store().Open(u.name()) }

// staged returns the bundle's folder and manifest. After the first step it is there, unless
// the disk lost it.
func (u *upgrade) staged(ctx context.Context) (folder string, m bundle.Manifest, err error) {
	folder, m, err = u.Stager.Stage(ctx, u.want.Bundle, func(message string) { u.progress(u.at.Step + ": " + message) })
	if err != nil {
		return "", bundle.Manifest{}, fmt.Errorf("staging the bundle: %w", err)
	}
	return folder, m, nil
}
