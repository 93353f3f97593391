package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

// endTimeout is how long a process may take to end after the end of its input.
const endTimeout = time.Minute

// Fleet is a fleet in another process. It is safe for concurrent use.
type Fleet struct {
	process *exec.Cmd
	in      io.WriteCloser

	mu      sync.Mutex
	next    int
	pending map[int]chan response
	// failure is set when the process no longer responds.
	failure error
	// ended is closed when failure is set.
	ended chan struct{}
}

// Start runs a command that calls Serve, as test/harness/fleet/cmd/fleet does, and creates
// a fleet there. The error output of the process goes to log. ctx bounds the start only;
// Close ends the fleet.
func Start(ctx context.Context, command []string, settings fleet.Settings, log io.Writer) (*Fleet, error) {
	f := &Fleet{process: exec.Command(command[0], command[1:]...), pending: map[int]chan response{}, ended: make(chan struct{})} //nolint:noctx // Close ends it
	f.process.Stderr = log
	var err error
	if f.in, err = f.process.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting a fleet: %w", err)
	}
	out, err := f.process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a fleet: %w", err)
	}
	if err := f.process.Start(); err != nil {
		return nil, fmt.Errorf("starting a fleet: %w", err)
	}
	go f.listen(out)
	if _, err := f.call(ctx, request{Settings: &settings}); err != nil {
		return nil, errors.Join(fmt.Errorf("making a fleet: %w", err), f.Close())
	}
	return f, nil
}

// PID returns the process ID.
func (f *Fleet) PID() int { return f.process.Process.Pid }

// Figures returns the current figures of the fleet.
func (f *Fleet) Figures(ctx context.Context) (fleet.Figures, error) {
	answer, err := f.call(ctx, request{Figures: true})
	if err != nil {
		return fleet.Figures{}, fmt.Errorf("reading the fleet's figures: %w", err)
	}
	return *answer.Figures, nil
}

// Status returns the status of the hosts with the given names, or of all hosts without
// names.
func (f *Fleet) Status(ctx context.Context, hosts ...string) ([]fleet.Status, error) {
	answer, err := f.call(ctx, request{Status: true, Hosts: hosts})
	if err != nil {
		return nil, fmt.Errorf("reading the status of hosts: %w", err)
	}
	return answer.Status, nil
}

// Do applies an action to the hosts with the given names, or to all hosts without names,
// evenly over a duration. It returns after the last host.
func (f *Fleet) Do(ctx context.Context, action Action, over time.Duration, hosts ...string) error {
	if _, err := f.call(ctx, request{Action: action, Over: over, Hosts: hosts}); err != nil {
		return fmt.Errorf("having %s happen to hosts: %w", action, err)
	}
	return nil
}

// SetFaults replaces the faults, see fleet.Fleet.
func (f *Fleet) SetFaults(ctx context.Context, faults fleet.Faults) error {
	if _, err := f.call(ctx, request{Faults: &faults}); err != nil {
		return fmt.Errorf("setting faults: %w", err)
	}
	return nil
}

// Close ends the fleet and its process.
func (f *Fleet) Close() error {
	_ = f.in.Close()
	timer := time.AfterFunc(endTimeout, func() { _ = f.process.Process.Kill() })
	defer timer.Stop()
	<-f.ended
	if err := f.process.Wait(); err != nil {
		return fmt.Errorf("ending a fleet: %w", err)
	}
	return nil
}

func (f *Fleet) call(ctx context.Context, q request) (response, error) {
	answer := make(chan response, 1)
	f.mu.Lock()
	q.ID = f.next
	f.next++
	f.pending[q.ID] = answer
	line, err := json.Marshal(q)
	if err == nil {
		_, err = f.in.Write(append(line, '\n'))
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.pending, q.ID)
		f.mu.Unlock()
	}()
	if err != nil {
		return response{}, err
	}
	select {
	case <-ctx.Done():
		return response{}, context.Cause(ctx)
	case <-f.ended:
		return response{}, f.failure
	case r := <-answer:
		if r.Error != "" {
			return response{}, errors.New(r.Error)
		}
		return r, nil
	}
}

// listen delivers responses to their callers.
func (f *Fleet) listen(out io.Reader) {
	defer close(f.ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var r response
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			f.failure = fmt.Errorf("reading an answer of the fleet's process: %w", err)
			// The channel is buffered, so this never blocks.
			_, _ = io.Copy(io.Discard, out)
			return
		}
		f.mu.Lock()
		waiting := f.pending[r.ID]
		delete(f.pending, r.ID)
		f.mu.Unlock()
		if waiting != nil {
			waiting <- r
		}
	}
	f.failure = errors.Join(errors.New("the fleet's process has ended; it says why on its error output"), lines.Err())
}
