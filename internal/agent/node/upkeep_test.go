package node_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/node"
)

// changes records what is set.
type changes struct {
	made []string
	err  error
}

func (c *changes) SetProviderID(_ context.Context, providerID string) (bool, error) {
	c.made = append(c.made, providerID)
	return c.err == nil, c.err
}

func (c *changes) SetLabels(_ context.Context, labels map[string]string) (bool, error) {
	c.made = append(c.made, labels["zone"])
	return c.err == nil, c.err
}

// run makes changes until none is due, and returns them.
func (c *changes) run(ctx context.Context, u *node.Upkeep, providerID, zone string) []string {
	c.made = nil
	for range 5 {
		var labels map[string]string
		if zone != "" {
			labels = map[string]string{"zone": zone}
		}
		change := u.Next(providerID, labels)
		if change == nil {
			break
		}
		change(ctx)
	}
	return c.made
}

func TestUpkeep(t *testing.T) {
	c := &changes{}
	u := node.NewUpkeep(c, slog.New(slog.DiscardHandler))
	ended, end := context.WithCancel(t.Context())
	end()
	for _, step := range []struct {
		name             string
		ctx              context.Context
		forget           bool
		known            string
		err              error
		providerID, zone string
		want             []string
	}{
		{name: "a host that is no Node"},
		{name: "a new Node", providerID: "1", zone: "a", want: []string{"1", "a"}},
		{name: "nothing new", providerID: "1", zone: "a"},
		{name: "another zone", providerID: "1", zone: "b", want: []string{"b"}},
		{name: "no zone: none is removed", providerID: "1"},
		{name: "after a bootstrap", forget: true, known: "1", providerID: "1", zone: "b", want: []string{"b"}},
		{name: "after a reset", forget: true, providerID: "1", zone: "b", want: []string{"1", "b"}},
		{name: "a failure is not repeated", err: errors.New("forbidden"), providerID: "1", zone: "c", want: []string{"c"}},
		{name: "an interruption is", ctx: ended, providerID: "1", zone: "d", want: []string{"d", "d", "d", "d", "d"}},
		{name: "afterwards", providerID: "1", zone: "d", want: []string{"d"}},
	} {
		if step.ctx == nil {
			step.ctx = t.Context()
		}
		if step.forget {
			u.Forget(step.known)
		}
		c.err = step.err
		if got := c.run(step.ctx, u, step.providerID, step.zone); !slices.Equal(got, step.want) {
			t.Errorf("%s: set %q, want %q", step.name, got, step.want)
		}
	}
}
