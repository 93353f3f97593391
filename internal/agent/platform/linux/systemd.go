package linux

import (
	"context"
	"strings"
	"time"
)

// Time limits of systemd commands.
const (
	stopTimeout = 30 * time.Second
	killTimeout = 10 * time.Second
)

// systemd controls units.
type systemd struct{ runner }

// isLoaded reports whether systemd knows a unit.
func (s systemd) isLoaded(ctx context.Context, unit string) bool {
	return s.property(ctx, "LoadState", unit) == "loaded"
}

func (s systemd) isActive(ctx context.Context, unit string) bool {
	return s.property(ctx, "ActiveState", unit) == "active"
}

// property returns a property of a unit, or "" if it is unknown.
func (s systemd) property(ctx context.Context, property, unit string) string {
	state, err := s.output(ctx, commandTimeout, "systemctl", "show", "--property", property, "--value", unit)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(state)
}

// stop stops a unit. It kills the unit's processes if they do not end in time.
func (s systemd) stop(ctx context.Context, unit string) error {
	if s.run(ctx, stopTimeout, "systemctl", "stop", unit) == nil {
		return nil
	}
	_ = s.run(ctx, killTimeout, "systemctl", "kill", "--signal=KILL", unit)
	return s.run(ctx, killTimeout, "systemctl", "stop", unit)
}

func (s systemd) disable(ctx context.Context, unit string) error {
	return s.run(ctx, commandTimeout, "systemctl", "disable", unit)
}
