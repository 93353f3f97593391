package elemental

import (
	"context"
	"errors"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// inspected is a platform that reports an inventory.
type inspected struct {
	platform.Platform

	err error
}

func (i inspected) Inventory(context.Context) (protocol.Inventory, error) {
	return protocol.Inventory{Architecture: "amd64", OS: protocol.OS{ID: "os"}}, i.err
}

// The image is that of the running system. Which one a fallback has is not known.
func TestInventoryHasTheImage(t *testing.T) {
	r := newRig(t)
	report := func() protocol.OS {
		inventory, err := Platform{Platform: inspected{}, System: r.system}.Inventory(t.Context())
		if err != nil || inventory.Architecture != "amd64" {
			t.Errorf("got %+v, %v", inventory, err)
		}
		return inventory.OS
	}
	if got := report(); got != (protocol.OS{ID: "os", Image: "oci://registry/os:1"}) {
		t.Errorf("got %+v", got)
	}
	for _, mode := range []Mode{ModePassive, ModeRecovery} {
		r.boot(mode)
		if got := report(); got.Image != "" {
			t.Errorf("the %s system has the image %q", mode, got.Image)
		}
	}
	r.boot(ModeActive)
	r.write("run/initramfs/elemental-state/state.yaml", "state: {}")
	if got := report(); got.Image != "" {
		t.Errorf("got %q without an active system", got.Image)
	}
	failure := errors.New("no disks")
	if _, err := (Platform{Platform: inspected{err: failure}, System: r.system}).Inventory(t.Context()); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}
