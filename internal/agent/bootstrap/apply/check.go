package apply

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

// checkStep finds out before anything is written what the host would refuse
// later: unknown owners, missing programs, directories in the way.
type checkStep struct{ *bootstrap.Config }

func (s checkStep) name() string { return "check" }

func (s checkStep) prepare(ctx context.Context, h *host, in *Intent) error {
	in.Skip = true
	for _, check := range []func(*host) error{s.files, s.nodes, s.accounts, s.programs} {
		if err := check(h); err != nil {
			return err
		}
	}
	return s.units(ctx, h)
}

// units finds units that are to be started and that nobody brings along.
func (s checkStep) units(ctx context.Context, h *host) error {
	for _, u := range s.Units {
		if !u.Starts() || u.Given {
			continue
		}
		state, err := h.unitProperty(ctx, u.Name, "LoadState")
		if err != nil {
			return err
		}
		if state == "not-found" || state == "masked" {
			return fmt.Errorf("unit %s is to be started and is %s on this host; install it in the image, or give its contents", u.Name, state)
		}
	}
	return nil
}

func (s checkStep) execute(context.Context, *host, *Intent) error { return nil }

func (s checkStep) files(h *host) error {
	users, groups := s.made()
	for i, f := range s.Files {
		label := fileLabel(s.Config, i)
		u, err := h.user(f.User)
		if err != nil {
			return err
		}
		g, err := h.group(f.Group)
		if err != nil {
			return err
		}
		hint := "cloud-init would lose this file and all later ones"
		if s.Format == bootstrap.FormatIgnition {
			hint = "make it with the document or in the image"
		}
		if !f.Defer && (users[f.User] || groups[f.Group]) {
			hint = "it is made only after the files are written; set \"defer: true\""
		}
		if f.User != "" && u == nil && (!f.Defer || !users[f.User]) {
			return fmt.Errorf("%s: there is no user %q; %s", label, f.User, hint)
		}
		if f.Group != "" && g == nil && (!f.Defer || !groups[f.Group]) {
			return fmt.Errorf("%s: there is no group %q; %s", label, f.Group, hint)
		}
		if err := s.place(h, label, f); err != nil {
			return err
		}
	}
	return nil
}

// place looks at what is where a file is to be.
func (s checkStep) place(h *host, label string, f bootstrap.File) error {
	_, info, err := (fileStep{path: f.Path}).target(h)
	if err != nil || s.Format != bootstrap.FormatIgnition {
		return err
	}
	place, node, err := (linkStep{bootstrap.Link{Path: f.Path}}).place(h)
	switch {
	case err != nil:
		return err
	case node != nil && node.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s: %s is a symbolic link, which Ignition would replace; name the file that it leads to", label, place)
	case f.New && info != nil:
		return fmt.Errorf("%s: there is a file of this name, and \"overwrite\" is not set", label)
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
			if u.Plain && !same(u) {
				return fmt.Errorf("user %s exists on this host, and of such a user only the password and SSH keys are set; leave the other fields out", u.Name)
			}
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

// same tells whether nothing is asked of a user that exists but what can be
// taken back.
func same(u bootstrap.User) bool {
	return u.Gecos+u.HomeDir+u.Shell+u.PrimaryGroup+u.UID == "" && len(u.Groups) == 0
}

// nodes looks at directories, links and units.
func (s checkStep) nodes(h *host) error {
	users, groups := s.made()
	for _, d := range s.Directories {
		info, err := h.stat(d.Path)
		if err != nil {
			return err
		}
		switch {
		case info != nil && !info.IsDir():
			return fmt.Errorf("directory %s: there is a file of this name", d.Path)
		case info != nil && d.New:
			return fmt.Errorf("directory %s: it exists, and its contents are not removed on a running system; leave \"overwrite\" out", d.Path)
		}
		u, err := h.user(d.User)
		if err == nil && d.User != "" && u == nil && !users[d.User] {
			err = fmt.Errorf("directory %s: there is no user %q; make it with the document or in the image", d.Path, d.User)
		}
		if err != nil {
			return err
		}
		g, err := h.group(d.Group)
		if err == nil && d.Group != "" && g == nil && !groups[d.Group] {
			err = fmt.Errorf("directory %s: there is no group %q; make it with the document or in the image", d.Path, d.Group)
		}
		if err != nil {
			return err
		}
	}
	for _, l := range s.Links {
		if err := (linkStep{l}).check(h); err != nil {
			return err
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
	if len(s.Units) > 0 {
		if err := need("systemd.units", "systemctl"); err != nil {
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
