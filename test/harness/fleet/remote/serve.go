package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

// maxLine bounds a request and a response: 10,000 hosts take 6 MB.
const maxLine = 64 << 20

// Serve creates a fleet from the first request and serves further requests until the
// input or ctx ends. Then it closes the fleet. software, which may be nil, executes
// bootstrap data.
func Serve(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger, software fleet.Software) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{out: json.NewEncoder(out), log: log, software: software}
	defer func() {
		cancel()
		s.running.Wait()
		if s.fleet != nil {
			err = errors.Join(err, s.fleet.Close())
		}
	}()
	lines := make(chan []byte)
	ended := make(chan error, 1)
	go func() { ended <- read(ctx, in, lines) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case line := <-lines:
			if err := s.take(ctx, line); err != nil {
				return err
			}
		}
	}
}

func read(ctx context.Context, in io.Reader, lines chan<- []byte) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		select {
		case <-ctx.Done():
			return nil
		case lines <- append([]byte{}, scanner.Bytes()...):
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("reading requests: %w", err)
	}
	return nil
}

// session serves one fleet.
type session struct {
	log      *slog.Logger
	software fleet.Software
	fleet    *fleet.Fleet
	running  sync.WaitGroup

	mu  sync.Mutex
	out *json.Encoder
}

// take serves a request in a goroutine of its own, so that a slow request doesn't delay
// others.
func (s *session) take(ctx context.Context, line []byte) error {
	var q request
	if err := json.Unmarshal(line, &q); err != nil {
		return fmt.Errorf("reading a request: %w", err)
	}
	if q.Settings != nil {
		if s.fleet != nil {
			return errors.New("there is a fleet already")
		}
		q.Settings.Log, q.Settings.Software = s.log, s.software
		made, err := fleet.New(*q.Settings)
		if err != nil {
			return s.answer(response{ID: q.ID, Error: err.Error()})
		}
		s.fleet = made
		return s.answer(response{ID: q.ID})
	}
	if s.fleet == nil {
		return errors.New("the first request has to have the settings of a fleet")
	}
	s.running.Go(func() {
		answer, err := s.do(ctx, q)
		if err != nil {
			answer.Error = err.Error()
		}
		answer.ID = q.ID
		// A user that no longer reads also ends the input.
		_ = s.answer(answer)
	})
	return nil
}

func (s *session) answer(r response) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.Encode(r); err != nil {
		return fmt.Errorf("answering a request: %w", err)
	}
	return nil
}

func (s *session) do(ctx context.Context, q request) (response, error) {
	hosts, err := s.named(q.Hosts)
	if err != nil {
		return response{}, err
	}
	switch {
	case q.Figures:
		figures := s.fleet.Figures()
		return response{Figures: &figures}, nil
	case q.Status:
		status := make([]fleet.Status, 0, len(hosts))
		for _, h := range hosts {
			status = append(status, h.Status())
		}
		return response{Status: status}, nil
	case q.Faults != nil:
		return response{}, s.fleet.SetFaults(*q.Faults)
	case q.Action.Known():
		return response{}, s.fleet.Each(ctx, hosts, q.Over, q.Action.Do)
	}
	return response{}, fmt.Errorf("there is no action %q", q.Action)
}

func (s *session) named(names []string) ([]*fleet.Host, error) {
	if len(names) == 0 {
		return s.fleet.Hosts(), nil
	}
	hosts := make([]*fleet.Host, 0, len(names))
	for _, name := range names {
		h := s.fleet.Host(name)
		if h == nil {
			return nil, fmt.Errorf("there is no host %q", name)
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}
