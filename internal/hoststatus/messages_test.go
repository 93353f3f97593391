package hoststatus_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// Messages describe the problem and what the user can do about it.
func TestMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		host      *infrav1.ElementalHost
		condition string
		want      []string
	}{
		"bootstrap failed": {host(claim(bound), operation(bootstrap, failed, id)), infrav1.ReadyCondition, []string{"The bootstrap failed at step runcmd: exit 7"}},
		"adoption waits":   {host(claim(bound), adopting), bootstrapped, []string{"Waiting for the agent to take over the Node for Machine m"}},
		"adoption runs": {host(claim(bound), adopting, operation(bootstrap, infrav1.OperationRunning, id)), bootstrapped, []string{
			"The agent is taking over the Node for Machine m at step runcmd",
		}},
		"adoption failed":   {host(claim(bound), adopting, operation(bootstrap, failed, id)), bootstrapped, []string{"The adoption failed at step runcmd: exit 7"}},
		"leftovers":         {host(dirty), clean, []string{"/etc/kubernetes, kubelet.service"}},
		"disconnected":      {host(disconnected), infrav1.ConnectedCondition, []string{"2026-03-04T05:06:07Z"}},
		"cloned":            {host(locked), infrav1.ApprovedCondition, []string{"a former key was used", "Destroy the copy, then remove spec.lock", "spec.identity.match"}},
		"readopted":         {host(undecided(infrav1.PendingReadopted)), infrav1.ApprovedCondition, []string{"enrolled before", "Compare the key fingerprint sha256:abc with"}},
		"ambiguous":         {host(undecided(infrav1.PendingAmbiguous)), infrav1.ApprovedCondition, []string{"spec.identity.match", "Compare the key fingerprint"}},
		"fenced":            {host(fenced), infrav1.ApprovedCondition, []string{"spec.fence: dead", "remove spec.fence"}},
		"maintenance":       {host(maintenance), availab, []string{"new disk; until spec.maintenance is removed"}},
		"maintenance, time": {host(maintenance, func(h *infrav1.ElementalHost) { h.Spec.Maintenance.Until = now }), availab, []string{"new disk; until 2026-03-04T05:06:07Z"}},
		"bootstrap waits":   {host(maintenance, claim(bound)), bootstrapped, []string{"waits until the maintenance ends", "new disk"}},
		"reset waits":       {host(maintenance, claim(releasing)), clean, []string{"waits until the maintenance ends", "new disk"}},
		"reset prevented":   {host(prevented, claim(releasing)), clean, []string{"until the annotation " + infrav1.PreventResetAnnotation + " is removed"}},
		"quarantine":        {host(quarantined), availab, []string{"2 bootstraps failed", "2026-03-04T05:06:07Z", "spec.quarantine is removed"}},
		"held":              {host(claim(infrav1.ClaimHeld)), clean, []string{"Machine m is deleted", "set spec.claim.phase to Releasing"}},
		"can't erase":       {host(claim(releasing), erase, capable("Reset")), clean, []string{"can't erase data disks", "nothing is reset", "spec.claim.erase (Zero)"}},
		"clock ahead":       {host(skewed(7200)), infrav1.ClockSynchronizedCondition, []string{"120 minutes ahead of"}},
		"clock behind":      {host(skewed(-60)), infrav1.ClockSynchronizedCondition, []string{"1 minutes behind"}},
		"update failed":     {host(updated("v2.0.0", failed)), infrav1.AgentCurrentCondition, []string{"still of version v1.0.0", "v2.0.0 failed: no space left"}},
		"not erased": {host(claim(releasing), erase, operation(reset, failed, id), func(h *infrav1.ElementalHost) {
			h.Status.Erasure = &infrav1.HostErasure{OperationID: id, Disks: []infrav1.ErasedDisk{
				{Name: "/dev/sda", Result: infrav1.ErasureKept}, {Name: "/dev/sdb", Result: infrav1.ErasureFailed},
				{Name: "/dev/sdc", Result: infrav1.ErasureErased}, {Name: "/dev/sdd", Result: infrav1.ErasureFailed},
			}}
		}), clean, []string{"exit 7; not erased: /dev/sdb, /dev/sdd"}},
		"erased before": {host(claim(releasing), erase, operation(reset, failed, id), func(h *infrav1.ElementalHost) {
			h.Status.Erasure = &infrav1.HostErasure{OperationID: "old", Disks: []infrav1.ErasedDisk{{Name: "/dev/sdb", Result: infrav1.ErasureFailed}}}
		}), clean, []string{"is tried again: exit 7"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			hoststatus.Update(tc.host, now)
			message := meta.FindStatusCondition(tc.host.Status.Conditions, tc.condition).Message
			for _, part := range tc.want {
				g.Expect(message).To(ContainSubstring(part))
			}
			g.Expect(strings.Contains(message, "not erased")).To(Equal(name == "not erased"))
		})
	}
}
