package files

import (
	"fmt"
	"io/fs"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
)

// CheckFiles returns an error for a file that cannot be written. users and groups
// are those that the document makes.
func CheckFiles(h *host.Host, c *bootstrapdata.Config, users, groups map[string]bool) error {
	for i, f := range c.Files {
		label := documentEntry(c, i)
		u, err := h.User(f.User)
		if err != nil {
			return err
		}
		g, err := h.Group(f.Group)
		if err != nil {
			return err
		}
		hint := "cloud-init would lose this file and all later ones"
		if c.Format == bootstrapdata.FormatIgnition {
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
		if err := checkExisting(h, c, label, f); err != nil {
			return err
		}
	}
	return nil
}

// checkExisting returns an error if the file that exists at the path of f cannot be
// replaced.
func checkExisting(h *host.Host, c *bootstrapdata.Config, label string, f bootstrapdata.File) error {
	_, info, err := (File{Path: f.Path}).target(h)
	if err != nil || c.Format != bootstrapdata.FormatIgnition {
		return err
	}
	path, node, err := (Link{bootstrapdata.Link{Path: f.Path}}).resolvePath(h)
	switch {
	case err != nil:
		return err
	case node != nil && node.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s: %s is a symbolic link, which Ignition would replace; name the file that it leads to", label, path)
	case f.New && info != nil:
		return fmt.Errorf("%s: there is a file of this name, and \"overwrite\" is not set", label)
	}
	return nil
}

// CheckNodes returns an error for a directory or link that cannot be made. users
// and groups are those that the document makes.
func CheckNodes(h *host.Host, c *bootstrapdata.Config, users, groups map[string]bool) error {
	for _, d := range c.Directories {
		info, err := h.Stat(d.Path)
		if err != nil {
			return err
		}
		switch {
		case info != nil && !info.IsDir():
			return fmt.Errorf("directory %s: there is a file of this name", d.Path)
		case info != nil && d.New:
			return fmt.Errorf("directory %s: it exists, and its contents are not removed on a running system; leave \"overwrite\" out", d.Path)
		}
		u, err := h.User(d.User)
		if err == nil && d.User != "" && u == nil && !users[d.User] {
			err = fmt.Errorf("directory %s: there is no user %q; make it with the document or in the image", d.Path, d.User)
		}
		if err != nil {
			return err
		}
		g, err := h.Group(d.Group)
		if err == nil && d.Group != "" && g == nil && !groups[d.Group] {
			err = fmt.Errorf("directory %s: there is no group %q; make it with the document or in the image", d.Path, d.Group)
		}
		if err != nil {
			return err
		}
	}
	for _, l := range c.Links {
		if err := (Link{l}).check(h); err != nil {
			return err
		}
	}
	return nil
}
