package agent_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// crashes is the default number of iterations of TestPowerCuts. CRASH_ITERATIONS
// overrides it, and CRASH_SEED sets the random seed.
const crashes = 300

// crashesShort is the largest number of iterations with -short.
const crashesShort = 40

func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// A host is bootstrapped, rotates its key and is reset. Kills and power cuts hit any
// disk operation. A power cut leaves any content that a journalling file system
// allows.
func TestPowerCuts(t *testing.T) {
	seed := fromEnvironment(t, "CRASH_SEED", uint64(time.Now().UnixNano()))
	count := fromEnvironment(t, "CRASH_ITERATIONS", crashes)
	if testing.Short() {
		count = min(count, crashesShort)
	}
	deaths := map[string]int{}
	for i := range count {
		r := &powerRig{rig: newRig(t), random: rand.New(rand.NewPCG(seed, i)), deaths: deaths}
		if err := r.through(); err != nil {
			t.Errorf("CRASH_SEED=%d, iteration %d: %v; %s", seed, i, err, r.manager.describe())
		}
		r.manager.hangUp(t)
		if t.Failed() {
			break
		}
	}
	t.Logf("CRASH_SEED=%d: %d iterations, processes ended by %v", seed, count, deaths)
}

// powerRig is a rig that simulates power cuts.
type powerRig struct {
	*rig
	random *rand.Rand
	disk   *platters
	boots  int
	deaths map[string]int
}

// through runs one iteration: bootstrap, rotation and reset of one host.
func (r *powerRig) through() error {
	r.disk = newPlatters(r.random)
	r.goesDown = func() { r.life.die() }
	r.aged()
	r.boot()
	r.manager.want(bootstrapOf("a"), protocol.Desired{Hostname: "node-1", ProviderID: "elemental://1"})
	over := func(m *manager) bool { s := m.operations["a"].State; return s.Final() }
	if err := r.liveUntil(over); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	ran, state := r.scripts["operations/bootstrap-a"], r.manager.heard("a")
	if ran != 1 && !(ran == 0 && state == protocol.StateFailed) {
		return fmt.Errorf("the script ran %d times, and the bootstrap %s", ran, state)
	}
	r.manager.set(func(m *manager) { m.now = func() time.Time { return time.Now().AddDate(0, 1, 0) } })
	r.manager.want(nil, protocol.Desired{ProviderID: "elemental://1"})
	if err := r.liveUntil(rotated); err != nil {
		return fmt.Errorf("rotation: %w", err)
	}
	r.manager.want(resetOf("b"), protocol.Desired{})
	if err := r.liveUntil(ended("b", protocol.StateSucceeded)); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	switch {
	case len(r.dirty) > 0:
		return fmt.Errorf("not clean: %v", r.dirty)
	case ran == 1 && r.undone == 0:
		return errors.New("the bootstrap was not undone")
	case r.scripts["operations/bootstrap-a"] != ran:
		return errors.New("the script ran again")
	}
	return nil
}

// liveUntil runs up to eight agent processes until the manager meets a condition.
// The first three may crash.
func (r *powerRig) liveUntil(met func(*manager) bool) error {
	const mayDie = 3
	for life := range mayDie + 5 {
		dieAt := -1
		if life < mayDie {
			dieAt = 1 + r.random.IntN(60)
		}
		done, err := r.liveOnce(dieAt, met)
		if done || err != nil {
			return err
		}
	}
	return errors.New("no process met the condition")
}

func (r *powerRig) boot() {
	r.boots++
	r.bootID = "boot-" + strconv.Itoa(r.boots)
}

// liveOnce runs one process and reports whether the manager meets the condition.
func (r *powerRig) liveOnce(dieAt int, met func(*manager) bool) (done bool, err error) {
	r.life = r.disk.live(dieAt)
	ended := make(chan error, 1)
	ctx, cancel := contextWithCancel(r.t)
	defer cancel()
	a, err := r.agent()
	if err == nil {
		go func() { ended <- a.Run(ctx) }()
		done, err = r.watchOver(met)
		r.life.die()
		cancel()
		if end := <-ended; end != nil && !errors.Is(end, errDead) {
			return false, fmt.Errorf("the agent ended: %w", end)
		}
	} else if errors.Is(err, errDead) {
		err = nil
	}
	if err != nil {
		return false, err
	}
	r.manager.hangUp(r.t)
	r.manager.mu.Lock()
	locked := r.manager.locked
	r.manager.mu.Unlock()
	if locked != "" {
		return false, fmt.Errorf("the host is locked: %s", locked)
	}
	r.fall()
	return done, nil
}

// watchOver waits until the process dies or the manager meets the condition.
func (r *powerRig) watchOver(met func(*manager) bool) (done bool, err error) {
	timeout := time.After(time.Minute)
	for {
		r.manager.mu.Lock()
		done, changed := met(r.manager) || r.manager.locked != "", r.manager.changed
		r.manager.mu.Unlock()
		if done {
			return true, nil
		}
		select {
		case <-changed:
		case <-r.life.dead:
			return false, nil
		case <-timeout:
			return false, errors.New("the agent neither died nor met the condition")
		}
	}
}

// fall chooses how the process ended: orderly reboot, kill or power cut.
func (r *powerRig) fall() {
	switch r.random.IntN(5) {
	case 0:
		r.deaths["an orderly reboot"]++
		r.disk.shutDown()
		r.boot()
	case 1, 2:
		r.deaths["a kill"]++
	default:
		r.deaths["a power cut"]++
		r.disk.cutPower()
		r.boot()
	}
}
