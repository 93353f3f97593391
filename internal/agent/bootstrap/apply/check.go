package apply

import (
	"context"
	"fmt"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

// checkStep finds out before anything is written what the host would refuse
// later: unknown owners, missing programs, directories in the way.
type checkStep struct{ *bootstrap.Config }

func (s checkStep) name() string { return "check" }

func (s checkStep) prepare(_ context.Context, h *host, in *Intent) error {
	in.Skip = true
	for _, check := range []func(*host) error{s.files, s.accounts, s.programs} {
		if err := check(h); err != nil {
			return err
		}
	}
	return nil
}

func (s checkStep) execute(context.Context, *host, *Intent) error { return nil }

func (s checkStep) files(h *host) error {
	users, groups := s.made()
	for i, f := range s.Files {
		u, err := h.user(f.User)
		if err != nil {
			return err
		}
		g, err := h.group(f.Group)
		if err != nil {
			return err
		}
		hint := "cloud-init would lose this file and all later ones"
		if !f.Defer && (users[f.User] || groups[f.Group]) {
			hint = "it is made only after the files are written; set \"defer: true\""
		}
		if f.User != "" && u == nil && (!f.Defer || !users[f.User]) {
			return fmt.Errorf("write_files[%d] %s: there is no user %q; %s", i, f.Path, f.User, hint)
		}
		if f.Group != "" && g == nil && (!f.Defer || !groups[f.Group]) {
			return fmt.Errorf("write_files[%d] %s: there is no group %q; %s", i, f.Path, f.Group, hint)
		}
		if _, _, err := (fileStep{path: f.Path}).target(h); err != nil {
			return err
		}
	}
	return nil
}

// made are the users and groups that the document makes.
func (s checkStep) made() (users, groups map[string]bool) {
	users, groups = map[string]bool{}, map[string]bool{}
	for _, g := range s.Groups {
		groups[g.Name] = true
	}
	for _, u := range s.Users {
		users[u.Name], groups[u.Name] = true, true
		for _, g := range (userStep{u}).missingGroups() {
			groups[g] = true
		}
	}
	return users, groups
}

func (s checkStep) accounts(h *host) error {
	_, groups := s.made()
	for _, u := range s.Users {
		have, err := h.user(u.Name)
		if err != nil {
			return err
		}
		if have != nil {
			continue
		}
		for _, name := range append([]string{u.PrimaryGroup}, u.Groups...) {
			g, err := h.group(name)
			if err != nil {
				return err
			}
			if name != "" && g == nil && !groups[name] {
				return fmt.Errorf("user %s: there is no group %q; make it with the document's groups", u.Name, name)
			}
		}
	}
	return nil
}

func (s checkStep) programs(h *host) error {
	need := func(what string, names ...string) error {
		if h.program(names...) != "" {
			return nil
		}
		return fmt.Errorf("%s needs %s, which is not installed on this host", what, strings.Join(names, " or "))
	}
	if len(s.Users) > 0 {
		if err := need("making users", "useradd"); err != nil {
			return err
		}
	}
	if len(s.Disks) > 0 {
		if err := need("disk_setup", "sfdisk"); err != nil {
			return err
		}
	}
	for _, f := range s.Filesystems {
		if f.Command != "" {
			continue
		}
		if err := need("fs_setup", "mkfs."+f.Type, "mk"+f.Type); err != nil {
			return err
		}
	}
	if s.NTP != nil {
		if _, err := chooseNTP(h, s.NTP.Client); err != nil {
			return err
		}
	}
	return nil
}
