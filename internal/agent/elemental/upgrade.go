package elemental

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of an upgrade.
const (
	stepUpgrade = "upgrade"
	stepReboot  = "reboot"
	stepVerify  = "verify"
)

// maxAttempts bounds how often something that was interrupted is begun again.
const maxAttempts = 3

// imagePattern is what the CLI takes for a source.
var imagePattern = regexp.MustCompile(`^(oci|docker|dir|file):[^\s]{1,500}$`)

// Rebooter reboots the host.
type Rebooter interface {
	// Reboot returns only if ctx ended, as it does when the system goes down,
	// or if the host didn't reboot.
	Reboot(ctx context.Context) error
}

// Upgrade runs Upgrade operations: elemental upgrade, a reboot, and a look at what
// came up. What was running is on record before, and the operation succeeds only
// if the active system was booted and is the wanted one.
type Upgrade struct {
	System    System
	CLI       CLI
	Documents state.Files
	Host      Rebooter
	// BootID tells a new boot from the one in which the upgrade was made.
	BootID string
	Log    *slog.Logger
}

// upgradeProgress is how far an upgrade is.
type upgradeProgress struct {
	// Step is the one that may have been begun: stepUpgrade or stepReboot.
	Step string `json:"step"`
	// Before is the system that was active before.
	Before deployed `json:"before"`
	// BootID is the boot in which the step was begun last.
	BootID string `json:"bootID,omitempty"`
	// Attempts at the step.
	Attempts int `json:"attempts,omitempty"`
}

// Run upgrades, from the step that was recorded.
func (u *Upgrade) Run(ctx context.Context, op state.Operation, progress func(string)) (agent.Result, error) {
	document := state.Document[upgradeProgress]{Files: u.Documents, Name: op.Folder() + "/upgrade.json"}
	at, err := document.Load()
	if err != nil {
		return agent.Result{}, err
	}
	if at.Step == "" {
		if !imagePattern.MatchString(op.Image) {
			return failed(stepUpgrade, fmt.Errorf("%q is no image: one begins with oci:, docker:, dir: or file:, without spaces", op.Image)), nil
		}
		if mode := u.System.Mode(); mode != ModeActive && mode != ModePassive {
			return failed(stepUpgrade, fmt.Errorf("the host runs its %s system: boot the active one first", mode)), nil
		}
		if at.Before, err = u.System.deployed(); err != nil {
			return failed(stepUpgrade, err), nil
		}
		at.Step = stepUpgrade
		if err := document.Save(at); err != nil {
			return agent.Result{}, err
		}
	}
	if at.Step == stepUpgrade {
		if result, err := u.upgrade(ctx, document, &at, op, progress); result != nil || err != nil {
			return deref(result), err
		}
	}
	if at.BootID == u.BootID {
		return u.reboot(ctx, document, &at, progress)
	}
	progress(stepVerify)
	return u.verify(op), nil
}

// Abort does nothing: an upgrade is never given up.
func (u *Upgrade) Abort(state.Operation) error { return nil }

// Settle drops the record.
func (u *Upgrade) Settle(op state.Operation) error { return u.Documents.Remove(op.Folder()) }

// upgrade has the CLI deploy the image, unless it has.
func (u *Upgrade) upgrade(ctx context.Context, document state.Document[upgradeProgress], at *upgradeProgress, op state.Operation, progress func(string)) (*agent.Result, error) {
	progress(stepUpgrade)
	if !u.deployedBy(op, at.Before) {
		if at.Attempts >= maxAttempts {
			result := failed(stepUpgrade, fmt.Errorf("it was interrupted %d times", at.Attempts))
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
			result := failed(stepUpgrade, err)
			return &result, nil
		}
		if !u.deployedBy(op, at.Before) {
			result := failed(stepUpgrade, fmt.Errorf("elemental upgrade ended well, and state.yaml does not name %s as the active system", op.Image))
			return &result, nil
		}
	}
	at.Step, at.Attempts = stepReboot, 0
	return nil, document.Save(*at)
}

// deployedBy reports whether the operation's image has been deployed since before.
func (u *Upgrade) deployedBy(op state.Operation, before deployed) bool {
	now, err := u.System.deployed()
	return err == nil && now.Print != before.Print && now.is(op.Image, labelOf(op.ID))
}

func (u *Upgrade) reboot(ctx context.Context, document state.Document[upgradeProgress], at *upgradeProgress, progress func(string)) (agent.Result, error) {
	progress(stepReboot)
	if at.Attempts >= maxAttempts {
		return failed(stepReboot, fmt.Errorf("the image was deployed, and the host did not reboot into it when it was told to, %d times", at.Attempts)), nil
	}
	at.Attempts++
	if err := document.Save(*at); err != nil {
		return agent.Result{}, err
	}
	err := u.Host.Reboot(ctx)
	if ctx.Err() != nil {
		return agent.Result{}, context.Cause(ctx)
	}
	return agent.Result{}, fmt.Errorf("rebooting into the upgraded system: %w", err)
}

// verify judges what came up after the reboot.
func (u *Upgrade) verify(op state.Operation) agent.Result {
	now, err := u.System.deployed()
	mode := u.System.Mode()
	switch {
	case mode == ModePassive:
		return failed(stepVerify, fmt.Errorf("rolled back to the passive system, because %s did not boot", op.Image))
	case mode != ModeActive:
		return failed(stepVerify, fmt.Errorf("%s did not boot: the host runs its %s system", op.Image, mode))
	case err != nil:
		return failed(stepVerify, err)
	case !now.is(op.Image, labelOf(op.ID)):
		return failed(stepVerify, fmt.Errorf("rolled back to %s", now.Source))
	}
	return agent.Result{State: protocol.StateSucceeded}
}

func failed(step string, err error) agent.Result {
	return agent.Result{State: protocol.StateFailed, Step: step, Message: err.Error()}
}

func deref(result *agent.Result) agent.Result {
	if result == nil {
		return agent.Result{}
	}
	return *result
}
