package accounts

import (
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
)

// Declared returns the names of the users and groups that the document makes.
func Declared(c *bootstrapdata.Config) (users, groups map[string]bool) {
	users, groups = map[string]bool{}, map[string]bool{}
	for _, g := range c.Groups {
		groups[g.Name] = true
	}
	for _, u := range c.Users {
		users[u.Name], groups[u.Name] = true, true
		for _, g := range (userStep{u}).missingGroups() {
			groups[g] = true
		}
	}
	return users, groups
}

// Check returns an error for a user that cannot be made. groups are those
// that the document makes.
func Check(h *host.Host, c *bootstrapdata.Config, groups map[string]bool) error {
	for _, u := range c.Users {
		have, err := h.User(u.Name)
		if err != nil {
			return err
		}
		if have != nil {
			if u.Plain && !setsOnlyCredentials(u) {
				return fmt.Errorf("user %s exists on this host, and of such a user only the password and SSH keys are set; leave the other fields out", u.Name)
			}
			continue
		}
		for _, name := range append([]string{u.PrimaryGroup}, u.Groups...) {
			g, err := h.Group(name)
			if err != nil {
				return err
			}
			if name != "" && g == nil && !groups[name] {
				return fmt.Errorf("user %s: there is no group %q; make it with the document's groups", u.Name, name)
			}
		}
	}
	made, _ := Declared(c)
	for _, p := range c.Passwords {
		if u, err := h.User(p.User); err != nil {
			return err
		} else if u == nil && !made[p.User] {
			return fmt.Errorf("the user %q of chpasswd does not exist; make it with the document's users", p.User)
		}
	}
	return nil
}

// setsOnlyCredentials reports whether a document sets only the password and SSH keys of
// an existing user. Undo could not revert other changes.
func setsOnlyCredentials(u bootstrapdata.User) bool {
	return u.Gecos+u.HomeDir+u.Shell+u.PrimaryGroup+u.UID == "" && len(u.Groups) == 0
}
