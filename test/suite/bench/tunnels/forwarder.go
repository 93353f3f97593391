package tunnels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forwarder"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/ports"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

const (
	// forwarded is the number of connections through the forwarder.
	forwarded = 1000
	// Targets: the size of the agent, and the memory of an idle forwarder.
	agentSize       = 15 << 20
	forwarderMemory = 15 << 20
	// messageSize is what each connection sends and gets back each second.
	messageSize = 1 << 10
	// startTimeout bounds the start of the forwarder.
	startTimeout = 30 * time.Second
	atOnce       = 32
)

// forwarder measures the process that forwards the endpoint on a host.
func (m *measurement) forwarder(ctx context.Context) (err error) {
	agent := filepath.Join(m.folder, "elemental-agent")
	if err := m.build(ctx, m.Checkout, agent, "./cmd/elemental-agent"); err != nil {
		return err
	}
	info, err := os.Stat(agent)
	if err != nil {
		return fmt.Errorf("looking at the agent: %w", err)
	}
	m.row(table.Row{
		Figure: "Size of the agent", Value: table.MiB(float64(info.Size())), Target: "below " + table.MiB(agentSize), Missed: info.Size() >= agentSize,
	})
	m.Progress.Say("Measuring the endpoint's forwarder")
	f, err := m.startForwarder(ctx, agent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	return f.measure(ctx)
}

// runningForwarder is a forwarder with a backend that sends back what it gets.
type runningForwarder struct {
	*measurement

	address string
	command *exec.Cmd
	process measure.Process
	backend net.Listener
	ports   ports.Set
}

func (m *measurement) startForwarder(ctx context.Context, agent string) (_ *runningForwarder, err error) {
	f := &runningForwarder{measurement: m}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	if f.backend, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	go serveEcho(f.backend)
	port, err := f.ports.Reserve()
	if err != nil {
		return nil, err
	}
	f.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	state := filepath.Join(m.folder, "agent")
	config, err := json.Marshal(forwarder.Config{Host: "endpoint.example", Port: int32(port), Backends: []string{f.backend.Addr().String()}})
	if err == nil {
		err = errors.Join(os.Mkdir(state, 0o700), os.WriteFile(filepath.Join(state, forwarder.Document), config, 0o600))
	}
	if err != nil {
		return nil, fmt.Errorf("writing what to forward: %w", err)
	}
	err = f.start(agent, state)
	return f, err
}

// start starts the process as the agent does.
func (f *runningForwarder) start(agent, state string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer func() { _ = r.Close() }()
	command := exec.Command(agent, "endpoint", state) //nolint:noctx // stop ends it
	command.ExtraFiles = []*os.File{w}
	if err := errors.Join(command.Start(), w.Close()); err != nil {
		return fmt.Errorf("starting the forwarder: %w", err)
	}
	f.command, f.process = command, measure.Process(command.Process.Pid)
	if err := r.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	said, err := io.ReadAll(r)
	if err != nil || string(said) != "ready" {
		return fmt.Errorf("starting the forwarder: %w", errors.Join(err, errors.New("it says: "+string(said))))
	}
	return nil
}

func (f *runningForwarder) stop() error {
	if f.command != nil {
		_ = f.command.Process.Kill()
		_ = f.command.Wait() // says that it was killed
	}
	f.ports.Release()
	if f.backend == nil {
		return nil
	}
	return f.backend.Close()
}

func serveEcho(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}()
	}
}

// measure measures the process without connections, with idle ones and with busy ones.
func (f *runningForwarder) measure(ctx context.Context) error {
	over := f.Rest / forwarderShare
	if err := measure.Pause(ctx, min(over, time.Second)); err != nil {
		return err
	}
	alone, err := f.process.Memory()
	if err != nil {
		return err
	}
	conns := make([]net.Conn, forwarded)
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	if err := bare.Each(ctx, forwarded, atOnce, func(ctx context.Context, i int) (err error) {
		if conns[i], err = (&net.Dialer{}).DialContext(ctx, "tcp", f.address); err != nil {
			return fmt.Errorf("connecting to the forwarder: %w", err)
		}
		return exchange(conns[i])
	}); err != nil {
		return err
	}
	idleCPU, err := f.cpu(func() error { return measure.Pause(ctx, over) })
	if err != nil {
		return err
	}
	idle, err := f.process.Memory()
	if err != nil {
		return err
	}
	busyCPU, err := f.cpu(func() error { return exchangeAll(ctx, conns, over) })
	if err != nil {
		return err
	}
	busy, err := f.process.Memory()
	if err != nil {
		return err
	}
	m := f.measurement
	m.row(table.Row{
		Figure: "Memory of a forwarder without connections", Value: table.MiB(float64(alone)),
		Target: "below " + table.MiB(forwarderMemory), Missed: alone >= forwarderMemory,
	})
	m.row(table.Row{Figure: fmt.Sprintf("The same with %s idle connections", table.Count(forwarded)), Value: table.MiB(float64(idle))})
	m.row(table.Row{Figure: fmt.Sprintf("The same while each of them sends and gets %d bytes a second", messageSize), Value: table.MiB(float64(busy))})
	m.row(table.Row{Figure: "CPU of the forwarder with idle connections, of one core", Value: table.Percent(idleCPU)})
	m.row(table.Row{Figure: "The same while each sends and gets as much", Value: table.Percent(busyCPU)})
	return nil
}

// cpu returns the share of a core that the process uses while do runs.
func (f *runningForwarder) cpu(do func() error) (float64, error) {
	before, err := f.process.CPU()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	after, err := f.process.CPU()
	return float64(after-before) / float64(time.Since(began)), err
}

// exchangeAll has each connection exchange a message each second, evenly over the second.
func exchangeAll(ctx context.Context, conns []net.Conn, over time.Duration) error {
	tick := time.NewTicker(time.Second / forwarded)
	defer tick.Stop()
	for i, end := 0, time.Now().Add(over); time.Now().Before(end); i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := exchange(conns[i%len(conns)]); err != nil {
			return err
		}
	}
	return nil
}

// exchange sends a message and waits until it is back.
func exchange(conn net.Conn) error {
	buffer := make([]byte, messageSize)
	if err := conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(buffer); err != nil {
		return fmt.Errorf("sending through the forwarder: %w", err)
	}
	if _, err := io.ReadFull(conn, buffer); err != nil {
		return fmt.Errorf("reading through the forwarder: %w", err)
	}
	return nil
}
