package server

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
)

const (
	// turnPatience leaves an agent enough of its patience for the work itself.
	turnPatience = 15 * time.Second
	// turnReturn is how soon those come back at the earliest who waited in vain; they
	// spread themselves over as long again.
	turnReturn = 5 * time.Second
)

// turns has a number of hosts enrol at a time. An API server that is asked for more
// than it can do answers late; what agents have given up by then was in vain, and
// they ask for it again: from some point on nobody would get in at all.
type turns struct {
	clock clock.Clock
	slots chan struct{}
	// draining is closed when there will be no more turns.
	draining <-chan struct{}
}

func newTurns(c clock.Clock, atOnce int, draining <-chan struct{}) *turns {
	return &turns{clock: c, slots: make(chan struct{}, atOnce), draining: draining}
}

// wait waits for the caller's turn, which ends when it calls leave.
func (t *turns) wait(ctx context.Context) (leave func(), err error) {
	leave = func() { <-t.slots }
	select {
	case t.slots <- struct{}{}:
		return leave, nil
	default:
	}
	patience := t.clock.NewTimer(turnPatience)
	defer patience.Stop()
	select {
	case t.slots <- struct{}{}:
		return leave, nil
	case <-patience.C():
		return nil, errBusy(turnReturn)
	case <-t.draining:
		return nil, errBusy(drainReturn())
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for others to enrol: %w", ctx.Err())
	}
}
