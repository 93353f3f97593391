package fleet_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

// upgradable is a software whose nodes can be upgraded.
type upgradable struct{ software }

func (u *upgradable) CheckUpgrade(_ context.Context, _ fleet.Machine, to protocol.NodeUpgrade) error {
	return u.note("check %s", to.Bundle.Version)
}

func (u *upgradable) Upgrade(_ context.Context, _ fleet.Machine, to protocol.NodeUpgrade, _ func(string)) error {
	return u.note("upgrade %s", to.Bundle.Version)
}

func bundleOf(version string) *infrav1.HostBundle {
	return &infrav1.HostBundle{Version: version, SHA256: strings.Repeat("0a", 32), SizeBytes: 1, Sources: []string{"file:/bundle"}}
}

func (r *rig) upgrade(h *fleet.Host, id, version string) {
	r.t.Helper()
	r.change(h, func(o *infrav1.ElementalHost) {
		o.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: id, Role: infrav1.UpgradeWorker, Bundle: *bundleOf(version)}
	})
}

// A Node is upgraded if nothing is against it. A failure says what it has left behind.
func TestUpgrade(t *testing.T) {
	r := newRig(t)
	u := &upgradable{software{errs: map[string]error{"check v1.38.0": errors.New("not your turn")}}}
	h := r.host(func(s *fleet.Settings) {
		s.Software = u
		s.DuringUpgrade = func(_ context.Context, _ *fleet.Host, to protocol.NodeUpgrade) error {
			if to.Bundle.Version == "v1.37.1" {
				return errors.New("the kubelet did not start")
			}
			return nil
		}
	})
	r.Expect(r.object(h).Status.Agent.Capabilities).To(ContainElements("Bundle", "NodeUpgrade"))
	r.claim(h, "m1", "data")
	r.Expect(r.ended(h, infrav1.OperationBootstrap, "m1").State).To(Equal(infrav1.OperationSucceeded))

	r.change(h, func(o *infrav1.ElementalHost) { o.Spec.Bundle = bundleOf("v1.37.0") })
	r.Eventually(func() infrav1.HostBundleStatus {
		if b := r.object(h).Status.Bundle; b != nil {
			return *b
		}
		return infrav1.HostBundleStatus{}
	}, soon, often).Should(And(HaveField("State", infrav1.BundleStaged), HaveField("Version", "v1.37.0")))

	for _, tc := range []struct {
		version, step, message string
		state                  infrav1.OperationState
	}{
		{"v1.37.0", "", "", infrav1.OperationSucceeded},
		{"v1.37.1", "kubeadm", "rolled back: the kubelet did not start", infrav1.OperationFailed},
		{"v1.38.0", "check", "nothing was changed: not your turn", infrav1.OperationFailed},
	} {
		r.upgrade(h, "m1."+tc.version, tc.version)
		got := r.ended(h, infrav1.OperationNodeUpgrade, "m1."+tc.version)
		r.Expect([]string{string(got.State), got.Step, got.Message}).To(Equal([]string{string(tc.state), tc.step, tc.message}))
	}
	r.Expect(u.log()).To(ContainElement("upgrade v1.37.0"))
	r.Expect(u.log()).NotTo(ContainElement("upgrade v1.37.1"))
	r.Expect(h.Status().Done.Upgrades).To(Equal(1))
}

// An upgrade goes on after a power cut, and ends early if the host is to be reset.
func TestUpgradeInterrupted(t *testing.T) {
	r := newRig(t)
	began := make(chan struct{}, 10)
	u := &upgradable{}
	h := r.host(func(s *fleet.Settings) {
		s.Software = u
		s.DuringUpgrade = func(ctx context.Context, _ *fleet.Host, _ protocol.NodeUpgrade) error {
			began <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		}
	})
	r.claim(h, "m1", "data")
	r.Expect(r.ended(h, infrav1.OperationBootstrap, "m1").State).To(Equal(infrav1.OperationSucceeded))
	r.upgrade(h, "m1.1", "v1.37.0")
	r.Eventually(began, soon, often).Should(Receive())
	h.PowerOff()
	h.PowerOn()
	r.Eventually(began, soon, often).Should(Receive())
	r.change(h, func(o *infrav1.ElementalHost) { o.Spec.Claim.Phase = infrav1.ClaimReleasing })
	r.Expect(r.ended(h, infrav1.OperationReset, "m1").State).To(Equal(infrav1.OperationSucceeded))
	r.Expect(u.log()).NotTo(ContainElement("upgrade v1.37.0"))
}

// The hosts of other software offer no upgrades.
func TestNoUpgrade(t *testing.T) {
	r := newRig(t)
	h := r.host(with(&software{}))
	r.Expect(r.object(h).Status.Agent.Capabilities).NotTo(ContainElement("NodeUpgrade"))
}
