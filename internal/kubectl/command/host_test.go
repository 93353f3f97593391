package command_test

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// alone creates host h1.
func alone(changes ...hostChange) func(*fixture) {
	return func(f *fixture) { f.Host("h1", changes...) }
}

func TestExplainHost(t *testing.T) {
	for name, situation := range hostsAlone() {
		t.Run(name, func(t *testing.T) { expectExplanation(t, "host-"+name, situation, "host", "h1") })
	}
}

// hostsAlone returns situations of host h1.
func hostsAlone() map[string]func(*fixture) {
	return map[string]func(*fixture){
		"free":         alone(),
		"disconnected": alone(disconnected),
		"held":         alone(claimed(infrav1.ClaimHeld)),
		"cloned": alone(func(h *infrav1.ElementalHost) {
			h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned}
		}),
		"never-connected": alone(func(h *infrav1.ElementalHost) {
			h.Spec.Identity = &infrav1.HostIdentity{Match: &infrav1.IdentityMatch{SerialNumber: "X1"}}
			h.Status = infrav1.ElementalHostStatus{}
		}),
		"reset-failed": alone(claimed(infrav1.ClaimReleasing), func(h *infrav1.ElementalHost) {
			h.Status.Operations = []infrav1.HostOperation{{
				Type: infrav1.OperationReset, ID: "id", State: infrav1.OperationFailed, Step: "clean", Message: "umount: /var/lib/kubelet: busy",
			}}
		}),
		"clock": alone(func(h *infrav1.ElementalHost) {
			h.Status.Agent = &infrav1.HostAgent{Version: "v0.1.0", ClockSkewSeconds: -7200}
		}),
		// Nobody has written conditions since the cordon: what the manager will write counts.
		"stale-conditions": func(f *fixture) {
			host := f.Host("h1")
			host.Spec.Cordon = &infrav1.HostCordon{Reason: "disk\nsecond line"}
			f.Expect(f.Admin.Update(f.Ctx, host)).To(Succeed())
		},
		"wanted": func(f *fixture) {
			waits(selects(infrav1.HostSelector{MatchLabels: infrav1.Labels{"rack": "r2"}}), with(labelled("rack", "r1")))(f)
			f.Machine("c1", "m2")
		},
	}
}
