package endpoint

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// defaultSeed is the first seed, unless RANDOM_SEED is another one.
	defaultSeed = 1000
	// eventsEach is the number of events in a history.
	eventsEach = 12
	// settleInterval is the time of a step in which the simulation settles. Nothing that is
	// still to happen takes longer than quietSteps of them: replacing the Machine of a dead
	// host takes unhealthyAfter, giving up its host releaseTimeoutSeconds, and a machine
	// without a host looks for one every two minutes.
	settleInterval = 20 * time.Second
	quietSteps     = 12
	// stepsToSettle is the maximum number of steps until nothing happens any more. The
	// longest wait of the product is 15 minutes.
	stepsToSettle = 90
)

// history is a random history. Each event has random numbers of its own, so that a history
// without some of the events repeats the others.
type history struct {
	seed uint64
	// events are the numbers of the events that happen.
	events []int
}

func (h history) String() string { return fmt.Sprintf("seed %d, events %v", h.seed, h.events) }

// TestRandomHistories runs random histories of failures, holds, cordons, maintenance and
// replacements. After each of them, first with all faults and then without, no Machine
// waits while a host is free for it; the checker verifies the moves of the endpoint. Of a
// history that fails it looks for the shortest one that fails too.
func TestRandomHistories(t *testing.T) {
	n, firstSeed := histories(t), environment(t, "RANDOM_SEED", defaultSeed)
	sum := &statistics{}
	began := time.Now()
	t.Cleanup(func() {
		t.Logf("seeds %d to %d in %s: %s", firstSeed, firstSeed+n-1, time.Since(began).Round(time.Second), sum)
	})
	for i := range n {
		complete := history{seed: uint64(firstSeed + i)}
		for event := range eventsEach {
			complete.events = append(complete.events, event)
		}
		t.Run(fmt.Sprintf("seed %d", complete.seed), func(t *testing.T) {
			t.Parallel()
			quietly := func(s *simulation) { s.quiet = true }
			run := func(h history, options ...func(*simulation)) bool {
				return t.Run(fmt.Sprintf("%d events", len(h.events)), func(t *testing.T) { h.run(t, sum, options...) })
			}
			if run(complete, quietly) {
				return
			}
			shortest := complete.shorten(func(h history) bool { return !run(h, quietly) })
			run(shortest)
			t.Logf("the shortest history that fails: %s", shortest)
		})
	}
}

// histories returns how many random histories to run: few between two edits, more in `make
// test-long`, or RANDOM_HISTORIES.
func histories(t *testing.T) int {
	t.Helper()
	const few, many = 10, 100
	if testing.Short() {
		return environment(t, "RANDOM_HISTORIES", few)
	}
	return environment(t, "RANDOM_HISTORIES", many)
}

// environment returns the number in a variable of the environment, or the default.
func environment(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		return otherwise
	}
	n, err := strconv.Atoi(value)
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), variable)
	return n
}

// The same seed repeats the same history. Otherwise a failure could not be looked into.
func TestHistoriesAreRepeatable(t *testing.T) {
	h := history{seed: defaultSeed}
	for event := range 3 * eventsEach {
		h.events = append(h.events, event)
	}
	sum := &statistics{}
	first := h.run(t, sum)
	for range 3 {
		NewWithT(t).Expect(h.run(t, sum)).To(Equal(first))
	}
}

// run runs the history, and returns its lines.
func (h history) run(t *testing.T, sum *statistics, options ...func(*simulation)) []string {
	t.Helper()
	constrained := func(s *simulation) {
		s.constrained = true
		s.grace, _ = pick(s, []time.Duration{disconnectedAfter, longGrace})
	}
	s := newSimulation(t, memoryAPIServer(t), h.seed, append(options, constrained)...)
	s.converge()
	for _, event := range h.events {
		s.rand = rand.New(rand.NewPCG(h.seed, uint64(event)))
		s.record("event %d", event)
		s.randomEvent()
	}
	s.settle()
	sum.add(s)
	s.heal()
	s.converge()
	s.settle()
	return s.history
}

// shorten returns a history with as few of the events as possible that still fails.
func (h history) shorten(fails func(history) bool) history {
	for i := range slices.Backward(h.events) {
		shorter := history{h.seed, slices.Delete(slices.Clone(h.events), i, i+1)}
		if fails(shorter) {
			h = shorter
		}
	}
	return h
}

// settle lets time pass without events until nothing happens any more. Faults stay. Then no
// Machine may wait for a host that is free for it.
func (s *simulation) settle() {
	s.T.Helper()
	s.record("no more events")
	var before map[string]string
	unchanged := 0
	for range stepsToSettle {
		s.step(settleInterval)
		now := s.placements()
		if unchanged++; !maps.Equal(before, now) {
			before, unchanged = now, 0
		}
		if unchanged == quietSteps {
			break
		}
	}
	s.checkWaiting()
}

// checkWaiting reports the Machines that wait although a host is free.
func (s *simulation) checkWaiting() {
	s.T.Helper()
	for _, name := range s.waitingDespiteHost() {
		m, _ := find[*clusterv1.Machine](s.state, name)
		s.checker.violated("Machine %s of failure domain %q waits, although %q are free", name, m.Spec.FailureDomain, s.freeFor(m))
	}
}

// placements returns the claim of each host and the host of each Machine.
func (s *simulation) placements() map[string]string {
	is := map[string]string{}
	for _, o := range all[*infrav1.ElementalHost](s.state) {
		if c := o.Spec.Claim; c != nil {
			is["host "+o.Name] = string(c.Phase) + " " + c.ID
		}
	}
	for _, m := range all[*clusterv1.Machine](s.state) {
		is["machine "+m.Name] = fmt.Sprint(m.DeletionTimestamp.IsZero(), m.Status.NodeRef.Name)
	}
	return is
}

// statistics counts what happened in all histories.
type statistics struct {
	mu                                                              sync.Mutex
	histories, moves, byEvidence, machines, replaced, held, waiting int64
}

func (c *statistics) add(s *simulation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.histories++
	c.moves += s.checker.moves
	c.byEvidence += s.checker.byEvidence
	for _, w := range s.clusters {
		c.machines += int64(w.made)
	}
	c.replaced += s.replaced
	c.held += int64(len(s.heldHosts()))
	for _, m := range all[*clusterv1.Machine](s.state) {
		if m.DeletionTimestamp.IsZero() && s.hostOf(m.Name) == nil {
			c.waiting++
		}
	}
}

func (c *statistics) String() string {
	return fmt.Sprintf("%d histories, %d moves (%d by evidence), %d Machines (%d replaced as their failure domain had no host); at the end %d hosts were held and %d Machines waited",
		c.histories, c.moves, c.byEvidence, c.machines, c.replaced, c.held, c.waiting)
}
