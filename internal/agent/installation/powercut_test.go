package installation_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/installation"
)

// setting is what the tests of power cuts vary.
type setting struct {
	// loseNames: names that are not durable are lost, too.
	loseNames bool
	// replaces: the host has programs, which are replaced.
	replaces bool
}

func settings() []setting { return []setting{{}, {loseNames: true}, {replaces: true}, {true, true}} }

func (s setting) host(t *testing.T) (*host, installation.Staged) {
	t.Helper()
	if s.replaces {
		return newEquippedHost(t)
	}
	h := newHost(t)
	staged := h.stage(version, nil)
	return h, staged
}

// The power is lost at each operation of an installation. The next process completes it or
// removes it, and the host is then as it was.
func TestPowerCutsWhileInstalling(t *testing.T) {
	t.Parallel()
	for _, setting := range settings() {
		cuts := 0
		for ; ; cuts++ {
			h, staged := setting.host(t)
			h.boot(cuts + 1)
			err := h.install(staged)
			if err == nil && h.disk.left != 0 {
				break
			}
			what := fmt.Sprintf("cut %d, %+v", cuts, setting)
			if err != nil && !errors.Is(err, errPower) {
				t.Fatalf("%s: %v", what, err)
			}
			h.disk.lose(t, setting.loseNames)
			h.boot(-1)
			if cuts%2 == 0 {
				if err := h.install(staged); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				h.checkInstalled(what, staged)
			}
			if err := h.installer().Remove(t.Context()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			h.checkBare(what)
		}
		if cuts < 50 {
			t.Errorf("the power was lost at %d operations only", cuts)
		}
	}
}

// The power is lost at each operation of a removal. The next process completes it, or
// installs another bundle.
func TestPowerCutsWhileRemoving(t *testing.T) {
	t.Parallel()
	for _, setting := range settings() {
		cuts := 0
		for ; ; cuts++ {
			h, staged := setting.host(t)
			if err := h.install(staged); err != nil {
				t.Fatal(err)
			}
			h.boot(cuts + 1)
			err := h.installer().Remove(t.Context())
			if err == nil && h.disk.left != 0 {
				break
			}
			what := fmt.Sprintf("cut %d, %+v", cuts, setting)
			if err != nil && !errors.Is(err, errPower) {
				t.Fatalf("%s: %v", what, err)
			}
			h.disk.lose(t, setting.loseNames)
			h.boot(-1)
			if cuts%2 == 0 {
				next := h.stage("v1.36.4", nil)
				next.Replace = setting.replaces
				if err := h.install(next); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				h.checkInstalled(what, next)
			}
			if err := h.installer().Remove(t.Context()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			h.checkBare(what)
		}
		if cuts < 20 {
			t.Errorf("the power was lost at %d operations only", cuts)
		}
	}
}
