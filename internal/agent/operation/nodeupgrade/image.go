package nodeupgrade

import (
	"context"
	"errors"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of an upgrade to another image of the operating system, beside check, drain, gate and
// finish.
const (
	stepImage  = "image"
	stepReboot = "reboot"
)

// OS boots other images of the operating system; see elemental.UpgradeRunner. It takes the image
// from Operation.Image, and can be asked again for the same operation.
type OS interface {
	// Deploy has the next boot start the image. A nil result means that it does.
	Deploy(ctx context.Context, op state.Operation, progress func(string)) (*operation.Result, error)
	// IsBooted reports whether the host was booted since the image was deployed.
	IsBooted(op state.Operation) (bool, error)
	// Boot reboots the host unless it was booted. The result, after the boot, says whether the
	// image runs.
	Boot(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error)
}

// reimage is an upgrade that boots another image under the Node, with the same version of
// Kubernetes.
//
// There is no way back but that of the boot loader, which boots the former image if the new one
// does not boot. So after a failure nothing is put back, and the host is judged as it is.
type reimage struct{ *upgrade }

func (i reimage) steps(name string) sequence.Step {
	switch name {
	case stepCheck:
		return sequence.Step{Run: i.check, Next: stepImage}
	case stepImage:
		return sequence.Step{Run: i.deploy, Next: stepDrain}
	case stepDrain:
		return sequence.Step{Run: i.drain, Next: stepReboot}
	case stepReboot:
		return sequence.Step{Run: i.reboot, Next: stepGate}
	case stepGate:
		return sequence.Step{Run: i.gate, Next: stepFinish}
	case stepFinish:
		return sequence.Step{Run: i.uncordon, End: sequence.Succeed(func() string { return i.at.Note })}
	case stepBack:
		return sequence.Step{Run: func(context.Context) error { return nil }, End: i.judge}
	}
	return sequence.Step{}
}

// operation is the operation as OS takes it.
func (i reimage) operation() state.Operation {
	op := i.op
	op.Image = i.want.OSImage
	return op
}

// check returns an error unless the Node is well. It records the versions.
func (i reimage) check(ctx context.Context) error {
	e := examination(i)
	if err := e.checkRole(); err != nil {
		return err
	}
	return i.await(ctx, readyTimeout, 0, e.isWell)
}

func (i reimage) deploy(ctx context.Context) error {
	result, err := i.OS.Deploy(ctx, i.operation(), func(string) {})
	if err != nil || result == nil {
		return err
	}
	return errors.New(result.Message)
}

// drain drains the Node before it goes away, unless a power cut has rebooted the host already.
func (i reimage) drain(ctx context.Context) error {
	if i.want.DrainTimeoutSeconds <= 0 {
		return nil
	}
	if booted, err := i.OS.IsBooted(i.operation()); booted || err != nil {
		return err
	}
	return i.empty(ctx)
}

// reboot returns only if the host was booted or does not reboot. Its error is final unless the
// step is to be repeated.
func (i reimage) reboot(ctx context.Context) error {
	result, err := i.OS.Boot(ctx, i.operation(), func(string) {})
	if err != nil || result.State == protocol.StateSucceeded {
		return err
	}
	return sequence.Final{Err: errors.New(result.Message)}
}

// gate waits until the Node is well on the new image, with its former version, and stays so.
func (i reimage) gate(ctx context.Context) error {
	return i.await(ctx, gateTimeout, gateHold, func(ctx context.Context) error {
		if err := i.health().node(ctx, i.at.From); err != nil || !i.isControlPlane() {
			return err
		}
		_, err := i.health().controlPlane(ctx)
		return err
	})
}

// judge says what an upgrade that failed has left behind.
func (i reimage) judge(ctx context.Context) (*operation.Result, error) {
	var found string
	err := i.await(ctx, gateTimeout, gateHold, func(ctx context.Context) (err error) {
		found, err = i.serves(ctx)
		return err
	})
	if err == nil {
		err = i.uncordon(ctx)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("looking at the Node: %w", context.Cause(ctx))
	}
	outcome := protocol.UpgradeLeftBroken
	if err != nil {
		found = sequence.Short(err)
	} else if outcome, err = i.outcome(); err != nil {
		return nil, err
	}
	return failed(i.at.FailedStep, outcome, fmt.Sprintf("%s; %s: %s", found, i.at.FailedStep, i.at.Cause)), nil
}

// outcome is that of a failure that has left a Node which serves. The host runs its former image
// only if it was booted into that.
func (i reimage) outcome() (protocol.UpgradeOutcome, error) {
	booted, err := i.OS.IsBooted(i.operation())
	if booted && i.at.FailedStep == stepReboot {
		return protocol.UpgradeRolledBack, err
	}
	return protocol.UpgradePartlyDone, err
}

// serves says with which version the Node serves, and returns an error unless it is well.
func (i reimage) serves(ctx context.Context) (string, error) {
	if err := i.Cluster.KubeletHealthy(ctx); err != nil {
		return "", err
	}
	node, err := i.Cluster.Node(ctx)
	switch {
	case err != nil:
		return "", err
	case !node.Ready:
		return "", fmt.Errorf("the Node %s is not ready", node.Name)
	}
	found := "the Node serves with " + node.Version
	if !i.isControlPlane() {
		return found, nil
	}
	served, err := i.health().controlPlane(ctx)
	return found + " and API server " + served, err
}

// checkImage returns an error for an upgrade to an image that the host can't do.
func (r *Runner) checkImage(want *protocol.NodeUpgrade) error {
	switch {
	case r.OS == nil:
		return errors.New("this host does not run Elemental OS, so it has no image to change")
	case want.Bundle.SHA256 != "":
		return errors.New("the request names an image and a bundle: request one after the other")
	}
	return nil
}
