package agent_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm/softtpm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The disk with the state directory is moved into another machine.
func TestThreat05_StolenDisk(t *testing.T) {
	r := newRig(t)
	r.keys = hostkey.Keys{Policy: hostkey.Required, TPM: softtpm.Start(t), Log: slog.New(slog.DiscardHandler)}
	stop := r.start()
	r.manager.await(t, "connected", func(m *manager) bool { return m.polls > 0 })
	first := r.manager.known()
	r.aged()
	r.manager.await(t, "the key is rotated", rotated)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.disk.content["identity.json"], "BEGIN PRIVATE KEY") || r.manager.key == first {
		t.Error("the key is on the disk, or did not change")
	}
	identity := r.disk.content["identity.json"]
	r.keys = hostkey.Keys{Policy: hostkey.Required, TPM: softtpm.Start(t), Log: slog.New(slog.DiscardHandler)}
	if _, err := r.agent(); !errors.Is(err, tpm.ErrLost) || !strings.Contains(err.Error(), "--new-key") {
		t.Fatalf("another machine uses the key: %v", err)
	}
	if r.disk.content["identity.json"] != identity {
		t.Error("the key was replaced without --new-key")
	}
}

func TestMovesToTheTPMAtARotation(t *testing.T) {
	r := newRig(t)
	stop := r.start()
	r.manager.await(t, "connected", func(m *manager) bool { return m.polls > 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	r.keys = hostkey.Keys{Policy: hostkey.Auto, TPM: softtpm.Start(t), Log: slog.New(slog.DiscardHandler)}
	r.start()
	r.aged()
	r.manager.await(t, "the key is rotated", rotated)
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "the new key works", ended("a", protocol.StateSucceeded))
	store, err := state.Open(r.disk)
	if err != nil {
		t.Fatal(err)
	}
	if place := hostkey.Place(store.Identity().Key); place != "TPM" {
		t.Errorf("the key is in the %s", place)
	}
}
