package forwarder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sockets are what a process has as long as it accepts connections.
type sockets struct {
	lock    *os.File
	control *net.UnixListener
	tcp     *net.TCPListener

	mu sync.Mutex
	// predecessors are the connections to the processes that had the sockets before, as far as
	// they have not ended; the last one has handed them over. A connection ends when this
	// process does, unless it was handed over too, and the predecessor with it.
	predecessors []*net.UnixConn
}

const (
	// handedOver is how many file descriptors are handed over, before those of predecessors.
	handedOver = 3
	// maxHandedOver is the kernel's limit.
	maxHandedOver = 253
)

// acquire locks and listens, or takes over from the process that does.
func acquire(ctx context.Context, dir string, config Config) (*sockets, error) {
	lock, err := openLock(dir)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		s, err := takeOver(ctx, dir, config)
		return s, errors.Join(err, lock.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("locking %s: %w", lockName, err), lock.Close())
	}
	s := &sockets{lock: lock}
	if err := s.listen(ctx, dir, config); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func openLock(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the endpoint's forwarder: %w", err)
	}
	return lock, nil
}

func (s *sockets) listen(ctx context.Context, dir string, config Config) error {
	path := filepath.Join(dir, socketName)
	// A process that was killed leaves its socket.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a socket that nobody listens to: %w", err)
	}
	var err error
	if s.control, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
		return fmt.Errorf("listening for the agent: %w", err)
	}
	s.control.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("closing the socket to others: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", config.Address())
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("%s is taken by %s: end it, the cluster's endpoint has to be there", config.Address(), holderOf(config.Port))
	}
	if err != nil {
		return fmt.Errorf("listening at the endpoint: %w", err)
	}
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return errors.Join(errors.New("listening at the endpoint: not a TCP socket"), listener.Close())
	}
	s.tcp = tcp
	return nil
}

// takeOver gets the sockets of the process that has the lock.
func takeOver(ctx context.Context, dir string, config Config) (_ *sockets, err error) {
	conn, err := connect(ctx, dir)
	if err != nil {
		return nil, err
	}
	s := &sockets{predecessors: []*net.UnixConn{conn}}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := send(conn, verbHandOver); err != nil {
		return nil, err
	}
	text, rights := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(maxHandedOver*4))
	n, size, _, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, fmt.Errorf("taking over from the former forwarder: %w", err)
	}
	files, err := parseRights(rights[:size])
	defer func() {
		for _, file := range files {
			_ = file.Close() // the listeners have copies
		}
	}()
	if err != nil {
		return nil, err
	}
	var answer status
	if err := json.Unmarshal(text[:n], &answer); err != nil {
		return nil, fmt.Errorf("decoding the answer of the former forwarder: %w", err)
	}
	if answer.Error != "" || len(files) < handedOver {
		return nil, fmt.Errorf("the former forwarder handed over %d sockets: %s", len(files), answer.Error)
	}
	if err := s.inherit(files[handedOver:]); err != nil {
		return nil, err
	}
	s.lock, files = files[0], files[1:]
	control, err := net.FileListener(files[0])
	if err != nil {
		return nil, fmt.Errorf("taking over the control socket: %w", err)
	}
	tcp, err := net.FileListener(files[1])
	if err != nil {
		return nil, errors.Join(fmt.Errorf("taking over the endpoint's socket: %w", err), control.Close())
	}
	var isUnix, isTCP bool
	s.control, isUnix = control.(*net.UnixListener)
	s.tcp, isTCP = tcp.(*net.TCPListener)
	if !isUnix || !isTCP || tcp.Addr().String() != config.Address() {
		return nil, errors.Join(fmt.Errorf("the former forwarder listens at %s, not at %s", tcp.Addr(), config.Address()), control.Close(), tcp.Close())
	}
	return s, nil
}

// inherit takes over the connections to the predecessors of the process that hands over.
func (s *sockets) inherit(files []*os.File) error {
	for _, file := range files {
		conn, err := net.FileConn(file)
		if err != nil {
			return fmt.Errorf("taking over the connection to a former forwarder: %w", err)
		}
		former, ok := conn.(*net.UnixConn)
		if !ok {
			return errors.Join(errors.New("taking over the connection to a former forwarder: not a Unix socket"), conn.Close())
		}
		s.predecessors = slices.Insert(s.predecessors, 0, former)
	}
	return nil
}

func parseRights(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, fmt.Errorf("reading what was handed over: %w", err)
	}
	for _, message := range messages {
		descriptors, err := unix.ParseUnixRights(&message)
		if err != nil {
			return files, fmt.Errorf("reading what was handed over: %w", err)
		}
		for _, descriptor := range descriptors {
			files = append(files, os.NewFile(uintptr(descriptor), "handed over"))
		}
	}
	return files, nil
}

// handOver sends the sockets and the lock over a connection.
func (s *sockets) handOver(conn *net.UnixConn, answer status) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	// Predecessors end meanwhile, but their connections stay open until this has returned.
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []syscall.Conn{s.lock, s.control, s.tcp}
	for _, former := range s.predecessors {
		all = append(all, former)
	}
	var descriptors []int
	for _, socket := range all {
		raw, err := socket.SyscallConn()
		if err != nil {
			return err
		}
		if err := raw.Control(func(fd uintptr) { descriptors = append(descriptors, int(fd)) }); err != nil {
			return err
		}
	}
	_, _, err = conn.WriteMsgUnix(text, unix.UnixRights(descriptors...), nil)
	return err
}

// former returns the process that has handed over; nil for the first one.
func (s *sockets) former() *net.UnixConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.predecessors) == 0 {
		return nil
	}
	return s.predecessors[len(s.predecessors)-1]
}

// awaitPredecessors returns when all predecessors have ended, or close was called. Nothing
// may be received from them any more.
func (s *sockets) awaitPredecessors() {
	s.mu.Lock()
	waiting := slices.Clone(s.predecessors)
	s.mu.Unlock()
	var ends sync.WaitGroup
	for _, former := range waiting {
		ends.Go(func() {
			if former.SetDeadline(time.Time{}) != nil {
				return
			}
			_, _ = io.Copy(io.Discard, former)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.predecessors = slices.DeleteFunc(s.predecessors, func(c *net.UnixConn) bool { return c == former })
			_ = former.Close()
		})
	}
	ends.Wait()
}

// stopListening closes what a successor has copies of.
func (s *sockets) stopListening() {
	if s.control != nil {
		_ = s.control.Close()
	}
	if s.tcp != nil {
		_ = s.tcp.Close()
	}
}

// close ends the process's part, and with it its predecessors. The lock is the last to go.
func (s *sockets) close() {
	s.stopListening()
	s.mu.Lock()
	for _, former := range s.predecessors {
		_ = former.Close()
	}
	s.mu.Unlock()
	if s.lock != nil {
		_ = s.lock.Close()
	}
}
