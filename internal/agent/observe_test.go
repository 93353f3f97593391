package agent

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/preflight"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// slowHost is a host whose first look-ups take until answer is closed, and find what was so
// when they began.
type slowHost struct {
	platform.Platform

	first         sync.Once
	asked, answer chan struct{}
}

// isFirst reports whether a look-up is the first, which it delays.
func (h *slowHost) isFirst() (first bool) {
	h.first.Do(func() { first = true })
	if first {
		close(h.asked)
		<-h.answer
	}
	return first
}

func (h *slowHost) Cleanliness(context.Context) (protocol.Cleanliness, error) {
	return protocol.Cleanliness{Clean: !h.isFirst()}, nil
}

func (h *slowHost) Addresses(context.Context) ([]protocol.Address, error) {
	if h.isFirst() {
		return []protocol.Address{{Address: "192.0.2.1"}}, nil
	}
	return []protocol.Address{{Address: "192.0.2.2"}}, nil
}

func (h *slowHost) Inventory(context.Context) (protocol.Inventory, error) {
	if h.isFirst() {
		return protocol.Inventory{MachineID: "former"}, nil
	}
	return protocol.Inventory{MachineID: "present"}, nil
}

func (h *slowHost) Kubernetes(context.Context) (protocol.Kubernetes, error) {
	if h.isFirst() {
		return protocol.Kubernetes{Kubelet: protocol.Program{Path: "former"}}, nil
	}
	return protocol.Kubernetes{Kubelet: protocol.Program{Path: "present"}}, nil
}

// A look-up that takes long, as of an enrolment, may end after one that began after the end
// of an operation.
func TestSlowLookUpReplacesNoLaterOne(t *testing.T) {
	for name, test := range map[string]struct {
		observe   func(*observer, context.Context)
		isPresent func(observation) bool
	}{
		"cleanliness": {(*observer).observeCleanliness, func(o observation) bool { return o.cleanliness.Clean }},
		"addresses": {
			func(o *observer, ctx context.Context) { o.observeAddresses(ctx) },
			func(o observation) bool { return o.addresses[0].Address == "192.0.2.2" },
		},
		"kubernetes": {
			func(o *observer, ctx context.Context) { o.observeKubernetes(ctx) },
			func(o observation) bool { return o.inventory.Kubernetes.Kubelet.Path == "present" },
		},
		"preflight": {
			func(o *observer, ctx context.Context) { o.observePreflight(ctx) },
			func(o observation) bool { return o.inventory.Preflight.CgroupVersion == 2 },
		},
		"inventory": {(*observer).observeInventory, func(o observation) bool { return o.inventory.MachineID == "present" }},
	} {
		t.Run(name, func(t *testing.T) {
			host := &slowHost{asked: make(chan struct{}), answer: make(chan struct{})}
			o := &observer{platform: host, facts: &facts{}, starting: preflight.NewWatch(nil, nil), log: slog.New(slog.DiscardHandler)}
			var slow sync.WaitGroup
			slow.Go(func() { test.observe(o, t.Context()) })
			<-host.asked
			test.observe(o, t.Context())
			close(host.answer)
			slow.Wait()
			if now := o.facts.current(); !test.isPresent(now) {
				t.Errorf("the facts are those of the first look-up: %+v", now)
			}
		})
	}
}

func (h *slowHost) Preflight(context.Context) (protocol.Preflight, error) {
	if h.isFirst() {
		return protocol.Preflight{CgroupVersion: 1}, nil
	}
	return protocol.Preflight{CgroupVersion: 2}, nil
}
