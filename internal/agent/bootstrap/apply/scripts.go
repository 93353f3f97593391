package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/script"
)

// scriptStep runs a script, exactly once.
type scriptStep struct {
	label, body string
	// direct is set for a script that names its own interpreter.
	direct bool
	// boot is set for bootcmd, whose status does not matter.
	boot bool
	// more is set where other final scripts follow: the last one gives the
	// verdict about all.
	more     bool
	sentinel string
}

// finalScripts are runcmd and the document's scripts in the order of their
// names, as in cloud-init's directory of scripts.
func finalScripts(c *bootstrap.Config) []step {
	var scripts []scriptStep
	for _, s := range c.Scripts {
		scripts = append(scripts, scriptStep{label: "script " + s.Name, body: s.Body, direct: true})
	}
	if len(c.Commands) > 0 {
		at, _ := slices.BinarySearchFunc(c.Scripts, "runcmd", func(s bootstrap.ScriptFile, name string) int { return cmp.Compare(s.Name, name) })
		scripts = slices.Insert(scripts, at, scriptStep{label: "runcmd", body: bootstrap.Script(c.Commands)})
	}
	var steps []step
	for i, s := range scripts {
		s.sentinel, s.more = c.Sentinel, i < len(scripts)-1
		steps = append(steps, s)
	}
	return steps
}

// scriptError is a script that failed; output is what it printed.
type scriptError struct {
	error
	output []byte
}

func (e *scriptError) Unwrap() error { return e.error }

func (s scriptStep) name() string { return s.label }

func (s scriptStep) dir(h *host) string {
	return filepath.Join(h.opts.Dir, "scripts", strings.ReplaceAll(s.label, " ", "-"))
}

func (s scriptStep) prepare(_ context.Context, h *host, _ *Intent) error {
	if err := os.MkdirAll(filepath.Join(h.opts.Dir, "scripts"), 0o700); err != nil {
		return fmt.Errorf("making the directory for scripts: %w", err)
	}
	spec := script.Spec{Body: s.body, Direct: s.direct, WorkDir: "/", Env: environment(os.Environ())}
	if s.boot && h.opts.InstanceID != "" {
		spec.Env = append(spec.Env, "INSTANCE_ID="+h.opts.InstanceID)
	}
	if s.sentinel != "" {
		spec.Sentinel = h.real(s.sentinel)
	}
	return script.Prepare(s.dir(h), spec)
}

func (s scriptStep) execute(ctx context.Context, h *host, _ *Intent) error {
	result, err := script.Run(ctx, s.dir(h), h.opts.Runner...)
	if err != nil && !errors.Is(err, ErrInterrupted) {
		return err
	}
	output, readErr := script.Output(s.dir(h))
	switch {
	case err != nil:
		return &scriptError{errors.Join(err, readErr), output}
	case result.Problem != "":
		return fmt.Errorf("running the script: %s", result.Problem)
	case s.boot && result.ExitCode != 0:
		h.warn("bootcmd ended with status %d, which does not fail the bootstrap", result.ExitCode)
		return nil
	case s.boot:
		return nil
	}
	return s.verdict(h, result, output)
}

// verdict judges the last script together with those before it, which only
// leave a note.
func (s scriptStep) verdict(h *host, result script.Result, output []byte) error {
	p := &h.progress
	p.Sentinel = p.Sentinel || result.Sentinel
	var err error
	switch {
	case s.sentinel != "" && !result.Sentinel:
		err = fmt.Errorf("the script ended with status %d and did not write %s", result.ExitCode, s.sentinel)
	case result.ExitCode != 0:
		err = fmt.Errorf("the script ended with status %d", result.ExitCode)
	}
	switch {
	case s.more && result.ExitCode != 0:
		h.warn("%s ended with status %d, and the scripts after it ran all the same", s.label, result.ExitCode)
		if p.Failed == nil {
			p.Failed = &Outcome{Step: s.label, Reason: err.Error(), Output: bootstrap.Tail(string(output), bootstrap.MaxTail)}
		}
		return nil
	case s.more:
		return nil
	case s.sentinel != "" && p.Sentinel:
		if result.ExitCode != 0 {
			h.warn("%s wrote %s but ended with status %d", s.label, s.sentinel, result.ExitCode)
		}
		return nil
	case err == nil && p.Failed == nil:
		return nil
	case p.Failed != nil:
		return &scriptError{fmt.Errorf("%s: %s", p.Failed.Step, p.Failed.Reason), []byte(p.Failed.Output)}
	}
	return &scriptError{err, output}
}

// environment is what scripts get of the agent's environment: without what is
// meant for the agent alone, with HOME, which kubeadm and kubectl want, and in
// UTF-8 where nothing else is said.
func environment(own []string) []string {
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
	// What Python's coercion of the C locale (PEP 538) hands to commands.
	if !set["LC_ALL"] && !set["LC_CTYPE"] && !set["LANG"] {
		env = append(env, "LC_CTYPE=C.UTF-8")
	}
	if !set["PATH"] {
		env = append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	return env
}

// sentinelStep removes what an earlier bootstrap left, so that the file tells
// about this one.
type sentinelStep struct{ path string }

func (s sentinelStep) name() string { return "clear " + s.path }

func (s sentinelStep) prepare(_ context.Context, h *host, _ *Intent) error {
	target, err := h.resolve(s.path)
	if err != nil {
		return err
	}
	h.keepDirs(filepath.Dir(target))
	h.manifest().Files = add(h.manifest().Files, target)
	return nil
}

func (s sentinelStep) execute(_ context.Context, h *host, _ *Intent) error {
	target, err := h.resolve(s.path)
	if err != nil {
		return err
	}
	if err := os.Remove(h.real(target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing an earlier bootstrap's %s: %w", s.path, err)
	}
	return nil
}
