package fleet_test

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

// A fleet goes on with the hosts of another one: they keep their state and do not reboot, and only their agents are others.
func TestSaved(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "saved.json")
	run := func(version string) (*fleet.Fleet, *fleet.Host) {
		f := r.fleet(func(s *fleet.Settings) { s.Saved, s.Version = file, version })
		r.Expect(f.PowerOn(t.Context(), 0)).To(Succeed())
		r.connected(f.Hosts()[0])
		return f, f.Hosts()[0]
	}
	f, h := run("v1")
	r.claim(h, "m1", "data")
	r.Expect(r.ended(h, infrav1.OperationBootstrap, "m1").State).To(Equal(infrav1.OperationSucceeded))
	name := r.object(h).Name
	r.Expect(f.Close()).To(Succeed())

	f, h = run("v2")
	r.Expect(r.object(h).Name).To(Equal(name))
	r.Eventually(func() string { return r.object(h).Status.Agent.Version }, soon, often).Should(Equal("v2"))
	r.Expect(h.Status().Done).To(Equal(fleet.Done{Boots: 1, Bootstraps: 1}))
	r.change(h, func(o *infrav1.ElementalHost) { o.Spec.Claim.Phase = infrav1.ClaimReleasing })
	r.Expect(r.ended(h, infrav1.OperationReset, "m1").State).To(Equal(infrav1.OperationSucceeded))
	r.Expect(f.Close()).To(Succeed())

	_, h = run("v1")
	r.Expect(h.Status().Done).To(Equal(fleet.Done{Boots: 2, Bootstraps: 1, Resets: 1}))
}

// A bootstrap that ends while no agent runs has ended for the next agent, and one that has not goes on. Neither runs twice.
func TestSavedDuringABootstrap(t *testing.T) {
	for name, ends := range map[string]bool{"that ends": true, "that goes on": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := &software{hold: make(chan struct{})}
			file := filepath.Join(t.TempDir(), "saved.json")
			first := r.fleet(with(s), func(s *fleet.Settings) { s.Saved, s.AgentRestart = file, time.Hour })
			r.Expect(first.PowerOn(t.Context(), 0)).To(Succeed())
			h := first.Hosts()[0]
			r.connected(h)
			r.claim(h, "m1", "data")
			r.Eventually(s.log, soon, often).Should(HaveLen(1))
			h.Crash()
			if ends {
				close(s.hold)
				r.Eventually(func() int { return h.Status().Done.Bootstraps }, soon, often).Should(Equal(1))
			}
			r.Expect(first.Close()).To(Succeed())
			if !ends {
				close(s.hold)
			}

			second := r.fleet(with(s), func(s *fleet.Settings) { s.Saved = file })
			r.Expect(second.PowerOn(t.Context(), 0)).To(Succeed())
			h = second.Hosts()[0]
			r.Expect(r.ended(h, infrav1.OperationBootstrap, "m1").State).To(Equal(infrav1.OperationSucceeded))
			r.Expect(h.Status().Done).To(Equal(fleet.Done{Boots: 1, Crashes: 1, Bootstraps: 1}))
		})
	}
}
