package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// tail is the maximum number of log bytes in an error.
const tail = 2000

// Spec is a program to run.
type Spec struct {
	// Name is its name in messages.
	Name string
	// Path is its file; Args are its arguments without the program name.
	Path string
	Args []string
	// Env is its complete environment: it inherits nothing.
	Env []string
	// Dir is the folder it runs in.
	Dir string
	// Log is the file for its output.
	Log string
}

// Process is a started program. It is safe for concurrent use.
type Process struct {
	name, log string
	pid       int
	asked     atomic.Bool
	done      chan struct{}
	err       error
}

// Start starts a program.
func Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the log of %s: %w", spec.Name, err)
	}
	p := &Process{name: spec.Name, log: spec.Log, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer func() { _ = log.Close() }()
		p.run(spec, log, started)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	return p, nil
}

// run keeps its thread while the program runs: the kernel sends the parent-death signal at the end of the thread that
// started the program, not at the end of the process.
func (p *Process) run(spec Spec, log io.Writer, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := &exec.Cmd{
		Path: spec.Path, Args: append([]string{spec.Path}, spec.Args...), Env: append([]string{}, spec.Env...), Dir: spec.Dir,
		Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	started <- nil
	err := cmd.Wait()
	// The remaining processes of its group.
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	if !p.asked.Load() {
		p.err = p.explain(err)
	}
	close(p.done)
}

// Name returns its name in messages.
func (p *Process) Name() string { return p.name }

// PID returns its process ID.
func (p *Process) PID() int { return p.pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns why the program ended unexpectedly. It is nil while the program runs and after Stop or Kill.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Stop terminates the program, kills it after grace, and returns when it has ended. It reports whether it killed the
// program.
func (p *Process) Stop(grace time.Duration) (killed bool) {
	p.asked.Store(true)
	p.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return false
	case <-timer.C:
	}
	p.signal(syscall.SIGKILL)
	<-p.done
	return true
}

// Kill kills the program and returns when it has ended.
func (p *Process) Kill() {
	p.asked.Store(true)
	p.signal(syscall.SIGKILL)
	<-p.done
}

// signal sends a signal to the program, not to its children. It does nothing after the program's end, when the kernel may
// have reused the process ID.
func (p *Process) signal(s syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(p.pid, s)
	}
}

// explain returns an error with the program's exit status and the end of its log.
func (p *Process) explain(err error) error {
	how := "exit status 0"
	if err != nil {
		how = err.Error()
	}
	text, err := end(p.log)
	if err != nil {
		return fmt.Errorf("%s ended by itself (%s): %w", p.name, how, err)
	}
	return fmt.Errorf("%s ended by itself (%s); the end of %s:\n%s", p.name, how, p.log, text)
}

// end returns complete lines from the end of a file.
func end(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("reading its log: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("reading its log: %w", err)
	}
	from := max(info.Size()-tail, 0)
	text, err := io.ReadAll(io.NewSectionReader(f, from, tail))
	if err != nil {
		return "", fmt.Errorf("reading its log: %w", err)
	}
	out := string(text)
	if _, rest, ok := strings.Cut(out, "\n"); ok && from > 0 {
		out = rest
	}
	return strings.TrimSpace(out), nil
}
