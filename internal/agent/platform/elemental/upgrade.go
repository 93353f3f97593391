package elemental

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of an upgrade.
const (
	stepUpgrade = "upgrade"
	stepReboot  = "reboot"
	stepVerify  = "verify"
)

// maxAttempts limits how often an interrupted step is repeated.
const maxAttempts = 3

// imagePattern matches the sources that the CLI accepts.
var imagePattern = regexp.MustCompile(`^(oci|docker|dir|file):[^\s]{1,500}$`)

// UpgradeRunner is the operation.Runner of Upgrade operations. It runs elemental
// upgrade, reboots, and verifies which system was booted. It records the running
// system before, and the operation succeeds only if the active system was booted
// from the requested image.
type UpgradeRunner struct {
	System    System
	CLI       CLI
	Documents state.Files
	Platform  platform.Rebooter
	// BootID identifies the running boot.
	BootID string
	Log    *slog.Logger
}

// upgradeProgress is the progress of an upgrade.
type upgradeProgress struct {
	// Step is the step that may have been begun: stepUpgrade or stepReboot.
	Step string `json:"step"`
	// Before is the system that was active before the upgrade.
	Before deployment `json:"before"`
	// BootID is the boot in which the step was begun last.
	BootID string `json:"bootID,omitempty"`
	// Attempts counts the attempts at the step.
	Attempts int `json:"attempts,omitempty"`
}

// Run upgrades the system, from the recorded step.
func (u *UpgradeRunner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	if result, err := u.Deploy(ctx, op, progress); result != nil || err != nil {
		return deref(result), err
	}
	return u.Boot(ctx, op, progress)
}

func (u *UpgradeRunner) document(op state.Operation) state.Document[upgradeProgress] {
	return state.Document[upgradeProgress]{Files: u.Documents, Name: op.Folder() + "/upgrade.json"}
}

// Deploy deploys the image of the operation, which the next boot starts, unless it has done so
// already. A nil result means that the image is deployed.
func (u *UpgradeRunner) Deploy(ctx context.Context, op state.Operation, progress func(string)) (*operation.Result, error) {
	document := u.document(op)
	at, err := document.Load()
	if err != nil {
		return nil, err
	}
	if at.Step == "" {
		if at.Before, err = u.begin(op); err != nil {
			result := operation.Failed(stepUpgrade, err)
			return &result, nil
		}
		at.Step = stepUpgrade
		if err := document.Save(at); err != nil {
			return nil, err
		}
	}
	if at.Step != stepUpgrade {
		return nil, nil
	}
	return u.upgrade(ctx, document, &at, op, progress)
}

// begin returns the system that is active before the upgrade, and an error if there must be no
// upgrade.
func (u *UpgradeRunner) begin(op state.Operation) (deployment, error) {
	if !imagePattern.MatchString(op.Image) {
		return deployment{}, fmt.Errorf("%q is no image: one begins with oci:, docker:, dir: or file:, without spaces", op.Image)
	}
	if mode := u.System.Mode(); mode != ModeActive && mode != ModePassive {
		return deployment{}, fmt.Errorf("the host runs its %s system: boot the active one first", mode)
	}
	return u.System.activeDeployment()
}

// IsBooted reports whether the host was booted since Deploy began to deploy the image last.
func (u *UpgradeRunner) IsBooted(op state.Operation) (bool, error) {
	at, err := u.document(op).Load()
	return at.BootID != u.BootID, err
}

// Boot reboots into the image that Deploy has deployed. After the boot it returns whether the
// image runs.
func (u *UpgradeRunner) Boot(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	document := u.document(op)
	at, err := document.Load()
	if err != nil {
		return operation.Result{}, err
	}
	if at.BootID == u.BootID {
		return u.reboot(ctx, document, &at, progress)
	}
	progress(stepVerify)
	return u.verify(op), nil
}

// Abort does nothing: an upgrade is never superseded.
func (u *UpgradeRunner) Abort(state.Operation) error { return nil }

// Cleanup removes the record.
func (u *UpgradeRunner) Cleanup(op state.Operation) error { return u.Documents.Remove(op.Folder()) }

// upgrade runs the CLI, unless it has deployed the image already. A nil result
// means that the image is deployed.
func (u *UpgradeRunner) upgrade(ctx context.Context, document state.Document[upgradeProgress], at *upgradeProgress, op state.Operation, progress func(string)) (*operation.Result, error) {
	progress(stepUpgrade)
	if !u.isDeployed(op, at.Before) {
		if at.Attempts >= maxAttempts {
			result := operation.Failed(stepUpgrade, fmt.Errorf("it was interrupted %d times", at.Attempts))
			return &result, nil
		}
		at.Attempts, at.BootID = at.Attempts+1, u.BootID
		if err := document.Save(*at); err != nil {
			return nil, err
		}
		u.Log.Info("Upgrading the operating system", "id", op.ID, "image", op.Image, "from", at.Before.Source)
		err := u.CLI.run(ctx, []string{
			"ELEMENTAL_UPGRADE_SYSTEM=" + op.Image, "ELEMENTAL_UPGRADE_SNAPSHOT_LABELS=" + operationLabel + "=" + labelOf(op.ID),
		}, "upgrade")
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			result := operation.Failed(stepUpgrade, err)
			return &result, nil
		}
		if !u.isDeployed(op, at.Before) {
			result := operation.Failed(stepUpgrade, fmt.Errorf("elemental upgrade ended well, and state.yaml does not name %s as the active system", op.Image))
			return &result, nil
		}
	}
	at.Step, at.Attempts = stepReboot, 0
	return nil, document.Save(*at)
}

// isDeployed reports whether the operation has replaced the deployment before.
func (u *UpgradeRunner) isDeployed(op state.Operation, before deployment) bool {
	current, err := u.System.activeDeployment()
	return err == nil && current.Print != before.Print && current.isFrom(op.Image, labelOf(op.ID))
}

func (u *UpgradeRunner) reboot(ctx context.Context, document state.Document[upgradeProgress], at *upgradeProgress, progress func(string)) (operation.Result, error) {
	progress(stepReboot)
	if at.Attempts >= maxAttempts {
		return operation.Failed(stepReboot, fmt.Errorf("the image was deployed, and the host did not reboot into it when it was told to, %d times", at.Attempts)), nil
	}
	at.Attempts++
	if err := document.Save(*at); err != nil {
		return operation.Result{}, err
	}
	err := u.Platform.Reboot(ctx)
	if ctx.Err() != nil {
		return operation.Result{}, context.Cause(ctx)
	}
	return operation.Result{}, fmt.Errorf("rebooting into the upgraded system: %w", err)
}

// verify checks which system was booted after the reboot.
func (u *UpgradeRunner) verify(op state.Operation) operation.Result {
	current, err := u.System.activeDeployment()
	mode := u.System.Mode()
	switch {
	case mode == ModePassive:
		return operation.Failed(stepVerify, fmt.Errorf("rolled back to the passive system, because %s did not boot", op.Image))
	case mode != ModeActive:
		return operation.Failed(stepVerify, fmt.Errorf("%s did not boot: the host runs its %s system", op.Image, mode))
	case err != nil:
		return operation.Failed(stepVerify, err)
	case !current.isFrom(op.Image, labelOf(op.ID)):
		return operation.Failed(stepVerify, fmt.Errorf("rolled back to %s", current.Source))
	}
	return operation.Result{State: protocol.StateSucceeded}
}

func deref(result *operation.Result) operation.Result {
	if result == nil {
		return operation.Result{}
	}
	return *result
}
