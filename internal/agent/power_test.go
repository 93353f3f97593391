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

// crashes is how often TestPowerCuts lets a host live through its life;
// CRASH_ITERATIONS and CRASH_SEED change that.
const crashes = 300

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

// A host is bootstrapped, its key is rotated, and it is reset. Meanwhile its
// agent is killed and its power is cut at any operation on the disk, after which
// the disk holds anything that a journalling file system may leave.
func TestPowerCuts(t *testing.T) {
	seed := fromEnvironment(t, "CRASH_SEED", uint64(time.Now().UnixNano()))
	count := fromEnvironment(t, "CRASH_ITERATIONS", crashes)
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
	t.Logf("CRASH_SEED=%d: %d lives of a host, processes ended by %v", seed, count, deaths)
}

// powerRig is a rig whose power can be cut.
type powerRig struct {
	*rig
	random *rand.Rand
	disk   *platters
	boots  int
	deaths map[string]int
}

// through is the whole life of one host.
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
		return errors.New("what was executed was not taken back")
	case r.scripts["operations/bootstrap-a"] != ran:
		return errors.New("the script ran again")
	}
	return nil
}

// liveUntil runs the agent, in as many lives as it takes, the first of which end
// by a crash, until the manager has what it waits for.
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
	return errors.New("it is stuck")
}

func (r *powerRig) boot() {
	r.boots++
	r.bootID = "boot-" + strconv.Itoa(r.boots)
}

// liveOnce is one process. It reports whether the manager has what it waits for.
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

// watchOver waits for the process to die or for the manager to have what it
// waits for.
func (r *powerRig) watchOver(met func(*manager) bool) (done bool, err error) {
	patience := time.After(20 * time.Second)
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
		case <-patience:
			return false, errors.New("the agent neither died nor got there")
		}
	}
}

// fall decides what ended the process.
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
