package host

import (
	"context"
	"fmt"
	"strings"
)

// Programs are the programs of a host.
type Programs struct {
	files  *Files
	system System
}

// Run runs a program and discards its output.
func (p *Programs) Run(ctx context.Context, args ...string) error {
	_, err := p.Output(ctx, args...)
	return err
}

// Output runs a program and returns its standard output.
func (p *Programs) Output(ctx context.Context, args ...string) (string, error) {
	out, err := p.system.Run(ctx, Command{Args: args})
	if err != nil {
		return "", fmt.Errorf("running %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// Find returns the first of names that is an executable of the host, or "".
func (p *Programs) Find(names ...string) string {
	for _, name := range names {
		for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/lib/systemd", "/lib/systemd"} {
			info, err := p.files.Stat(dir + "/" + name)
			if err == nil && info != nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return name
			}
		}
	}
	return ""
}

// System runs programs of the host.
type System interface {
	// Run runs a program to its end and returns what it wrote to standard
	// output. A status other than 0 is an error that quotes standard error.
	Run(ctx context.Context, command Command) (string, error)
}

// Command is a program with its arguments; no shell is involved.
type Command struct {
	Args  []string
	Stdin string
}

// Relabel sets the SELinux label of a new file on hosts with SELinux.
func (p *Programs) Relabel(ctx context.Context, target string) error {
	if !p.files.Exists("/sys/fs/selinux/enforce") || p.Find("restorecon") == "" {
		return nil
	}
	return p.Run(ctx, "restorecon", target)
}

// Environment returns the environment of scripts: that of the agent without the
// variables for the agent itself. It always has HOME, which kubeadm and kubectl
// need, and UTF-8 is the default locale.
func Environment(own []string) []string {
	env := make([]string, 0, len(own)+2)
	set := map[string]bool{}
	for _, pair := range own {
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID",
			"INVOCATION_ID", "JOURNAL_STREAM", "MAINPID", "CREDENTIALS_DIRECTORY", "STATE_DIRECTORY",
			"GOMEMLIMIT", "GOGC", "GOMAXPROCS", "GODEBUG", "INSTANCE_ID":
			continue
		}
		set[name] = value != ""
		env = append(env, pair)
	}
	if !set["HOME"] {
		env = append(env, "HOME=/root")
	}
	// Python's coercion of the C locale (PEP 538) gives this to commands.
	if !set["LC_ALL"] && !set["LC_CTYPE"] && !set["LANG"] {
		env = append(env, "LC_CTYPE=C.UTF-8")
	}
	if !set["PATH"] {
		env = append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	return env
}

// RunCommand runs a program with standard input and returns its standard output.
func (p *Programs) RunCommand(ctx context.Context, c Command) (string, error) {
	return p.system.Run(ctx, c)
}
