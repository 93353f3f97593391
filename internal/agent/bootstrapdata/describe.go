package bootstrapdata

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Describe writes to w what Apply would do with a Config, in order, for people. It
// leaves out the contents of files, passwords and keys, and redacts commands. The only
// errors are those of w.
func Describe(w io.Writer, c *Config) error {
	d := describer{bufio.NewWriter(w)}
	d.commands("Run before everything else, as one /bin/sh script:", c.BootCommands)
	d.files("Write files:", c.Files, false)
	d.storage(c)
	if c.HostName != nil {
		d.line("Set the host name to %s", c.HostName.Name)
	}
	d.accounts(c)
	if c.NTP != nil {
		d.line("Set the time from servers %s and pools %s (client: %s)", listed(c.NTP.Servers), listed(c.NTP.Pools), c.NTP.Client)
	}
	for _, dir := range c.Directories {
		d.line("Make directory %s (%s:%s, mode %04o)", dir.Path, owned(dir.User, dir.UID), owned(dir.Group, dir.GID), unixMode(dir.Mode))
	}
	d.files(deferredTitle(c), c.Files, true)
	for _, l := range c.Links {
		kind := "symbolic"
		if l.Hard {
			kind = "hard"
		}
		d.line("Make %s link %s to %s", kind, l.Path, l.Target)
	}
	d.units(c.Units)
	d.commands("Run, as one /bin/sh script:", c.Commands)
	d.scripts(c)
	switch {
	case c.Sentinel != "":
		d.line("Success: %s exists afterwards", c.Sentinel)
	case slices.ContainsFunc(c.Units, Unit.Starts):
		d.line("Success: every unit starts")
	case len(c.Scripts) > 0:
		d.line("Success: every script succeeds")
	case len(c.Commands) > 0:
		d.line("Success: the script's last command succeeds")
	default:
		d.line("Success: everything above succeeds")
	}
	if err := d.w.Flush(); err != nil {
		return fmt.Errorf("writing the description: %w", err)
	}
	return nil
}

type describer struct{ w *bufio.Writer }

// line ignores errors, because Flush returns the first error.
func (d describer) line(format string, args ...any) { _, _ = fmt.Fprintf(d.w, format+"\n", args...) }

func listed(items []string) string {
	if len(items) == 0 {
		return "none"
	}
	return strings.Join(items, ", ")
}

func (d describer) commands(title string, commands []Command) {
	if len(commands) == 0 {
		return
	}
	d.line("%s", title)
	for _, c := range commands {
		text := redacted(strings.TrimRight(c.String(), "\n"))
		d.line("  %s", strings.ReplaceAll(text, "\n", "\n  "))
	}
}

func (d describer) scripts(c *Config) {
	names := make([]string, 0, len(c.Scripts)+1)
	for _, s := range c.Scripts {
		d.line("Run the script %s:", s.Name)
		text := strings.TrimRight(redacted(s.Body), "\n")
		d.line("  %s", strings.ReplaceAll(text, "\n", "\n  "))
		names = append(names, s.Name)
	}
	if len(c.Commands) > 0 {
		names = append(names, RuncmdScript)
	}
	if len(names) > 1 {
		slices.Sort(names)
		d.line("Order of the scripts: %s", strings.Join(names, ", "))
	}
}

func (d describer) files(title string, files []File, deferred bool) {
	for _, f := range files {
		if f.Defer != deferred {
			continue
		}
		if title != "" {
			d.line("%s", title)
			title = ""
		}
		what := ""
		if f.Append {
			what = ", appended"
		}
		mode := fmt.Sprintf("%04o", unixMode(f.Mode))
		d.line("  %s (%s:%s, mode %s, %d bytes%s)", f.Path, owned(f.User, f.UID), owned(f.Group, f.GID), mode, len(f.Content), what)
	}
}

func deferredTitle(c *Config) string {
	if c.Format == FormatIgnition {
		return "Write files:"
	}
	return "Write deferred files:"
}

func (d describer) units(units []Unit) {
	for _, u := range units {
		switch {
		case u.Mask:
			d.line("Mask and stop unit %s", u.Name)
		case u.Disable:
			d.line("Disable and stop unit %s", u.Name)
		case u.Awaited:
			d.line("Start unit %s, wait for its success, and enable it", u.Name)
		case u.Starts():
			d.line("Start and enable unit %s", u.Name)
		case u.Enable:
			d.line("Enable unit %s", u.Name)
		case u.Changed:
			d.line("Restart unit %s where it runs", u.Name)
		}
	}
}

func owned(name string, id *int) string {
	if id != nil {
		return strconv.Itoa(*id)
	}
	return orSame(name)
}

func orSame(name string) string {
	if name == "" {
		return "(unchanged)"
	}
	return name
}

func (d describer) storage(c *Config) {
	for _, disk := range c.Disks {
		switch {
		case disk.Remove:
			d.line("Remove the partition table of %s", disk.Device)
		case disk.Whole:
			d.line("Partition %s (%s) as a whole%s", disk.Device, disk.TableType, overwriting(disk.Overwrite))
		default:
			d.line("Partition %s (%s) into %d%s", disk.Device, disk.TableType, len(disk.Partitions), overwriting(disk.Overwrite))
		}
	}
	for _, f := range c.Filesystems {
		if f.Command != "" {
			d.line("Make a file system on %s with: %s", f.Device, redacted(f.Command))
			continue
		}
		d.line("Make a file system %s labelled %q on %s, partition %s%s", f.Type, f.Label, f.Device, f.Partition, overwriting(f.Overwrite))
	}
	for _, m := range c.Mounts {
		d.line("Mount %s at %s (%s, %s)", m.Device, m.Point, m.Type, redacted(m.Options))
	}
}

func overwriting(yes bool) string {
	if yes {
		return ", overwriting what is there"
	}
	return ""
}

func (d describer) accounts(c *Config) {
	for _, g := range c.Groups {
		d.line("Make group %s with members %s", g.Name, listed(g.Members))
	}
	for _, u := range c.Users {
		password := "without password"
		switch {
		case u.Lock:
			password = "password locked"
		case u.Password != "" && u.Password != "*" || u.HashedPassword != "" && u.HashedPassword != "*" || u.PlainPassword != "":
			password = "with password"
		}
		sudo := "no sudo"
		if len(u.Sudo) > 0 {
			sudo = fmt.Sprintf("%d sudo rules", len(u.Sudo))
		}
		d.line("Make user %s (groups %s, %s, %s, %d SSH keys)", u.Name, listed(u.Groups), password, sudo, len(u.SSHKeys))
	}
	if len(c.RootSSHKeys) > 0 {
		d.line("Add %d SSH keys to user root", len(c.RootSSHKeys))
	}
	for _, p := range c.Passwords {
		d.line("Set the password of user %s", p.User)
	}
}

// unixMode returns a mode with the bits of chmod(1), such as 01777.
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	if mode&fs.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if mode&fs.ModeSetuid != 0 {
		bits |= 0o4000
	}
	return bits
}
