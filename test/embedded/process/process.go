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

// tail is how many bytes of a log an error quotes at most.
const tail = 2000

// Spec is a program to run.
type Spec struct {
	// Name is what a person calls it.
	Name string
	// Path is its file; Args are its arguments, without the program itself.
	Path string
	Args []string
	// Env is its whole environment: nothing is inherited.
	Env []string
	// Dir is the folder it runs in.
	Dir string
	// Log is the file that gets what it writes.
	Log string
}

// Process is a program that was started. Its methods may be called by several goroutines.
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

// run keeps its thread for as long as the program runs: it is the end of the thread that started a program, not that of
// the process, for which the kernel sends the signal.
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
	// What it left of its group.
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	if !p.asked.Load() {
		p.err = p.explain(err)
	}
	close(p.done)
}

// Name returns what a person calls it.
func (p *Process) Name() string { return p.name }

// PID returns its process ID.
func (p *Process) PID() int { return p.pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says, once the program has ended, why it ended without having been asked to.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Stop asks the program to end, kills it if it has not after grace, and returns when it has ended. It tells whether it
// had to be killed.
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

// Kill ends the program at once, without a chance to end in order, and returns when it has ended.
func (p *Process) Kill() {
	p.asked.Store(true)
	p.signal(syscall.SIGKILL)
	<-p.done
}

// signal reaches the program; its children, if any, are its own business until it ends. Once it has nothing is sent: the
// ID may be another's by then.
func (p *Process) signal(s syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(p.pid, s)
	}
}

// explain says how the program ended, with the end of its log.
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

// end returns whole lines from the end of a file.
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
