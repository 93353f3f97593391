package forwarder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

const (
	// startTimeout bounds the start of the process.
	startTimeout = 15 * time.Second
	// endTimeout bounds its end, and endInterval is how often it is looked for.
	endTimeout  = 10 * time.Second
	endInterval = 10 * time.Millisecond
)

// maxReason bounds what a process says that does not start.
const maxReason = 4 << 10

// Manager starts, asks and ends the process of a state directory. One goroutine at a time
// may call Ensure and Stop.
type Manager struct {
	// Dir is the state directory. The caller writes the Document there.
	Dir string
	// Command is the command line that calls Main, its program by an absolute path; Dir is
	// appended.
	Command []string
}

// Ensure makes the process listen as the Document says, which has the given Config: it
// starts it, tells it of changes, has the one of another program hand over, and replaces
// one that does not answer.
func (m *Manager) Ensure(ctx context.Context, config Config) error {
	program, err := programOf(m.Command[0])
	if err != nil {
		return err
	}
	running, err := ask(ctx, m.Dir, verbReload)
	answers := running.Program != ""
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !answers && m.Running():
		err = m.kill(ctx)
	case answers && running.Config.Port != config.Port:
		err = m.Stop(ctx)
	case answers && running.Program == program:
		return err
	default:
		// It does not run, or hands over.
		err = nil
	}
	if err != nil {
		return err
	}
	return m.start(ctx)
}

// Running reports whether there is such a process.
func (m *Manager) Running() bool {
	lock, err := os.OpenFile(filepath.Join(m.Dir, lockName), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer func() { _ = lock.Close() }()
	return errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Watch returns when the process no longer accepts connections, because it has ended or
// handed over, and when ctx ends. It calls watching when it has found the process, and
// returns an error if it finds no process.
func (m *Manager) Watch(ctx context.Context, watching func()) error {
	conn, err := connect(ctx, m.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := send(conn, verbWatch); err != nil {
		return err
	}
	from := json.NewDecoder(conn)
	if _, err := decode(from); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	watching()
	_, _ = io.Copy(io.Discard, conn)
	return nil
}

// Stop ends the process and its predecessors, and removes what they left in the state
// directory. It returns nil if there was none.
func (m *Manager) Stop(ctx context.Context) error {
	if m.Running() {
		// One that does not answer is killed.
		_, _ = ask(ctx, m.Dir, verbStop)
		if m.awaitEnd(ctx) != nil {
			if err := m.kill(ctx); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{socketName, lockName} {
		if err := os.Remove(filepath.Join(m.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing what the endpoint's forwarder left: %w", err)
		}
	}
	return nil
}

// start starts a process, and returns when it accepts connections.
func (m *Manager) start(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe for the endpoint's forwarder: %w", err)
	}
	defer func() { _ = r.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), m.Command[0], append(slices.Clone(m.Command[1:]), m.Dir)...)
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles = "/", os.Stderr, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		return fmt.Errorf("starting the endpoint's forwarder: %w", err)
	}
	// It outlives this process, or this process outlives it.
	go func() { _ = cmd.Wait() }()
	if err := r.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	said, err := io.ReadAll(io.LimitReader(r, maxReason))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case string(said) == ready:
		return nil
	case err == nil && len(said) == 0:
		err = errors.New("it ended at once")
	case err == nil:
		err = errors.New(string(said))
	}
	return fmt.Errorf("starting the endpoint's forwarder: %w", err)
}

// kill kills all processes of the state directory.
func (m *Manager) kill(ctx context.Context) error {
	for _, pid := range m.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
	}
	return m.awaitEnd(ctx)
}

// processes returns the processes that were started for the state directory. Those of
// containers may look the same, but have opened another lock.
func (m *Manager) processes() (pids []int) {
	lock, err := os.Stat(filepath.Join(m.Dir, lockName))
	if err != nil {
		return nil
	}
	arguments := []byte(strings.Join(append(slices.Clone(m.Command[1:]), m.Dir), "\x00") + "\x00")
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	for _, name := range commands {
		command, err := os.ReadFile(name)
		if _, rest, found := bytes.Cut(command, []byte{0}); err != nil || !found || !bytes.Equal(rest, arguments) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && hasOpen(filepath.Dir(name), lock) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// hasOpen reports whether the process of a folder in /proc has a file open.
func hasOpen(process string, file fs.FileInfo) bool {
	descriptors, err := filepath.Glob(filepath.Join(process, "fd/*"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(descriptors, func(descriptor string) bool {
		info, err := os.Stat(descriptor)
		return err == nil && os.SameFile(info, file)
	})
}

// awaitEnd waits until the lock is free. It asks again and again, because nothing ends a wait for
// a lock.
func (m *Manager) awaitEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, endTimeout, errors.New("the endpoint's forwarder does not end"))
	defer cancel()
	for m.Running() {
		if err := (retry.System{}).Wait(ctx, endInterval); err != nil {
			return err
		}
	}
	return nil
}
