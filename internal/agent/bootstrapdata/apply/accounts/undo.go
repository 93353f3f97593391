package accounts

import (
	"context"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
)

// Remove removes the users and groups of a Manifest, unlocks the passwords that were
// locked, and restores those that were changed.
func Remove(ctx context.Context, h *host.Host, m journal.Manifest) []error {
	var errs []error
	for _, made := range slices.Backward(m.Users) {
		u, err := h.User(made.Name)
		if u != nil && err == nil {
			args := []string{"userdel", "--force"}
			if made.Home {
				args = append(args, "--remove")
				err = h.CheckNoMount(u.Home)
			}
			if err == nil {
				err = h.Run(ctx, append(args, made.Name)...)
			}
		}
		errs = append(errs, err)
	}
	for _, name := range slices.Backward(m.Groups) {
		g, err := h.Group(name)
		if g != nil && err == nil {
			err = h.Run(ctx, "groupdel", name)
		}
		errs = append(errs, err)
	}
	for _, name := range m.Locked {
		u, err := h.User(name)
		if u != nil && err == nil {
			err = h.Run(ctx, "usermod", "--unlock", name)
		}
		errs = append(errs, err)
	}
	for _, p := range m.Passwords {
		errs = append(errs, restorePassword(ctx, h, p))
	}
	return errs
}
