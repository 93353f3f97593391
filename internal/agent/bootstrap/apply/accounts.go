package apply

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

type account struct {
	uid, gid int
	home     string
}

// entry finds a line of passwd(5), group(5) or shadow(5) by name. The agent is
// a static binary, so only local files count.
func (h *host) entry(file, name string) ([]string, error) {
	text, err := h.read(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if fields := strings.Split(line, ":"); fields[0] == name && len(fields) > 2 {
			return fields, nil
		}
	}
	return nil, nil
}

// user returns nil for a user that does not exist.
func (h *host) user(name string) (*account, error) {
	fields, err := h.entry("/etc/passwd", name)
	if err != nil || len(fields) < 6 {
		return nil, err
	}
	a := &account{home: fields[5]}
	if a.uid, err = strconv.Atoi(fields[2]); err == nil {
		a.gid, err = strconv.Atoi(fields[3])
	}
	if err != nil {
		return nil, fmt.Errorf("reading /etc/passwd: the entry of %s is damaged: %w", name, err)
	}
	return a, nil
}

// group returns nil for a group that does not exist; only gid is set.
func (h *host) group(name string) (*account, error) {
	fields, err := h.entry("/etc/group", name)
	if err != nil || fields == nil {
		return nil, err
	}
	gid, err := strconv.Atoi(fields[2])
	if err != nil {
		return nil, fmt.Errorf("reading /etc/group: the entry of %s is damaged: %w", name, err)
	}
	return &account{gid: gid}, nil
}

type groupStep struct{ bootstrap.Group }

func (s groupStep) name() string { return "group " + s.Name }

func (s groupStep) prepare(_ context.Context, h *host, in *Intent) error {
	return h.recordGroup(s.Name, in)
}

func (h *host) recordGroup(name string, in *Intent) error {
	g, err := h.group(name)
	if err != nil {
		return err
	}
	if in.Existed = g != nil; !in.Existed {
		h.manifest().Groups = add(h.manifest().Groups, name)
	}
	return nil
}

