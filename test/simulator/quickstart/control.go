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

	"github.com/capi-elemental/cluster-api-provider-elemental/test/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/fleet/remote"
)

const (
	socketName = "control"
	// callTimeout bounds an order. None takes long.
	callTimeout = 30 * time.Second
	// maxCall bounds what one side says.
	maxCall = 1 << 20
)

// order is what a world is told to do; nothing but to say how it is, if all is blank.
type order struct {
	// Action happens to Host, the name of an ElementalHost.
	Action remote.Action `json:"action,omitempty"`
	Host   string        `json:"host,omitempty"`
}

// Status is how a world is.
type Status struct {
	// PID is the process's.
	PID        int    `json:"pid"`
	Kubeconfig string `json:"kubeconfig"`
	// Kubectl is the file of one that fits.
	Kubectl string         `json:"kubectl"`
	Hosts   []fleet.Status `json:"hosts"`
}

type answer struct {
	Error  string `json:"error,omitempty"`
	Status Status `json:"status"`
}

// socket runs f with a short path of the folder's socket: the kernel takes 107 bytes.
func (f Folder) socket(do func(path string) error) error {
	dir, err := os.Open(f.Path)
	if err != nil {
		return fmt.Errorf("opening the folder of the quickstart: %w", err)
	}
	defer func() { _ = dir.Close() }()
	return do("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + socketName)
}

// Status asks a world how it is.
func (f Folder) Status(ctx context.Context) (Status, error) { return f.call(ctx, order{}) }

// Do has something happen to a host.
func (f Folder) Do(ctx context.Context, action remote.Action, host string) error {
	_, err := f.call(ctx, order{Action: action, Host: host})
	return err
}

func (f Folder) call(ctx context.Context, what order) (Status, error) {
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
	var said answer
	if err := errors.Join(json.NewEncoder(conn).Encode(what), json.NewDecoder(io.LimitReader(conn, maxCall)).Decode(&said)); err != nil {
		return Status{}, fmt.Errorf("calling the quickstart: %w", err)
	}
	if said.Error != "" {
		return Status{}, errors.New(said.Error)
	}
	return said.Status, nil
}

// listen takes orders until it is closed, which waits for those under way.
func (f Folder) listen(take func(order) (Status, error)) (end func(), err error) {
	var listener net.Listener
	err = f.socket(func(path string) (err error) {
		listener, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening for orders: %w", err)
	}
	// Its path is no longer what it was made by, and goes with the folder.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { attend(conn, take) })
		}
	})
	return func() {
		_ = listener.Close()
		serving.Wait()
	}, nil
}

// attend takes one order. Who doesn't listen to the answer asks again.
func attend(conn net.Conn, take func(order) (Status, error)) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(callTimeout))
	var what order
	if err := json.NewDecoder(io.LimitReader(conn, maxCall)).Decode(&what); err != nil {
		return
	}
	var said answer
	var err error
	if said.Status, err = take(what); err != nil {
		said.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(said)
}
