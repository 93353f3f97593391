package forward_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func (r *rig) wantServer(want string) program {
	r.t.Helper()
	p, got := r.connect()
	if got != want {
		r.t.Errorf("got %q, want %q", got, want)
	}
	return p
}

func TestOrder(t *testing.T) {
	r := newRig(t, own, second, third)
	r.SetBackends([]string{second, third})
	r.wantServer(second)
	r.stop(second)
	r.wantServer(third)
	// The one that was connected to last comes first.
	r.serve(second)
	r.attempts()
	r.wantServer(third)
	if got := r.attempts(); !slices.Equal(got, []string{third}) {
		t.Errorf("tried %v", got)
	}
	// The host's own comes before it, from the moment at which there is one.
	r.set(func() { r.own = own })
	r.wantServer(own)
	r.stop(own)
	r.attempts()
	r.wantServer(third)
	if got := r.attempts(); !slices.Equal(got, []string{own, third}) {
		t.Errorf("tried %v", got)
	}
	r.serve(own)
	r.wantServer(own)
}

// A host without a plan reaches its own API server.
func TestWithoutBackends(t *testing.T) {
	r := newRig(t, own)
	r.wantServer("")
	r.set(func() { r.own = own })
	r.wantServer(own)
}

// If none accepts, the next connection tries all again.
func TestAllFail(t *testing.T) {
	r := newRig(t)
	r.set(func() { r.own = own })
	r.SetBackends([]string{second, third})
	r.wantServer("")
	r.wantServer("")
	if got := r.attempts(); !slices.Equal(got, []string{own, second, third, own, second, third}) {
		t.Errorf("tried %v", got)
	}
	r.serve(third)
	r.wantServer(third)
}

func TestBackendThatDoesNotAnswer(t *testing.T) {
	r := newRig(t, third)
	r.set(func() { r.silent = []string{second} })
	r.SetBackends([]string{second, third})
	go func() {
		select {
		case r.timeouts <- struct{}{}:
		case <-t.Context().Done():
		}
	}()
	r.wantServer(third)
	if got := r.attempts(); !slices.Equal(got, []string{second, third}) {
		t.Errorf("tried %v", got)
	}
}

func TestRemovedBackend(t *testing.T) {
	r := newRig(t, own, second, third)
	r.SetBackends([]string{second, third})
	removed := r.wantServer(second)
	r.set(func() { r.own = own })
	kept := r.wantServer(own)
	r.SetBackends([]string{third})
	if line := removed.readLine(); line != "" {
		t.Errorf("got %q of a removed backend", line)
	}
	if !kept.works() {
		t.Error("closed a connection to another backend")
	}
	r.stop(own)
	r.wantServer(third)
	// The host's own API server is gone as well, as after a reset.
	r.set(func() { r.own = "" })
	r.tick(1)
	if line := kept.readLine(); line != "" {
		t.Errorf("got %q of an API server that is no longer the host's", line)
	}
}

// Two checks in a row must fail. Then the connections are closed, and others are preferred
// until it answers again.
func TestSickBackend(t *testing.T) {
	r := newRig(t, own, second, third)
	r.set(func() { r.own = own })
	r.SetBackends([]string{second, third})
	p := r.wantServer(own)
	r.set(func() { r.sick = []string{own} })
	r.tick(1)
	r.set(func() { r.sick = nil })
	r.tick(1)
	r.set(func() { r.sick = []string{own} })
	r.tick(1)
	if !p.works() {
		t.Fatal("closed after one failure")
	}
	r.wantServer(own)
	r.tick(1)
	if line := p.readLine(); line != "" {
		t.Errorf("got %q of a sick backend", line)
	}
	other := r.wantServer(second)
	// A sick one is checked although nothing is connected to it.
	if got := r.tick(2); !slices.Equal(got, []string{own, second}) {
		t.Errorf("checked %v", got)
	}
	// It is better than none.
	r.stop(second)
	r.stop(third)
	r.wantServer(own)
	r.serve(second)
	r.set(func() { r.sick = nil })
	r.tick(2)
	r.wantServer(own)
	if !other.works() {
		t.Error("closed a connection to another backend")
	}
}

// What is not used is not asked.
func TestUnusedBackendsAreNotChecked(t *testing.T) {
	r := newRig(t, second, third)
	r.SetBackends([]string{second, third})
	r.tick(0)
	r.wantServer(second)
	if got := r.tick(1); !slices.Equal(got, []string{second}) {
		t.Errorf("checked %v", got)
	}
	if len(r.checked) != 0 {
		t.Errorf("also checked %s", <-r.checked)
	}
}

// The end of one direction is passed on, and the other one stays open.
func TestHalfClose(t *testing.T) {
	r := newRig(t, second)
	r.SetBackends([]string{second})
	p := r.wantServer(second)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = p.Write(sent)
		_ = p.CloseWrite()
	}()
	got, err := io.ReadAll(p)
	if err != nil || !bytes.Equal(got, append(sent, "end"...)) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// A backend's reset is no orderly end.
func TestReset(t *testing.T) {
	r := newRig(t, second)
	r.SetBackends([]string{second})
	p := r.wantServer(second)
	r.SetBackends(nil)
	if _, err := p.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || isTimeout(err) {
		t.Errorf("got %v", err)
	}
}

func TestConnectionLimit(t *testing.T) {
	r := newRig(t, second)
	r.SetBackends([]string{second})
	var programs []program
	for range 1024 {
		programs = append(programs, r.wantServer(second))
	}
	r.wantServer("")
	if n := r.Connections(); n != 1024 {
		t.Errorf("%d connections", n)
	}
	if err := programs[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := programs[1].CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(programs[1]); err != nil || !strings.HasSuffix(string(rest), "end") {
		t.Errorf("got %q, %v", rest, err)
	}
	if !programs[2].works() {
		t.Error("a connection ended because of another one")
	}
	// A connection that has ended makes room.
	for r.Connections() == 1024 {
		if !programs[3].works() {
			t.Fatal("a connection ended because of another one")
		}
	}
	r.wantServer(second)
}

func TestClose(t *testing.T) {
	r := newRig(t, second)
	r.SetBackends([]string{second})
	p := r.wantServer(second)
	r.Close()
	if line := p.readLine(); line != "" || r.Connections() != 0 {
		t.Errorf("got %q, %d connections", line, r.Connections())
	}
	r.wantServer("")
}