func (s groupStep) execute(ctx context.Context, h *host, _ *Intent) error {
	var options []string
	if s.GID != "" {
		options = append(options, "--gid", s.GID)
	}
	if s.System {
		options = append(options, "--system")
	}
	if err := h.makeGroup(ctx, s.Name, options...); err != nil {
		return err
	}
	for _, member := range s.Members {
		u, err := h.user(member)
		if err != nil {
			return err
		}
		if u == nil {
			h.warn("group %s: the user %s does not exist yet and is not added; name the group with the user instead", s.Name, member)
			continue
		}
		if err := h.run(ctx, "usermod", "-a", "-G", s.Name, member); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) makeGroup(ctx context.Context, name string, options ...string) error {
	g, err := h.group(name)
	if err != nil || g != nil {
		return err
	}
	return h.run(ctx, slices.Concat([]string{"groupadd"}, options, []string{name})...)
}

// userSteps make a user, then what cloud-init also does for one that existed.
func userSteps(u bootstrap.User) []step {
	steps := []step{userStep{u}}
	if len(u.Sudo) > 0 {
		steps = append(steps, sudoStep(u))
	}
	if len(u.SSHKeys) > 0 {
		steps = append(steps, keysStep{u})
	}
	return steps
}

type userStep struct{ bootstrap.User }

func (s userStep) name() string { return "user " + s.Name }

func (s userStep) wantsHome() bool { return !s.NoCreateHome && (!s.System || s.Plain) }

func (s userStep) home() string {
	if s.HomeDir != "" {
		return s.HomeDir
	}
	return "/home/" + s.Name
}

// missingGroups are the groups that are made along with the user; a primary
// group counts only together with others, as with cloud-init.
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

func (s userStep) prepare(_ context.Context, h *host, in *Intent) error {
	u, err := h.user(s.Name)
	if err != nil {
		return err
	}
	m := h.manifest()
	if in.Existed = u != nil; in.Existed {
		shadow, err := h.entry("/etc/shadow", s.Name)
		if err != nil {
			return err
		}
		if s.Lock && shadow != nil && !strings.HasPrefix(shadow[1], "!") {
			m.Locked = add(m.Locked, s.Name)
		}
		return nil
	}
	for _, g := range s.missingGroups() {
		if err := h.recordGroup(g, &Intent{}); err != nil {
			return err
		}
	}
	m.Users = append(m.Users, MadeUser{Name: s.Name, Home: s.wantsHome() && !h.exists(s.home())})
	return nil
}

func (s userStep) execute(ctx context.Context, h *host, in *Intent) error {
	if !in.Existed {
		if err := s.make(ctx, h); err != nil {
			return err
		}
	}
	passwords := []struct{ value, option string }{{s.PlainPassword, ""}, {s.HashedPassword, "-e"}}
	if !in.Existed {
		passwords = append([]struct{ value, option string }{{s.Password, "-e"}}, passwords...)
	}
	for _, p := range passwords {
		if p.value == "" {
			continue
		}
		c := Command{Args: []string{"chpasswd"}, Stdin: s.Name + ":" + p.value + "\n"}
		if p.option != "" {
			c.Args = append(c.Args, p.option)
		}
		if _, err := h.opts.System.Run(ctx, c); err != nil {
			return fmt.Errorf("setting the password of user %s: %w", s.Name, err)
		}
	}
	if s.Lock {
		return h.run(ctx, "usermod", "--lock", s.Name)
	}
	return nil
}

func (s userStep) make(ctx context.Context, h *host) error {
	for _, g := range s.missingGroups() {
		if err := h.makeGroup(ctx, g); err != nil {
			return err
		}
	}
	u, err := h.user(s.Name)
	if err != nil {
		return err
	}
	if u != nil {
		// An earlier process came this far. Where useradd was cut off before
		// the home directory was there, it is done again.
		if !s.wantsHome() || h.exists(u.home) {
			return nil
		}
		if err := h.run(ctx, "userdel", s.Name); err != nil {
			return err
		}
	}
	return h.run(ctx, s.useradd()...)
}

// useradd leaves the password out: a command line can be read by everybody.
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

// sudoersPath is where cloud-init collects the rules of its users.
const sudoersPath = "/etc/sudoers.d/90-cloud-init-users"

func sudoStep(u bootstrap.User) step {
	var rules strings.Builder
	rules.WriteString("\n# User rules for " + u.Name + "\n")
	for _, rule := range u.Sudo {
		rules.WriteString(u.Name + " " + rule + "\n")
	}
	block := []byte(rules.String())
	return fileStep{
		label: "sudo " + u.Name, path: sudoersPath, user: "root", group: "root", mode: 0o440, dirMode: 0o750,
		compute: func(old []byte, exists bool) []byte {
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

// keysStep adds SSH keys to a user's authorized_keys.
type keysStep struct{ bootstrap.User }

func (s keysStep) name() string { return "ssh keys " + s.Name }

// file is known only once the user exists. A link below the home directory is
// refused: its owner could point it at a file that is none of theirs.
func (s keysStep) file(h *host) (fileStep, *account, error) {
	u, err := h.user(s.Name)
	if err == nil && u == nil {
		err = fmt.Errorf("there is no user %s", s.Name)
	}
	if err != nil {
		return fileStep{}, nil, err
	}
	home, err := h.resolve(u.home)
	if err != nil {
		return fileStep{}, nil, err
	}
	path := filepath.Join(home, ".ssh", "authorized_keys")
	place, err := h.resolve(path)
	if err == nil && place != path {
		err = fmt.Errorf("writing the keys of user %s: %s leads elsewhere by a symbolic link; remove the link", s.Name, path)
	}
	if err != nil {
		return fileStep{}, nil, err
	}
	return fileStep{label: s.name(), path: path, mode: 0o600, dirMode: 0o700, compute: s.compute}, u, nil
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

func (s keysStep) prepare(ctx context.Context, h *host, in *Intent) error {
	f, _, err := s.file(h)
	if err != nil {
		return err
	}
	return f.prepare(ctx, h, in)
}

func (s keysStep) execute(ctx context.Context, h *host, in *Intent) error {
	f, u, err := s.file(h)
	if err != nil {
		return err
	}
	if err := h.mkdirs(filepath.Dir(f.path), f.dirMode, u.uid, u.gid); err != nil {
		return err
	}
	return f.write(ctx, h, in, u.uid, u.gid)
}
