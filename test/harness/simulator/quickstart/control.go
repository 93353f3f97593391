package quickstart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
)

const (
	socketName = "control"
	// callTimeout bounds a command.
	callTimeout = 30 * time.Second
	// maxCall is the maximum size of a request or a response.
	maxCall = 1 << 20
)

// command is a request to a simulation. A blank command requests the status only.
type command struct {
	// Action is applied to the ElementalHost with the name Host.
	Action remote.Action `json:"action,omitempty"`
	Host   string        `json:"host,omitempty"`
}

// Status is the status of a simulation.
type Status struct {
	// PID is the process ID.
	PID        int    `json:"pid"`
	Kubeconfig string `json:"kubeconfig"`
	// Kubectl is the path of a kubectl with the right version.
	Kubectl string `json:"kubectl"`
	// Proxy is embedded.Cluster's.
	Proxy string         `json:"proxy"`
	Hosts []fleet.Status `json:"hosts"`
}

type response struct {
	Error  string `json:"error,omitempty"`
	Status Status `json:"status"`
}

// socket calls do with a short path to the folder's socket: the kernel accepts at most 107 bytes.
func (f Folder) socket(do func(path string) error) error {
	dir, err := os.Open(f.Path)
	if err != nil {
		return fmt.Errorf("opening the folder of the quickstart: %w", err)
	}
	defer func() { _ = dir.Close() }()
	return do("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + socketName)
}

// Status returns the status of the simulation.
func (f Folder) Status(ctx context.Context) (Status, error) { return f.call(ctx, command{}) }

// Do applies an action to a host.
func (f Folder) Do(ctx context.Context, action remote.Action, host string) error {
	_, err := f.call(ctx, command{Action: action, Host: host})
	return err
}

func (f Folder) call(ctx context.Context, what command) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var conn net.Conn
	err := f.socket(func(path string) (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
		return err
	})
	if err != nil {
		return Status{}, fmt.Errorf("calling the quickstart, which make quickstart starts: %w", err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var said response
	if err := errors.Join(json.NewEncoder(conn).Encode(what), json.NewDecoder(io.LimitReader(conn, maxCall)).Decode(&said)); err != nil {
		return Status{}, fmt.Errorf("calling the quickstart: %w", err)
	}
	if said.Error != "" {
		return Status{}, errors.New(said.Error)
	}
	return said.Status, nil
}

// listen serves commands until end is called. end waits for running commands.
func (f Folder) listen(take func(command) (Status, error)) (end func(), err error) {
	var listener net.Listener
	err = f.socket(func(path string) (err error) {
		listener, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening for commands: %w", err)
	}
	// The path of the socket is only valid now; Down removes the socket with the folder.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { handle(conn, take) })
		}
	})
	return func() {
		_ = listener.Close()
		serving.Wait()
	}, nil
}

// handle serves one command. A caller that misses the response can send the command again.
func handle(conn net.Conn, take func(command) (Status, error)) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(callTimeout))
	var what command
	if err := json.NewDecoder(io.LimitReader(conn, maxCall)).Decode(&what); err != nil {
		return
	}
	var said response
	var err error
	if said.Status, err = take(what); err != nil {
		said.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(said)
}
