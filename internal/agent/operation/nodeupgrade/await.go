package nodeupgrade

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	pollInterval = 5 * time.Second
	// readyTimeout is how long the host may take to become well, for example after a
	// reboot.
	readyTimeout = 5 * time.Minute
	// gateTimeout is how long the Node may take to be well with another kubelet, and
	// gateHold for how long it has to be.
	gateTimeout = 5 * time.Minute
	gateHold    = 30 * time.Second
	// maxCause bounds an error in a message, in bytes.
	maxCause = 600
)

// final is an error that waiting does not change.
type final struct{ error }

// await asks again and again until there is no error for the time of hold without a break.
// It returns the last error after limit, and a final one at once.
func (u *upgrade) await(ctx context.Context, limit, hold time.Duration, ask func(context.Context) error) error {
	deadline := u.Clock.Now().Add(limit)
	var since time.Time
	for {
		began := u.Clock.Now()
		err := ask(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && since.IsZero():
			since = began
		case err != nil:
			since = time.Time{}
		}
		if fixed, ok := errors.AsType[final](err); ok {
			return fixed.error
		}
		now := u.Clock.Now()
		if err == nil && now.Sub(since) >= hold {
			return nil
		}
		if err != nil && !now.Before(deadline) {
			return fmt.Errorf("it was not well within %s: %w", limit, err)
		}
		if err == nil && !now.Before(deadline.Add(hold)) {
			return fmt.Errorf("it was not well for %s within %s", hold, limit+hold)
		}
		if err := u.Clock.Wait(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// short returns an error in one line of limited length.
func short(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "…"
	}
	return text
}

// check returns an error for an upgrade that is not a request that the agent understands, or
// that this host can't do.
func (r *Runner) check(want *protocol.NodeUpgrade) error {
	switch {
	case want == nil:
		return errors.New("the request names neither a bundle nor an image")
	case want.OSImage != "":
		if err := r.checkImage(want); err != nil {
			return err
		}
	case r.Stager == nil:
		return errors.New("this host runs Elemental OS, whose image has the programs of Kubernetes: replace the Machine")
	default:
		if _, err := parseVersion(want.Bundle.Version); err != nil {
			return err
		}
	}
	switch want.Role {
	case protocol.UpgradeFirstControlPlane, protocol.UpgradeControlPlane, protocol.UpgradeWorker:
		return nil
	}
	return fmt.Errorf("this agent doesn't know the role %q: update the agent", want.Role)
}
