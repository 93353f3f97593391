package accounts

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/files"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// Group is the step that makes a group and adds existing users to it.
type Group struct{ bootstrapdata.Group }

// Title implements step.Step.
func (s Group) Title() string { return "group " + s.Name }

// Prepare implements step.Step.
func (s Group) Prepare(_ context.Context, e *step.Execution, in *journal.Intent) error {
	return recordGroup(e, s.Name, in)
}

func recordGroup(e *step.Execution, name string, in *journal.Intent) error {
	g, err := e.Group(name)
	if err != nil {
		return err
	}
	if in.Existed = g != nil; !in.Existed {
		e.Manifest().Groups = journal.AddOnce(e.Manifest().Groups, name)
	}
	return nil
}

// Execute implements step.Step.
func (s Group) Execute(ctx context.Context, e *step.Execution, _ *journal.Intent) error {
	var options []string
	if s.GID != "" {
		options = append(options, "--gid", s.GID)
	}
	if s.System {
		options = append(options, "--system")
	}
	if err := makeGroup(ctx, e.Host, s.Name, options...); err != nil {
		return err
	}
	for _, member := range s.Members {
		u, err := e.User(member)
		if err != nil {
			return err
		}
		if u == nil {
			e.Warn("group %s: the user %s does not exist yet and is not added; name the group with the user instead", s.Name, member)
			continue
		}
		if err := e.Run(ctx, "usermod", "-a", "-G", s.Name, member); err != nil {
			return err
		}
	}
	return nil
}

func makeGroup(ctx context.Context, h *host.Host, name string, options ...string) error {
	g, err := h.Group(name)
	if err != nil || g != nil {
		return err
	}
	return h.Run(ctx, slices.Concat([]string{"groupadd"}, options, []string{name})...)
}

// UserSteps returns the steps that make a user and set its sudo rules and SSH keys.
func UserSteps(u bootstrapdata.User) []step.Step {
	steps := []step.Step{userStep{u}}
	if len(u.Sudo) > 0 {
		steps = append(steps, sudoStep(u))
	}
	if len(u.SSHKeys) > 0 {
		steps = append(steps, keysStep{User: u})
	}
	return steps
}

type userStep struct{ bootstrapdata.User }

func (s userStep) Title() string { return "user " + s.Name }

func (s userStep) wantsHome() bool { return !s.NoCreateHome && (!s.System || s.Plain) }

func (s userStep) home() string {
	if s.HomeDir != "" {
		return s.HomeDir
	}
	return "/home/" + s.Name
}

// missingGroups returns the groups that are made with the user. As with cloud-init,
// a primary group is made only together with other groups.
func (s userStep) missingGroups() []string {
	if s.KeepGroups || len(s.Groups) == 0 {
		return nil
	}
	groups := append([]string{}, s.Groups...)
	if s.PrimaryGroup != "" {
		groups = append(groups, s.PrimaryGroup)
	}
	return groups
}

func (s userStep) Prepare(_ context.Context, e *step.Execution, in *journal.Intent) error {
	u, err := e.User(s.Name)
	if err != nil {
		return err
	}
	m := e.Manifest()
	if in.Existed = u != nil; in.Existed {
		shadow, err := e.Entry("/etc/shadow", s.Name)
		if err != nil {
			return err
		}
		if s.Lock && shadow != nil && !strings.HasPrefix(shadow[1], "!") {
			m.Locked = journal.AddOnce(m.Locked, s.Name)
		}
		if s.PlainPassword+s.HashedPassword != "" {
			return recordPassword(e, s.Name)
		}
		return nil
	}
	for _, g := range s.missingGroups() {
		if err := recordGroup(e, g, &journal.Intent{}); err != nil {
			return err
		}
	}
	m.Users = append(m.Users, journal.MadeUser{Name: s.Name, Home: s.wantsHome() && !e.Exists(s.home())})
	return nil
}

func (s userStep) Execute(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	if !in.Existed {
		if err := s.make(ctx, e); err != nil {
			return err
		}
	}
	type password struct {
		value  string
		hashed bool
	}
	passwords := []password{{s.PlainPassword, false}, {s.HashedPassword, true}}
	if !in.Existed {
		passwords = append([]password{{s.Password, true}}, passwords...)
	}
	for _, p := range passwords {
		if p.value == "" {
			continue
		}
		if err := setPassword(ctx, e.Host, s.Name, p.value, p.hashed); err != nil {
			return err
		}
	}
	if s.Lock {
		return e.Run(ctx, "usermod", "--lock", s.Name)
	}
	return nil
}

