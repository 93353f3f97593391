package sequence_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// clock is a clock on which nobody waits.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	return ctx.Err()
}

// walk is an operation with the steps first, second and rollback.
type walk struct {
	at sequence.Position
	// done are the steps that ran, and saved the steps that were on disk.
	done, saved []string
	// fails are the errors of steps, and unwanted is that of CheckWanted.
	fails    map[string]error
	unwanted error
}

func (w *walk) Position() *sequence.Position { return &w.at }

func (w *walk) Save() error {
	w.saved = append(w.saved, w.at.Step)
	return nil
}

func (w *walk) CheckWanted() error { return w.unwanted }

func (w *walk) Step(name string) sequence.Step {
	run := func(context.Context) error {
		w.done = append(w.done, name)
		return w.fails[name]
	}
	switch name {
	case "first":
		return sequence.Step{Run: run, Next: "second"}
	case "second", "rollback":
		return sequence.Step{Run: run, End: sequence.Succeed(func() string { return "after " + name })}
	}
	return sequence.Step{}
}

func (w *walk) Fail(_ context.Context, cause error) (*operation.Result, error) {
	w.at.Tries++
	if w.at.Tries < sequence.MaxAttempts {
		return nil, sequence.Again(w, cause)
	}
	w.at.GoBack("rollback", cause)
	return nil, w.Save()
}

// A step is on disk before it begins, and the last one has the result.
func TestRun(t *testing.T) {
	g := NewWithT(t)
	w := &walk{at: sequence.Position{Step: "first"}}
	var shown []string
	result, err := sequence.Run(t.Context(), w, func(step string) { shown = append(shown, step) })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(operation.Result{State: protocol.StateSucceeded, Message: "after second"}))
	g.Expect(w.done).To(Equal([]string{"first", "second"}))
	g.Expect(w.saved).To(Equal([]string{"second"}))
	g.Expect(shown).To(Equal([]string{"first", "second"}))
}

// A step that fails runs again with the next call, and after the last attempt the way back follows.
func TestFailures(t *testing.T) {
	g := NewWithT(t)
	w := &walk{at: sequence.Position{Step: "first"}, fails: map[string]error{"first": errors.New("disk\nfull")}}
	for range sequence.MaxAttempts - 1 {
		_, err := sequence.Run(t.Context(), w, func(string) {})
		g.Expect(err).To(MatchError("first: disk\nfull"))
	}
	result, err := sequence.Run(t.Context(), w, func(string) {})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Message).To(Equal("after rollback"))
	g.Expect(w.at).To(Equal(sequence.Position{Step: "rollback", FailedStep: "first", Cause: "disk; full"}))
	g.Expect(w.saved).To(Equal([]string{"first", "first", "rollback"}))
}

// What ends an operation early is no failure of its step.
func TestStops(t *testing.T) {
	stopped, stop := context.WithCancelCause(t.Context())
	stop(errors.New("the agent ends"))
	superseded := fmt.Errorf("waiting: %w", operation.ErrSuperseded)
	for name, c := range map[string]struct {
		ctx   context.Context
		walk  walk
		error string
	}{
		"unwanted":     {t.Context(), walk{at: sequence.Position{Step: "first"}, unwanted: errors.New("withdrawn")}, "withdrawn"},
		"unknown step": {t.Context(), walk{at: sequence.Position{Step: "third"}}, `at step "third".*update the agent`},
		"end of agent": {stopped, walk{at: sequence.Position{Step: "first"}, fails: map[string]error{"first": context.Canceled}}, "stopping at step first: the agent ends"},
		"reset":        {t.Context(), walk{at: sequence.Position{Step: "first"}, fails: map[string]error{"first": superseded}}, superseded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := c.walk.at
			_, err := sequence.Run(c.ctx, &c.walk, func(string) {})
			g.Expect(err).To(MatchError(MatchRegexp(c.error)))
			g.Expect(c.walk.at).To(Equal(before))
			g.Expect(c.walk.saved).To(BeEmpty())
		})
	}
}

// Agents of another version read the record, so its names don't change.
func TestRecord(t *testing.T) {
	g := NewWithT(t)
	record := struct {
		sequence.Position

		Note string `json:"note"`
	}{sequence.Position{Step: "gate", Tries: 2, FailedStep: "kubelet", Cause: "exits"}, "x"}
	data, err := json.Marshal(record)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(data).To(MatchJSON(`{"step": "gate", "tries": 2, "failedStep": "kubelet", "cause": "exits", "note": "x"}`))
}

func TestIsWanted(t *testing.T) {
	g := NewWithT(t)
	op := state.Operation{Operation: protocol.Operation{Type: protocol.OperationEtcdRestore, ID: "r1"}}
	g.Expect(sequence.IsWanted(state.Plan{}, op)).To(BeFalse())
	for wanted, is := range map[*protocol.Operation]bool{
		{Type: protocol.OperationEtcdRestore, ID: "r1"}: true,
		{Type: protocol.OperationEtcdRestore, ID: "r2"}: false,
		{Type: protocol.OperationReset, ID: "r1"}:       false,
	} {
		g.Expect(sequence.IsWanted(state.Plan{Operation: wanted}, op)).To(Equal(is), "%s %s", wanted.Type, wanted.ID)
	}
}

func TestAwait(t *testing.T) {
	notYet, gone := errors.New("no answer"), errors.New("the Node is gone")
	for name, c := range map[string]struct {
		// answers are those of each second; the last one is that of all that follow.
		answers []error
		error   string
		seconds int
	}{
		"well for long enough": {[]error{nil}, "", 3},
		"well later":           {[]error{notYet, notYet, nil}, "", 5},
		"a break":              {[]error{nil, nil, notYet, nil}, "", 6},
		"never well":           {[]error{notYet}, "it was not well within 10s: no answer", 10},
		"now and then":         {[]error{nil, notYet, nil, notYet, nil, notYet, nil, notYet, nil, notYet, nil, nil, notYet, nil}, "it was not well within 10s: no answer", 12},
		"final":                {[]error{notYet, sequence.Final{Err: gone}}, "the Node is gone", 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			watch := &clock{now: began}
			wait := sequence.Wait{Clock: watch, Limit: 10 * time.Second, Hold: 3 * time.Second, Interval: time.Second}
			err := wait.Await(t.Context(), func(context.Context) error {
				return c.answers[min(int(watch.now.Sub(began)/time.Second), len(c.answers)-1)]
			})
			if c.error == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(c.error))
			}
			g.Expect(watch.now.Sub(began)).To(Equal(time.Duration(c.seconds) * time.Second))
		})
	}
}

// Waiting ends with its context.
func TestAwaitEnds(t *testing.T) {
	g := NewWithT(t)
	ctx, stop := context.WithCancelCause(t.Context())
	end := errors.New("the agent ends")
	wait := sequence.Wait{Clock: &clock{}, Limit: time.Minute, Interval: time.Second}
	g.Expect(wait.Await(ctx, func(context.Context) error {
		stop(end)
		return errors.New("no answer")
	})).To(MatchError(end))
}

func TestShort(t *testing.T) {
	g := NewWithT(t)
	text := sequence.Short(errors.New("a\nb " + strings.Repeat("é", 1000)))
	g.Expect(text).To(HavePrefix("a; b é"))
	g.Expect(text).To(HaveSuffix("é…"))
	g.Expect(len(text)).To(BeNumerically("<=", 603))
}
