package client_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// laterClock is a clock that a test moves.
type laterClock struct {
	mu     sync.Mutex
	offset time.Duration
}

func (c *laterClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *laterClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// The manager takes a request with the old key after one with the new key as a sign of
// a copied key.
func TestThreat05_NoRequestOfTheOldKeyAfterTheSwitch(t *testing.T) {
	var mu sync.Mutex
	var order []string
	arrived, answer := make(chan struct{}, 1), make(chan struct{})
	s, bundle := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == protocol.PathReport {
			arrived <- struct{}{}
			<-answer
		}
		key, _ := identity.PeerFingerprint(r.TLS)
		mu.Lock()
		order = append(order, key)
		mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	})
	clock := &laterClock{}
	options := func(o *client.Options) { o.Servers, o.TrustBundle, o.Now = []string{s.URL}, bundle, clock.now }
	before, after := connect(t, options), connect(t, options)
	clock.pass(3 * time.Minute)

	reported := make(chan error, 1)
	go func() { reported <- before.Report(t.Context(), protocol.Report{}) }()
	<-arrived
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := before.HandOver(ended, after, func() error { return nil }); !errors.Is(err, client.ErrBusy) {
		t.Fatalf("switched while a request with the old key was open: %v", err)
	}
	committed, handed := make(chan struct{}), make(chan error, 1)
	go func() {
		handed <- before.HandOver(t.Context(), after, func() error {
			close(committed)
			return nil
		})
	}()
	select {
	case <-committed:
		t.Fatal("switched while a request with the old key was open")
	case answer <- struct{}{}:
	}
	if err := errors.Join(<-reported, <-handed); err != nil {
		t.Fatal(err)
	}
	// The former client uses the new key after the hand-over.
	if _, err := before.Plan(t.Context(), "", ""); err != nil {
		t.Fatal(err)
	}
	if len(order) != 2 || order[0] == order[1] {
		t.Errorf("requests by %v", order)
	}
}

func TestThreat05_HandOverWaitsForQuiet(t *testing.T) {
	s, bundle := serving(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == protocol.PathReport {
			panic(http.ErrAbortHandler)
		}
	})
	clock := &laterClock{}
	options := func(o *client.Options) { o.Servers, o.TrustBundle, o.Now = []string{s.URL}, bundle, clock.now }
	before, after := connect(t, options), connect(t, options)
	hand := func() error { return before.HandOver(t.Context(), after, func() error { return nil }) }
	if err := hand(); !errors.Is(err, client.ErrBusy) {
		t.Errorf("a former process may have an open request: %v", err)
	}
	clock.pass(3 * time.Minute)
	if err := before.Report(t.Context(), protocol.Report{}); err == nil {
		t.Fatal("the request was answered")
	}
	if err := hand(); !errors.Is(err, client.ErrBusy) || before.IsQuiet() {
		t.Errorf("a request failed just now: %v", err)
	}
	clock.pass(3 * time.Minute)
	refused := errors.New("refused")
	if err := before.HandOver(t.Context(), after, func() error { return refused }); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	if err := hand(); err != nil {
		t.Errorf("after a quiet time: %v", err)
	}
}

func TestHandOverGivesUp(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	s, bundle := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-answer
		w.WriteHeader(http.StatusNoContent)
	})
	clock := &laterClock{}
	options := func(o *client.Options) { o.Servers, o.TrustBundle, o.Now = []string{s.URL}, bundle, clock.now }
	first, second, third := connect(t, options), connect(t, options), connect(t, options)
	clock.pass(3 * time.Minute)
	reported := make(chan error, 1)
	go func() { reported <- first.Report(t.Context(), protocol.Report{}) }()
	<-arrived
	// Open requests with the same key to other servers count as well.
	first.Follow(second)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.HandOver(ended, third, func() error { return nil }); !errors.Is(err, client.ErrBusy) {
		t.Errorf("switched: %v", err)
	}
	close(answer)
	if err := <-reported; err != nil {
		t.Error(err)
	}
	if err := second.HandOver(t.Context(), third, func() error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestUnreachable(t *testing.T) {
	refuses, bundle := serving(t, reply(http.StatusServiceUnavailable, "", ""))
	_, other := serving(t, reply(http.StatusNoContent, "", ""))
	const closed = "https://127.0.0.1:1"
	for name, test := range map[string]struct {
		servers []string
		bundle  string
		want    bool
	}{
		"nobody listens":          {[]string{closed}, bundle, true},
		"no such name":            {[]string{"https://host.invalid", closed}, bundle, true},
		"one refuses":             {[]string{closed, refuses.URL}, bundle, false},
		"one can't be trusted":    {[]string{closed, refuses.URL}, other, false},
		"the only server refuses": {[]string{refuses.URL}, bundle, false},
	} {
		c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = test.servers, test.bundle })
		if _, err := c.Plan(t.Context(), "", ""); client.Unreachable(err) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
