package nodeupgrade

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/checkpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
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

// record is the progress of an upgrade, on disk.
type record struct {
	sequence.Position

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

// Save saves the record.
func (u *upgrade) Save() error { return u.document(u.op).Save(u.at) }

// name is that of the checkpoint.
func (u *upgrade) name() string { return filepath.Base(u.op.Folder()) }

func (u *upgrade) isControlPlane() bool { return u.want.Role != protocol.UpgradeWorker }

// Position is where the upgrade is.
func (u *upgrade) Position() *sequence.Position { return &u.at.Position }

// Step returns what a step does, and what follows. Before a step begins, the clients of the
// endpoint go where it needs them.
func (u *upgrade) Step(name string) sequence.Step {
	step := u.steps(name)
	if u.want.OSImage != "" {
		step = reimage{u}.steps(name)
	}
	if run := step.Run; run != nil {
		step.Run = func(ctx context.Context) error {
			u.redirection.direct(ctx)
			return run(ctx)
		}
	}
	return step
}

func (u *upgrade) steps(name string) sequence.Step {
	switch name {
	case stepStage:
		return sequence.Step{Run: u.stage, Next: stepCheck}
	case stepCheck:
		return sequence.Step{Run: examination{u}.run, Next: stepCheckpoint}
	case stepCheckpoint:
		return sequence.Step{Run: u.checkpoint, Next: stepKubeadm}
	case stepKubeadm:
		return sequence.Step{Run: attempts{u}.run, Next: stepDrain}
	case stepDrain:
		return sequence.Step{Run: u.drain, Next: stepKubelet}
	case stepKubelet:
		return sequence.Step{Run: u.kubelet, Next: stepGate}
	case stepGate:
		return sequence.Step{Run: u.gate, Next: stepFinish}
	case stepFinish:
		return sequence.Step{Run: u.finish, End: sequence.Succeed(func() string { return u.at.Note })}
	case stepBack:
		return sequence.Step{Run: wayBack{u}.run, End: wayBack{u}.judge}
	}
	return sequence.Step{}
}

// Fail decides what follows the failure of a step.
func (u *upgrade) Fail(ctx context.Context, cause error) (*operation.Result, error) {
	step := u.at.Step
	if _, isSettled := errors.AsType[sequence.Final](cause); step == stepReboot && !isSettled {
		return nil, fmt.Errorf("%s: %w", step, cause)
	}
	switch step {
	case stepDrain, stepFinish:
		return nil, fmt.Errorf("%s: %w", step, cause)
	case stepKubeadm, stepKubelet, stepReboot, stepGate:
		u.Log.Error("An upgrade of the Node failed; going back", "id", u.op.ID, "step", step, "error", cause)
		u.at.GoBack(stepBack, cause)
		return nil, u.Save()
	case stepStage:
		if errors.Is(cause, bundle.ErrNotServed) {
			return nil, fmt.Errorf("%s: %w", step, cause)
		}
	}
	u.at.Tries++
	if err := u.Save(); err != nil {
		return nil, err
	}
	isFinal := u.at.Tries >= sequence.MaxAttempts || step == stepCheck || step == stepImage || errors.Is(cause, bundle.ErrWrongDigest)
	switch {
	case isFinal && step == stepBack:
		return wayBack{u}.result(protocol.UpgradeLeftBroken, "the way back failed: "+sequence.Short(cause)), u.redirection.end(ctx)
	case isFinal:
		return failed(step, protocol.UpgradeChangedNothing, sequence.Short(cause)), u.store().Remove(u.name())
	}
	return nil, fmt.Errorf("%s: %w", step, cause)
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
