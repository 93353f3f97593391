package nodeupgrade

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
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
)

// await asks until there is no error for the time of hold without a break; see sequence.Wait.
func (u *upgrade) await(ctx context.Context, limit, hold time.Duration, ask func(context.Context) error) error {
	return sequence.Wait{Clock: u.Clock, Limit: limit, Hold: hold, Interval: pollInterval}.Await(ctx, ask)
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