func (s userStep) make(ctx context.Context, e *step.Execution) error {
	for _, g := range s.missingGroups() {
		if err := makeGroup(ctx, e.Host, g); err != nil {
			return err
		}
	}
	u, err := e.User(s.Name)
	if err != nil {
		return err
	}
	if u != nil {
		// An earlier process made the user. If it was killed before useradd made
		// the home directory, the user is made again.
		if !s.wantsHome() || e.Exists(u.Home) {
			return nil
		}
		if err := e.Run(ctx, "userdel", s.Name); err != nil {
			return err
		}
	}
	return e.Run(ctx, s.useradd()...)
}

// useradd returns the command without the password, because all users can read
// command lines.
func (s userStep) useradd() []string {
	args := []string{"useradd", s.Name}
	for _, o := range []struct{ option, value string }{
		{"--comment", s.Gecos}, {"--expiredate", s.ExpireDate}, {"--groups", strings.Join(s.Groups, ",")},
		{"--home", s.HomeDir}, {"--inactive", s.Inactive}, {"--gid", s.PrimaryGroup},
		{"--selinux-user", s.SELinuxUser}, {"--shell", s.Shell}, {"--uid", s.UID},
	} {
		if o.value != "" {
			args = append(args, o.option, o.value)
		}
	}
	for _, f := range []struct {
		option string
		set    bool
	}{{"--no-log-init", s.NoLogInit}, {"--no-user-group", s.NoUserGroup}, {"--system", s.System}} {
		if f.set {
			args = append(args, f.option)
		}
	}
	if s.wantsHome() {
		return append(args, "-m")
	}
	return append(args, "-M")
}

// sudoersPath is the file in which cloud-init writes the rules of its users.
const sudoersPath = "/etc/sudoers.d/90-cloud-init-users"

func sudoStep(u bootstrapdata.User) step.Step {
	var rules strings.Builder
	rules.WriteString("\n# User rules for " + u.Name + "\n")
	for _, rule := range u.Sudo {
		rules.WriteString(u.Name + " " + rule + "\n")
	}
	block := []byte(rules.String())
	return files.File{
		Label: "sudo " + u.Name, Path: sudoersPath, User: "root", Group: "root", Mode: 0o440, DirMode: 0o750,
		Compute: func(old []byte, exists bool) []byte {
			switch {
			case !exists:
				old = []byte("# Created by elemental-agent for the users of the bootstrap data\n")
			case bytes.Contains(old, block):
				return old
			}
			return append(append([]byte{}, old...), block...)
		},
	}
}

// RootKeys returns the step that adds SSH keys to the user root.
func RootKeys(keys []string) step.Step {
	return keysStep{bootstrapdata.User{Name: "root", SSHKeys: keys}, " of ssh_authorized_keys"}
}

// keysStep adds SSH keys to a user's authorized_keys.
type keysStep struct {
	bootstrapdata.User
	// origin tells the title from that of a step for the same user.
	origin string
}

func (s keysStep) Title() string { return "ssh keys " + s.Name + s.origin }

// file returns the step that writes authorized_keys. The user must exist. A link
// below the home directory is an error: its owner could point it at a file of
// another user.
func (s keysStep) file(e *step.Execution) (files.File, *host.Account, error) {
	u, err := e.User(s.Name)
	if err == nil && u == nil {
		err = fmt.Errorf("there is no user %s", s.Name)
	}
	if err != nil {
		return files.File{}, nil, err
	}
	home, err := e.Resolve(u.Home)
	if err != nil {
		return files.File{}, nil, err
	}
	path := filepath.Join(home, ".ssh", "authorized_keys")
	resolved, err := e.Resolve(path)
	if err == nil && resolved != path {
		err = fmt.Errorf("writing the keys of user %s: %s leads elsewhere by a symbolic link; remove the link", s.Name, path)
	}
	if err != nil {
		return files.File{}, nil, err
	}
	return files.File{Label: s.Title(), Path: path, Mode: 0o600, DirMode: 0o700, Compute: s.compute}, u, nil
}

func (s keysStep) compute(old []byte, _ bool) []byte {
	have := map[string]bool{}
	for line := range strings.SplitSeq(string(old), "\n") {
		have[strings.TrimSpace(line)] = true
	}
	out := append([]byte{}, old...)
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	for _, key := range s.SSHKeys {
		if !have[key] {
			out = append(out, key+"\n"...)
		}
	}
	return out
}

func (s keysStep) Prepare(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	f, _, err := s.file(e)
	if err != nil {
		return err
	}
	return f.Prepare(ctx, e, in)
}

func (s keysStep) Execute(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	f, u, err := s.file(e)
	if err != nil {
		return err
	}
	if err := e.MakeDirs(filepath.Dir(f.Path), f.DirMode, u.UID, u.GID); err != nil {
		return err
	}
	return f.Write(ctx, e, in, u.UID, u.GID)
}
