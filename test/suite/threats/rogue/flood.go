package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// away is longer than a host may be gone before the manager records that it is: it records its return too.
	away = 125 * time.Second
	// pace is the time from a refusal to the next request.
	pace = time.Second
	// spread is the time over which strangers begin.
	spread = 10 * time.Second
)

// flood writes as much as it can until ctx ends. Then it prints the number of hosts and the answers.
func (r *rogue) flood(ctx context.Context, out io.Writer) error {
	t := &tally{answers: map[string]int{}, hosts: map[string]bool{}}
	var group sync.WaitGroup
	if r.Strangers == 0 {
		c, err := r.newCaller(source(0))
		if err != nil {
			return err
		}
		group.Go(func() { r.writer(ctx, t, c, r.Token, 64) })
	}
	for i := range r.Strangers {
		c, err := r.newCaller(source(1 + i))
		if err != nil {
			return err
		}
		group.Go(func() {
			if pause(ctx, spread*time.Duration(i)/time.Duration(r.Strangers)) {
				r.writer(ctx, t, c, "", 1)
			}
		})
	}
	group.Wait()
	if err := json.NewEncoder(out).Encode(map[string]any{"hosts": len(t.hosts), "answers": t.answers}); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// writer enrols, by a token or as a host that claims to have been one, and has the manager write. disks is
// the number of disks in its reports.
func (r *rogue) writer(ctx context.Context, t *tally, c *caller, token string, disks int) {
	defer c.hangUp()
	for {
		body := c.modest("boot")
		report, err := r.heavy(disks)
		if err != nil {
			return
		}
		body["inventory"] = report["inventory"]
		if token == "" {
			body["previous"] = map[string]any{"hostID": "x", "namespace": r.Namespace, "name": fmt.Sprintf("stranger-%s", c.from)}
		}
		if t.enrolled(c.call(ctx, request{operation: "enrol", token: token, body: body})) != "" {
			break
		}
		if !pause(ctx, pace) {
			return
		}
	}
	var group sync.WaitGroup
	defer group.Wait()
	// The manager records when a host goes and when it comes back.
	group.Go(func() {
		for ctx.Err() == nil {
			c.poll(ctx, "", "boot")
			pause(ctx, away)
		}
	})
	if token != "" {
		group.Go(func() { askForTunnels(ctx, t, c) })
	}
	for beat := 0; ctx.Err() == nil; beat++ {
		body, err := r.heavy(disks)
		if err != nil {
			return
		}
		// Each report makes Events.
		body["cleanliness"] = map[string]any{"clean": beat%2 == 0, "leftovers": []string{"<<<<"}}
		if t.add(c.report(ctx, body)).status != http.StatusNoContent {
			pause(ctx, pace)
		}
	}
}

// askForTunnels asks for tunnels, which the host should not have, as fast as the manager answers, until ctx ends.
func askForTunnels(ctx context.Context, t *tally, c *caller) {
	text, err := (&tunnels{rogue: c.rogue}).upgrade("boot")
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		conn, got := c.ask(ctx, text)
		if conn != nil {
			_ = conn.Close()
		}
		if t.add(got).status != http.StatusForbidden {
			pause(ctx, pace)
		}
	}
}
