package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

const (
	// idleMemory is the target for an idle tunnel.
	idleMemory = 40 << 10
	// managerGC is the default of the manager's flag --gc-percent.
	managerGC = "40"
	// atOnce is how many connections are made at a time.
	atOnce = 32
	// settle is how long a process with nothing to do is left alone.
	settle = time.Second
)

// ofIdleTunnels measures the memory of the manager's side of idle tunnels, beside TLS alone, a time after they were made,
// and that of one tunnel whose streams stall.
func (m *measurement) ofIdleTunnels(ctx context.Context, count int, rest time.Duration) error {
	tunnels, err := heldMemory(ctx, heldTunnels, count, 0, rest)
	if err != nil {
		return fmt.Errorf("measuring idle tunnels: %w", err)
	}
	connections, err := heldMemory(ctx, heldTLS, count, 0, rest)
	if err != nil {
		return fmt.Errorf("measuring idle connections: %w", err)
	}
	stalledStreams, err := heldMemory(ctx, heldTunnels, 1, stalls, min(rest, 10*settle))
	if err != nil {
		return fmt.Errorf("measuring stalled streams: %w", err)
	}
	one, bareOne := tunnels/float64(count), connections/float64(count)
	m.row(table.Row{
		Figure: fmt.Sprintf("Memory of the manager for each of %s idle tunnels; bare: TLS connections", table.Count(count)),
		Value:  table.KiB(one), Bare: table.KiB(bareOne), Ratio: table.Ratio(one, bareOne),
		Target: "below " + table.KiB(idleMemory), Missed: one >= idleMemory,
	})
	m.row(table.Row{Figure: fmt.Sprintf("Memory of the manager for a tunnel of %d streams that stall in both directions", stalls), Value: table.MiB(stalledStreams)})
	m.note("Memory is the RSS of a process that holds the manager's side and nothing else, with the manager's garbage collection (GOGC=%s), %s after the last connection; "+
		"what the kernel keeps for sockets is not in it.", managerGC, rest)
	return nil
}

// heldMemory returns by how much connections increase the memory of a process that holds them.
func heldMemory(ctx context.Context, what string, count, streams int, rest time.Duration) (_ float64, err error) {
	h, err := startHolder(what, streams)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	if err := measure.Pause(ctx, settle); err != nil {
		return 0, err
	}
	empty, err := h.process.Memory()
	if err != nil {
		return 0, err
	}
	_, client, err := h.greeting.Trust.configs()
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	var all []func()
	defer func() {
		for _, hangUp := range all {
			hangUp()
		}
	}()
	if err := bare.Each(ctx, count, atOnce, func(ctx context.Context, _ int) error {
		hangUp, err := connectTo(ctx, h.greeting, client, what)
		if err != nil {
			return err
		}
		mu.Lock()
		all = append(all, hangUp)
		mu.Unlock()
		// Wait for one of them, so that only so many are made at a time.
		return h.held(ctx)
	}); err != nil {
		return 0, err
	}
	if err := measure.Pause(ctx, rest); err != nil {
		return 0, err
	}
	full, err := h.process.Memory()
	return float64(full) - float64(empty), err
}

// holder is a process that holds connections.
type holder struct {
	command  *exec.Cmd
	in       io.Closer
	greeting greeting
	process  measure.Process

	mu  sync.Mutex
	out *bufio.Reader
}

func startHolder(what string, streams int) (*holder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	h := &holder{command: exec.Command(self, holdCommand, what, strconv.Itoa(streams))} //nolint:noctx // stop ends it
	h.command.Env, h.command.Stderr = append(os.Environ(), "GOGC="+managerGC), os.Stderr
	if h.in, err = h.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting a process that holds connections: %w", err)
	}
	out, err := h.command.StdoutPipe()
	if err == nil {
		err = h.command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting a process that holds connections: %w", err)
	}
	h.out, h.process = bufio.NewReader(out), measure.Process(h.command.Process.Pid)
	line, err := h.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &h.greeting)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a process that holds connections: %w", err), h.stop())
	}
	return h, nil
}

// held waits until the process holds one more connection.
func (h *holder) held(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = h.command.Process.Kill() })
	defer stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.out.ReadBytes('\n'); err != nil {
		return fmt.Errorf("waiting for a connection to be held: %w", err)
	}
	return nil
}

// stop ends the process.
func (h *holder) stop() error {
	_ = h.in.Close()
	return h.command.Wait()
}
