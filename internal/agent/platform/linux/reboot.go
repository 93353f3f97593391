package linux

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// Times to wait for a reboot before the next, stronger attempt.
const (
	rebootWait       = 2 * time.Minute
	forcedRebootWait = time.Minute
)

// agentUnit must start after the reboot, or the agent's operation never ends.
const agentUnit = "elemental-agent.service"

// rebooter reboots the host and identifies its boots.
type rebooter struct {
	root   root
	runner runner
	clock  retry.Clock
}

// BootID returns an identifier that is the same until the next boot. It is a
// file in memory, not the kernel's boot ID, because all containers of a machine
// share the kernel's.
func (r rebooter) BootID() (string, error) {
	name := RuntimeDir + "/boot-id"
	data, err := os.ReadFile(r.root.path(name))
	if err == nil && len(strings.TrimSpace(string(data))) > 0 {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the boot ID: %w", err)
	}
	if err := os.MkdirAll(r.root.path(RuntimeDir), 0o750); err != nil {
		return "", fmt.Errorf("creating %s: %w", RuntimeDir, err)
	}
	id := rand.Text()
	if err := durable.WriteFile(r.root.path(name), []byte(id+"\n"), 0o644); err != nil {
		return "", fmt.Errorf("writing the boot ID: %w", err)
	}
	return id, nil
}

// Reboot reboots the host, by force if it does not shut down otherwise. It
// refuses to reboot if the agent would not start again, because the operation
// that requested the reboot would never be finished.
func (r rebooter) Reboot(ctx context.Context) error {
	enabled, err := r.runner.output(ctx, commandTimeout, "systemctl", "is-enabled", agentUnit)
	if state := strings.TrimSpace(enabled); state != "enabled" {
		if state == "" && err != nil {
			return err
		}
		return fmt.Errorf("%s is %s and would not go on after a reboot: enable it", agentUnit, state)
	}
	var failures []error
	for _, attempt := range []struct {
		args []string
		wait time.Duration
	}{
		{[]string{"systemctl", "--no-wall", "reboot"}, rebootWait},
		{[]string{"systemctl", "--no-wall", "--force", "reboot"}, forcedRebootWait},
		// This command ends no processes and unmounts nothing, because processes and
		// mounts may hang without their hardware or server. It still writes buffers
		// to disk.
		{[]string{"systemctl", "--no-wall", "--force", "--force", "reboot"}, forcedRebootWait},
	} {
		if err := r.runner.run(ctx, commandTimeout, attempt.args...); err != nil {
			// The next attempt needs less of systemd, which may not respond.
			failures = append(failures, err)
			continue
		}
		if err := r.clock.Wait(ctx, attempt.wait); err != nil {
			return err
		}
	}
	return errors.Join(append(failures, errors.New("the host was told to reboot and is still running"))...)
}
