package accounts

import (
	"cmp"
	"context"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// Password is the step that sets the password of a user.
type Password struct{ bootstrapdata.Password }

// Title implements step.Step.
func (s Password) Title() string { return "password of " + s.User }

// Prepare implements step.Step.
func (s Password) Prepare(_ context.Context, e *step.Execution, _ *journal.Intent) error {
	return recordPassword(e, s.User)
}

// Execute implements step.Step.
func (s Password) Execute(ctx context.Context, e *step.Execution, _ *journal.Intent) error {
	if err := setPassword(ctx, e.Host, s.User, s.Value, s.Hashed); err != nil {
		return err
	}
	if s.Expire {
		return e.Run(ctx, "passwd", "--expire", s.User)
	}
	return nil
}

// setPassword passes the password by standard input, because all users can read command
// lines.
func setPassword(ctx context.Context, h *host.Host, name, value string, hashed bool) error {
	c := host.Command{Args: []string{"chpasswd"}, Stdin: name + ":" + value + "\n"}
	if hashed {
		c.Args = append(c.Args, "-e")
	}
	if _, err := h.RunCommand(ctx, c); err != nil {
		return fmt.Errorf("setting the password of user %s: %w", name, err)
	}
	return nil
}

// recordPassword records the password of a user that the bootstrap did not make.
func recordPassword(e *step.Execution, name string) error {
	m := e.Manifest()
	for _, made := range m.Users {
		if made.Name == name {
			return nil
		}
	}
	for _, recorded := range m.Passwords {
		if recorded.Name == name {
			return nil
		}
	}
	entry, err := e.Entry("/etc/shadow", name)
	if err != nil || entry == nil {
		return err
	}
	m.Passwords = append(m.Passwords, journal.Password{Name: name, Hash: entry[1], Changed: entry[2]})
	return nil
}

// restorePassword sets a password and the day of its last change as they were before.
func restorePassword(ctx context.Context, h *host.Host, p journal.Password) error {
	u, err := h.User(p.Name)
	if u == nil || err != nil {
		return err
	}
	if p.Hash == "" {
		err = h.Run(ctx, "passwd", "--delete", p.Name)
	} else {
		err = setPassword(ctx, h, p.Name, p.Hash, true)
	}
	if err != nil {
		return err
	}
	return h.Run(ctx, "chage", "--lastday", cmp.Or(p.Changed, "-1"), p.Name)
}
