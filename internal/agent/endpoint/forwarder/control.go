package forwarder

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Files of the state directory.
const (
	lockName   = "endpoint.lock"
	socketName = "endpoint.sock"
)

// controlTimeout bounds a request to the process, and its answer.
const controlTimeout = 10 * time.Second

// verb is what the agent, or a newer process, requests.
type verb string

const (
	// verbReload makes the process read its document now.
	verbReload verb = "reload"
	// verbWatch keeps the connection open as long as the process accepts connections.
	verbWatch verb = "watch"
	// verbStop ends the process and its predecessors.
	verbStop verb = "stop"
	// verbHandOver sends the sockets and the lock.
	verbHandOver verb = "hand-over"
	// verbTaken, from a newer process that has got them, makes this one end when its
	// connections have ended.
	verbTaken verb = "taken"
)

// status is the answer to each request.
type status struct {
	// Program identifies the file that the process runs.
	Program string `json:"program"`
	Config  Config `json:"config"`
	// Connections are those of this host's programs.
	Connections int `json:"connections"`
	// Error says why a request failed.
	Error string `json:"error,omitempty"`
}

// programOf identifies a program's file: an update replaces the file.
func programOf(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("looking at the program: %w", err)
	}
	inode := uint64(0)
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = stat.Ino
	}
	return strings.Join([]string{strconv.FormatUint(inode, 10), strconv.FormatInt(info.Size(), 10), strconv.FormatInt(info.ModTime().UnixNano(), 10)}, "-"), nil
}

// connect connects to the process of a state directory.
func connect(ctx context.Context, dir string) (*net.UnixConn, error) {
	conn, err := (&net.Dialer{Timeout: controlTimeout}).DialContext(ctx, "unix", filepath.Join(dir, socketName))
	if err != nil {
		return nil, fmt.Errorf("connecting to the forwarder of the endpoint: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("connecting to the forwarder of the endpoint: not a Unix socket"), conn.Close())
	}
	return unixConn, nil
}

// send sends a request. The answer has to arrive in controlTimeout.
func send(conn net.Conn, v verb) error {
	if err := conn.SetDeadline(time.Now().Add(controlTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(string(v) + "\n")); err != nil {
		return fmt.Errorf("asking the forwarder of the endpoint: %w", err)
	}
	return nil
}

// receive reads a request.
func receive(from *bufio.Reader) (verb, error) {
	line, err := from.ReadSlice('\n')
	return verb(strings.TrimSuffix(string(line), "\n")), err
}

// ask sends a request over a connection of its own and returns the answer.
func ask(ctx context.Context, dir string, v verb) (status, error) {
	conn, err := connect(ctx, dir)
	if err != nil {
		return status{}, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := send(conn, v); err != nil {
		return status{}, err
	}
	return decode(json.NewDecoder(conn))
}

func decode(from *json.Decoder) (status, error) {
	var answer status
	if err := from.Decode(&answer); err != nil {
		return status{}, fmt.Errorf("reading the answer of the endpoint's forwarder: %w", err)
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}
