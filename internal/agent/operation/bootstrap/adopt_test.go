package bootstrap_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// running is a host with a Node: its Adopter and its ProviderIDSetter. The fields of the Runner
// that an adoption must not use are nil, so that their use ends the test.
type running struct {
	// refusal is why it can't be adopted, and failure why its providerID can't be set.
	refusal, failure error
	// noKubelet: it has lost its kubelet since the check.
	noKubelet bool
	// events are the calls, in order.
	events []string
}

func (h *running) Check(_ context.Context, want protocol.Adoption) error {
	h.events = append(h.events, fmt.Sprintf("check %s for %s", want.NodeName, want.Endpoint))
	return h.refusal
}

func (h *running) SetProviderID(_ context.Context, providerID string) (bool, error) {
	h.events = append(h.events, "set "+providerID)
	return h.failure == nil && !h.noKubelet, h.failure
}

func adoptionOf(id string) state.Operation {
	return state.Operation{
		Operation: protocol.Operation{
			Type: protocol.OperationBootstrap, ID: id,
			Adoption: &protocol.Adoption{NodeName: "node-1", ProviderID: "elemental://1", Endpoint: "api.example.com:6443"},
		},
	}
}

func TestAdopts(t *testing.T) {
	t.Parallel()
	checked, set := "check node-1 for api.example.com:6443", "set elemental://1"
	for name, test := range map[string]struct {
		host   running
		want   operation.Result
		steps  []string
		events []string
	}{
		"the wanted Node": {
			running{}, operation.Result{State: protocol.StateSucceeded}, []string{"adopt", "node"}, []string{checked, set},
		},
		"another Node": {
			running{refusal: errors.New("the Node is named x")},
			operation.Result{State: protocol.StateFailed, Step: "adopt", Message: "the Node is named x"}, []string{"adopt"}, []string{checked},
		},
		"another providerID": {
			running{failure: errors.New("it has another one")},
			operation.Result{State: protocol.StateFailed, Step: "node", Message: "it has another one"}, []string{"adopt", "node"}, []string{checked, set},
		},
		"no kubelet": {
			running{noKubelet: true}, operation.Result{
				State: protocol.StateFailed, Step: "node", Message: "the host has no kubelet any more, so there is no Node to take over",
			}, []string{"adopt", "node"}, []string{checked, set},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, host, steps := t.TempDir(), test.host, []string(nil)
			documents, err := state.NewDir(folder)
			if err != nil {
				t.Fatal(err)
			}
			runner := &bootstrap.Runner{Documents: documents, Adopter: &host, ProviderID: &host, Log: slog.New(slog.DiscardHandler)}
			got, err := runner.Run(t.Context(), adoptionOf("a"), func(step string) { steps = append(steps, step) })
			if err != nil || got.State != test.want.State || got.Step != test.want.Step || got.Message != test.want.Message {
				t.Errorf("got %+v, %v", got, err)
			}
			if !slices.Equal(steps, test.steps) || !slices.Equal(host.events, test.events) {
				t.Errorf("got steps %q, events %q", steps, host.events)
			}
			if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
				t.Errorf("the adoption has recorded %v, %v", entries, err)
			}
		})
	}
}

// What can't be checked now is checked again, and dropped if nobody wants it any more.
func TestAdoptsLater(t *testing.T) {
	t.Parallel()
	host := &running{refusal: fmt.Errorf("%w: etcd is away", operation.ErrNothingDone)}
	runner := &bootstrap.Runner{Adopter: host, ProviderID: host}
	if got, err := runner.Run(t.Context(), adoptionOf("a"), func(string) {}); !errors.Is(err, operation.ErrNothingDone) || got.State != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	host.refusal = context.Canceled
	if got, err := runner.Run(stopped, adoptionOf("a"), func(string) {}); !errors.Is(err, context.Canceled) || got.State != "" {
		t.Errorf("the agent stops: got %+v, %v", got, err)
	}
	if slices.Contains(host.events, "set elemental://1") {
		t.Errorf("got %q", host.events)
	}
}

func TestAdoptionIsNotSupported(t *testing.T) {
	t.Parallel()
	host := &running{}
	got, err := (&bootstrap.Runner{ProviderID: host}).Run(t.Context(), adoptionOf("a"), func(string) {})
	if err != nil || got.State != protocol.StateUnsupported || len(host.events) > 0 {
		t.Errorf("got %+v, %v, events %q", got, err, host.events)
	}
}
