package endpoint_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func local(backends ...string) *protocol.Endpoint {
	return &protocol.Endpoint{Host: "shop.example.com", Port: 16443, Local: &protocol.LocalEndpoint{Backends: backends}}
}

// The bootstrap uses the endpoint, so it is served before.
func TestServesALocalEndpointBeforeTheBootstrap(t *testing.T) {
	b := newBox(t)
	if err := b.applier().Prepare(t.Context(), local("10.0.0.2:6443"), nil); err != nil {
		t.Fatal(err)
	}
	if b.local.served != "shop.example.com" || len(b.local.backends) != 1 {
		t.Errorf("serves %+v", b.local)
	}
	b.local.broken = errors.New("127.0.0.1:16443 is taken")
	if err := b.applier().Prepare(t.Context(), local(), nil); !errors.Is(err, b.local.broken) {
		t.Errorf("got %v", err)
	}
}

func TestLocalEndpoint(t *testing.T) {
	b := newBox(t)
	if report := b.apply(local("10.0.0.2:6443"), nil); report.Local != "shop.example.com" {
		t.Errorf("reported %+v", report)
	}
	// A plan without an endpoint, as after a restore of the manager, cuts nobody off.
	if report := b.apply(nil, nil); report.Local != "shop.example.com" || b.local.served == "" {
		t.Errorf("reported %+v", report)
	}
	if found, err := b.applier().Leftovers(t.Context()); err != nil || strings.Join(found, ", ") != "name shop.example.com in /etc/hosts" {
		t.Errorf("left %v, %v", found, err)
	}
	b.local.broken = errors.New("127.0.0.1:16443 is taken")
	report, err := b.applier().Apply(t.Context(), local(), nil)
	if !errors.Is(err, b.local.broken) || report.Local != "" || !strings.Contains(report.Message, "is taken") {
		t.Errorf("reported %+v, %v", report, err)
	}
	if err := b.applier().Remove(t.Context()); !errors.Is(err, b.local.broken) {
		t.Errorf("got %v", err)
	}
	b.local.broken = nil
	if err := b.applier().Remove(t.Context()); err != nil || b.local.served != "" {
		t.Errorf("still serves %q, %v", b.local.served, err)
	}
	if found, err := b.applier().Leftovers(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("left %v, %v", found, err)
	}
}

// A host that can't serve the endpoint says so.
func TestLocalEndpointOfAHostThatCannot(t *testing.T) {
	b := newBox(t)
	documents, err := state.OpenDir(t.TempDir(), durable.OS{})
	if err != nil {
		t.Fatal(err)
	}
	a := endpoint.New(endpoint.Options{Documents: documents, Root: b.root, Commands: b, Interfaces: b.interfaces, Log: slog.New(slog.DiscardHandler)})
	if report, err := a.Apply(t.Context(), local(), nil); err == nil || report.Message == "" {
		t.Errorf("reported %+v, %v", report, err)
	}
	if _, err := a.Apply(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
}
