package forwarder_test

import (
	"fmt"
	"path/filepath"
	"testing"
)

// An update of the agent replaces its program. Connections stay, and none is refused.
func TestHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	backend := serve(t, "first")
	r.mustEnsure(backend)
	former := r.only()
	c, _ := r.connect()
	accepting := r.watch()
	original := r.Command[0]
	r.Command = []string{filepath.Join(r.Dir, "newer"), command}
	copyFile(t, original, r.Command[0])
	// Programs connect all the time.
	handedOver, connected := make(chan struct{}), make(chan int)
	go func() {
		for n := 1; ; n++ {
			c, name, err := r.tryConnect()
			if err != nil || name != "first\n" {
				t.Errorf("connection %d got %q, %v", n, name, err)
			} else {
				_ = c.Close()
			}
			select {
			case <-handedOver:
				connected <- n
				return
			default:
			}
		}
	}()
	err := r.ensure(backend)
	if err == nil {
		await(t, "the former process no longer accepts", accepting)
	}
	close(handedOver)
	t.Logf("%d connections during the hand-over", <-connected)
	if err != nil {
		t.Fatal(err)
	}
	if !c.works(t) {
		t.Error("a connection was cut off")
	}
	later, name := r.connect()
	if name != "first\n" || len(r.Processes()) != 2 {
		t.Errorf("got %q of processes %v", name, r.Processes())
	}
	// The former process ends with its last connection.
	gone := exit(t, former)
	_ = c.Close()
	await(t, "the former process has ended", gone)
	if !later.works(t) {
		t.Error("a later connection was cut off")
	}
	if got := r.only(); got == former {
		t.Error("the newer process has ended")
	}
}

// Further updates cut off no connection from before the first one. Processes in between,
// which nothing has connected to, end.
func TestSeveralHandOvers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	backend := serve(t, "first")
	r.mustEnsure(backend)
	first := r.only()
	c, _ := r.connect()
	original := r.Command[0]
	for i := range 4 {
		accepting := r.watch()
		var between []<-chan error
		for _, pid := range r.Processes() {
			if pid != first {
				between = append(between, exit(t, pid))
			}
		}
		r.Command = []string{filepath.Join(r.Dir, fmt.Sprint("newer", i)), command}
		copyFile(t, original, r.Command[0])
		r.mustEnsure(backend)
		await(t, "the former process no longer accepts", accepting)
		for _, ended := range between {
			await(t, "a process without connections has ended", ended)
		}
		if !c.works(t) {
			t.Fatalf("a connection was cut off by update %d", i+1)
		}
	}
	gone := exit(t, first)
	_ = c.Close()
	await(t, "the first process has ended", gone)
	if _, name := r.connect(); name != "first\n" {
		t.Errorf("got %q", name)
	}
	r.only()
}

// Who gets the lock knows that no former process is there either.
func TestStopEndsFormerProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	backend := serve(t, "first")
	r.mustEnsure(backend)
	c, _ := r.connect()
	original := r.Command[0]
	r.Command = []string{filepath.Join(r.Dir, "newer"), command}
	copyFile(t, original, r.Command[0])
	r.mustEnsure(backend)
	if !c.works(t) {
		t.Error("a connection was cut off")
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if pids := r.Processes(); len(pids) != 0 || c.works(t) {
		t.Errorf("processes %v", pids)
	}
}

// A newer program that cannot forward leaves the former one as it is.
func TestNewerProgramThatFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	backend := serve(t, "first")
	r.mustEnsure(backend)
	c, _ := r.connect()
	good := r.Command
	r.Command = []string{filepath.Join(r.Dir, "newer"), command}
	writeProgram(t, r.Command[0], []byte("#!/bin/sh\nexit 1\n"))
	if err := r.ensure(backend); err == nil {
		t.Error("no error")
	}
	if _, name := r.connect(); name != "first\n" || !c.works(t) {
		t.Errorf("got %q", name)
	}
	r.Command = good
	r.mustEnsure(backend)
	r.only()
}
