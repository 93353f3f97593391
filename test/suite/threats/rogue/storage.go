package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
)

const (
	// fills is how many reports are sent as fast as the network allows.
	fills = 120
	// flips is how many small reports change what Events tell.
	flips = 120
)

func (r *rogue) storageAttempts() []attempt {
	return []attempt{
		{"forge Events with small reports", r.flip},
		{"fill its status", r.fillOwn},
		{"fill the status of a pending host", func(ctx context.Context, t *tally) error {
			c, err := r.newCaller(source(5))
			if err != nil {
				return err
			}
			defer c.hangUp()
			body, err := r.huge("enrol")
			if err != nil {
				return err
			}
			delete(body, "previous")
			t.enrolled(c.call(ctx, request{operation: "enrol", token: r.ManualToken, body: body}))
			return r.fill(ctx, t, c)
		}},
	}
}

// fillOwn waits until the main host may write again, as the Events have used up its budget, and fills its status.
func (r *rogue) fillOwn(ctx context.Context, t *tally) error {
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		body, err := r.heavy(64)
		if err != nil {
			return err
		}
		if t.add(r.main.report(waiting, body)).status == http.StatusNoContent {
			return r.fill(ctx, t, r.main)
		}
		if !pause(waiting, time.Second) {
			return errors.New("no large report was accepted")
		}
	}
}

// fill sends the largest reports that the document allows.
func (r *rogue) fill(ctx context.Context, t *tally, c *caller) error {
	return each(ctx, fills, 4, func(ctx context.Context, i int) error {
		body, err := r.huge("report")
		if i%2 == 0 {
			body, err = r.heavy(64)
		}
		if err != nil {
			return err
		}
		delete(body, "operations")
		delete(body, "endpoint")
		t.add(c.report(ctx, body))
		return nil
	})
}

// heavy is a report with that many disks and hardly anything else: lists that are too long are cut, so that less may be
// stored of a larger report.
func (r *rogue) heavy(disks int) (map[string]any, error) {
	body, err := largest{
		document: r.document, text: "<", length: 48, items: 16, lists: map[string]int{"disks": disks, "nics": 0, "addresses": 0},
	}.body("report")
	if err != nil {
		return nil, err
	}
	// A part that is refused has the whole report refused.
	delete(body, "operations")
	delete(body, "endpoint")
	return body, nil
}

// flip changes its cleanliness and its clock, which Events tell, as often as allowed.
func (r *rogue) flip(ctx context.Context, t *tally) error {
	return each(ctx, flips, 2, func(ctx context.Context, i int) error {
		clock := "2001-01-01T00:00:00Z"
		if i%2 == 0 {
			clock = "2037-01-01T00:00:00Z"
		}
		t.add(r.main.report(ctx, map[string]any{
			"hello":       map[string]any{"protocol": 1, "agentVersion": "v9.9.9", "bootID": mainBoot, "time": clock},
			"cleanliness": map[string]any{"clean": i%2 == 0, "leftovers": []string{strings.Repeat("<", i)}},
		}))
		return nil
	})
}
