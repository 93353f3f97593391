package agent_test

import (
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// rotated is a condition: the host uses another key.
func rotated(m *manager) bool { return m.generation > 1 && m.next == "" }

// aged makes the key older than the rotation interval, and lets time pass between
// requests.
func (r *rig) aged() {
	r.clock.mu.Lock()
	r.clock.step = 5 * time.Minute
	r.clock.mu.Unlock()
	r.manager.set(func(m *manager) { m.now = func() time.Time { return time.Now().Add(48 * time.Hour) } })
	r.manager.want(nil, protocol.Desired{})
}

func TestRotatesAnOldKey(t *testing.T) {
	r := newRig(t)
	stop := r.start()
	r.manager.await(t, "connected", func(m *manager) bool { return m.polls > 0 })
	first := r.manager.known()
	r.aged()
	r.manager.await(t, "the key is rotated", rotated)
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "operations work with the new key", ended("a", protocol.StateSucceeded))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(r.disk)
	if err != nil {
		t.Fatal(err)
	}
	if who := store.Identity(); who.PendingKey != "" || who.Generation != 2 || who.HostID != "id-1" || r.manager.key == first {
		t.Errorf("after the rotation: generation %d, pending %t", who.Generation, who.PendingKey != "")
	}
	if r.manager.enrolments != 1 || r.manager.rotations != 1 {
		t.Errorf("enrolled %d times, rotated %d times", r.manager.enrolments, r.manager.rotations)
	}
}

// The manager accepted the next key, but its answer was lost. The host offers the same
// key again.
func TestRotationSurvivesALostAnswer(t *testing.T) {
	r := newRig(t)
	r.start()
	r.manager.await(t, "connected", func(m *manager) bool { return m.polls > 0 })
	var lost atomic.Int32
	r.manager.set(func(m *manager) {
		m.lose = func(path string) bool { return path == protocol.PathRotate && lost.Add(1) == 1 }
	})
	r.aged()
	r.manager.await(t, "the manager has accepted the key", func(m *manager) bool { return m.rotations == 1 })
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "the key is rotated", rotated)
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	if r.manager.enrolments != 1 || r.manager.rotations != 2 || r.manager.locked != "" {
		t.Errorf("enrolled %d times, rotated %d times", r.manager.enrolments, r.manager.rotations)
	}
}

// The successor may know the host already, and would take the former key for that of a copied disk. So the host does not
// change its key while it tries the successor.
func TestTriesNoSuccessorDuringARotation(t *testing.T) {
	r := newRig(t)
	successor := newManager(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	successor.set(func(m *manager) {
		m.refuse = func(string) *protocol.Problem {
			once.Do(func() { close(asked) })
			<-answer
			return &protocol.Problem{Type: protocol.ProblemUnknownHost, Status: http.StatusForbidden}
		}
	})
	r.start()
	r.manager.want(nil, successor.successor())
	<-asked
	r.aged()
	r.manager.want(nil, successor.successor())
	r.manager.await(t, "the host polls again", taken)
	polls := r.manager.count(&r.manager.polls)
	r.manager.want(nil, protocol.Desired{Hostname: "node-1", Successor: successor.successor().Successor})
	r.manager.await(t, "the host polls again", func(m *manager) bool { return m.polls > polls })
	if n := r.manager.count(&r.manager.rotations); n != 0 {
		t.Errorf("the host rotated its key %d times while the successor was asked", n)
	}
	close(answer)
	r.manager.await(t, "the successor was reached", hasReached(successor.successor().Successor, true))
	r.manager.want(nil, successor.successor())
	r.manager.await(t, "the key is rotated", rotated)
}

func TestRotationSurvivesEveryCrash(t *testing.T) {
	everyCrash(t, 8, func(t *testing.T, step int, after bool) {
		r := newRig(t)
		stop := r.start()
		r.manager.await(t, "connected", func(m *manager) bool { return m.polls > 0 })
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		r.aged()
		r.manager.want(bootstrapOf("a"), protocol.Desired{})
		r.runUntilEnded(t, "a", step, after)
		r.disk = r.disk.reborn(-1, false)
		r.start()
		r.manager.await(t, "the key is rotated", rotated)
		r.manager.want(bootstrapOf("b"), protocol.Desired{})
		r.manager.await(t, "the second bootstrap has a result", func(m *manager) bool { return m.operations["b"].State.Final() })
		if r.manager.enrolments != 1 || r.manager.locked != "" {
			t.Errorf("enrolled %d times, locked: %s", r.manager.enrolments, r.manager.locked)
		}
	})
}

func TestAdoptsServersThatWork(t *testing.T) {
	r := newRig(t)
	other := newManager(t)
	stop := r.start()
	r.manager.await(t, "connected", func(m *manager) bool { return m.polls > 0 })
	key := r.manager.known()
	other.set(func(m *manager) { m.key = key })
	bundle := r.manager.bundle + other.bundle
	// A trust bundle that does not match the servers would disconnect the host.
	_, wrong := serverCertificate(t, time.Now(), time.Now().Add(time.Hour))
	r.manager.want(nil, protocol.Desired{Servers: []string{r.manager.server.URL}, TrustBundle: wrong})
	r.manager.await(t, "the host keeps its working servers", taken)
	r.manager.want(nil, protocol.Desired{Servers: []string{other.server.URL, r.manager.server.URL}, TrustBundle: bundle})
	other.await(t, "the host polls the new server", func(m *manager) bool { return m.polls > 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// The first manager fails permanently. The host uses the other one.
	r.manager.server.CloseClientConnections()
	r.manager.set(func(m *manager) {
		m.refuse = func(string) *protocol.Problem { return &protocol.Problem{Status: 503} }
	})
	r.start()
	other.want(bootstrapOf("a"), protocol.Desired{})
	other.await(t, "the other manager's plan is carried out", ended("a", protocol.StateSucceeded))
	if r.manager.enrolments != 1 || other.enrolments != 0 {
		t.Errorf("enrolled %d and %d times", r.manager.enrolments, other.enrolments)
	}
}

// A plan with the servers and trust bundle in use is stored without a trial
// connection.
func TestStoresServersInUseWithoutATrial(t *testing.T) {
	r := newRig(t)
	r.manager.want(nil, protocol.Desired{Servers: []string{r.manager.server.URL}, TrustBundle: r.manager.bundle})
	stop := r.start()
	r.manager.await(t, "a poll after that plan", func(m *manager) bool { return m.taken == m.plan.Revision })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, report := range r.manager.reports {
		if reflect.DeepEqual(report, protocol.Report{}) {
			t.Error("made a trial connection to the servers in use")
		}
	}
	if !strings.Contains(r.disk.content["trust.json"], r.manager.server.URL) {
		t.Errorf("trust.json is %s", r.disk.content["trust.json"])
	}
}

func TestRefusedTokenDoesNotEnrol(t *testing.T) {
	r := newRig(t)
	r.token = "expired"
	a, err := r.agent()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Enrol(t.Context()); !client.IsProblem(err, protocol.ProblemTokenRefused) {
		t.Fatalf("enrolled with a wrong token: %v", err)
	}
	key := r.disk.content["identity.json"]
	r.token = token
	r.start()
	r.manager.await(t, "the host is enrolled", func(m *manager) bool { return m.enrolments == 1 })
	if key == "" {
		t.Error("the key was not kept")
	}
}
