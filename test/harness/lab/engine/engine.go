package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// Label marks everything of a lab in Docker; its value is the lab's name.
const Label = "elemental-lab"

// Engine is Docker on this machine, as one lab sees it.
type Engine struct {
	// Lab is the lab's name. Containers are called "<lab>-<host>", the network "<lab>".
	Lab string
	// Daemon is the folder for the process ID and log of a dockerd that Prepare has started. All
	// labs share it.
	Daemon string
	// Runtime is the program that containers are started with; empty for runc.
	Runtime string
	// Progress reports steps that take long.
	Progress *shell.Progress
}

// Docker runs the docker client and returns its output.
func (e *Engine) Docker(ctx context.Context, args ...string) (string, error) {
	return shell.Run(ctx, append([]string{"docker"}, args...)...)
}

// Answers reports whether a Docker Engine responds.
func (e *Engine) Answers(ctx context.Context) bool {
	_, err := e.Docker(ctx, "version", "--format", "{{.Server.Version}}")
	return err == nil
}

// Prepare ensures that Docker responds and that the kernel's limits suffice. As root it installs
// Debian's package if Docker is missing, and it starts dockerd if none runs.
func (e *Engine) Prepare(ctx context.Context) error {
	if err := raiseLimits("/proc/sys/fs/inotify"); err != nil {
		return err
	}
	if e.Answers(ctx) {
		return e.checkRuntime(ctx)
	}
	if os.Getuid() != 0 {
		return errors.New("no Docker Engine answers, and only root can start one")
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		install := func() error { return Install(ctx, "docker.io", "iptables") }
		if err := e.Progress.Step("Installing docker.io", install); err != nil {
			return err
		}
	}
	return e.Progress.Step("Starting dockerd", func() error { return e.start(ctx) })
}

// Install installs Debian packages.
func Install(ctx context.Context, packages ...string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s is missing, and this is no Debian that it could be installed on", strings.Join(packages, ", "))
	}
	noninteractive := []string{"DEBIAN_FRONTEND=noninteractive"}
	update := shell.Command{Args: []string{"apt-get", "update", "--quiet"}, Env: noninteractive}
	if _, err := update.Run(ctx); err != nil {
		return fmt.Errorf("updating the package lists: %w", err)
	}
	args := append([]string{"apt-get", "install", "--quiet", "--yes", "--no-install-recommends"}, packages...)
	if _, err := (shell.Command{Args: args, Env: noninteractive}).Run(ctx); err != nil {
		return fmt.Errorf("installing packages: %w", err)
	}
	return nil
}

// start starts dockerd in a session of its own, so that it outlives this process, and waits until
// it responds.
func (e *Engine) start(ctx context.Context) error {
	if err := os.MkdirAll(e.Daemon, 0o750); err != nil {
		return fmt.Errorf("making the folder of dockerd: %w", err)
	}
	log, err := os.Create(filepath.Join(e.Daemon, "dockerd.log"))
	if err != nil {
		return fmt.Errorf("making the log of dockerd: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "dockerd", e.runtimeFlags()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting dockerd: %w", err)
	}
	if err := os.WriteFile(e.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return fmt.Errorf("noting the process of dockerd: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if e.Answers(ctx) {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("dockerd ended at once, see %s: %w", log.Name(), err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for dockerd, see %s: %w", log.Name(), ctx.Err())
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// runtimeName is the name of Runtime in Docker.
const runtimeName = Label

// runtimeFlags returns the flags of dockerd that select Runtime.
func (e *Engine) runtimeFlags() []string {
	if e.Runtime == "" {
		return nil
	}
	return []string{"--add-runtime", runtimeName + "=" + e.Runtime, "--default-runtime", runtimeName}
}

// checkRuntime returns an error if containers need Runtime and the dockerd that runs was started without it.
func (e *Engine) checkRuntime(ctx context.Context) error {
	if e.Runtime == "" {
		return nil
	}
	name, err := e.Docker(ctx, "info", "--format", "{{.DefaultRuntime}}")
	if err != nil {
		return fmt.Errorf("asking Docker for its runtime: %w", err)
	}
	if name != runtimeName {
		return fmt.Errorf("this machine allows no privileged containers without a runtime of the lab, and dockerd runs with %q: "+
			"stop dockerd, and the lab will start it with its own", name)
	}
	return nil
}

// Stop stops the dockerd that Prepare has started. It does nothing while a container runs, such as
// one of another lab.
func (e *Engine) Stop(ctx context.Context) error {
	if running, err := e.Docker(ctx, "ps", "--quiet"); err == nil && running != "" {
		return nil
	}
	text, err := os.ReadFile(e.pidFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the process of dockerd: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("reading the process of dockerd: %w", err)
	}
	running := func() bool {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return err == nil && strings.TrimSpace(string(name)) == "dockerd"
	}
	if running() {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			return fmt.Errorf("stopping dockerd: %w", err)
		}
	}
	for running() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for dockerd to end: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
	if err := os.Remove(e.pidFile()); err != nil {
		return fmt.Errorf("forgetting the process of dockerd: %w", err)
	}
	return nil
}

func (e *Engine) pidFile() string { return filepath.Join(e.Daemon, "dockerd.pid") }
