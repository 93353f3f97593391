package failover_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// The API server of a host that upgrades Kubernetes is away for minutes, and comes back. The
// host may still die meanwhile.
func TestUpgradeOfTheEndpointHost(t *testing.T) {
	for name, tc := range map[string]struct {
		state infrav1.OperationState
		since time.Duration
		moves bool
	}{
		"upgrading":                 {infrav1.OperationRunning, 14 * time.Minute, false},
		"upgrading for too long":    {infrav1.OperationRunning, 15 * time.Minute, true},
		"upgraded":                  {infrav1.OperationSucceeded, time.Minute, true},
		"the upgrade has failed":    {infrav1.OperationFailed, time.Minute, true},
		"the upgrade has not begun": {"", time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, isSilent := range []bool{false, true} {
				g := NewWithT(t)
				c := cluster()
				suspect(c, tc.since)
				h := c.Members[0].Host
				h.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable
				if isSilent {
					c.Contacts["h1"] = askedAgo(5*time.Second, nothing)
				}
				h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: "u"}
				if tc.state != "" {
					h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{Type: infrav1.OperationNodeUpgrade, ID: "u", State: tc.state})
				}
				g.Expect(failover.Decide(c).Move != nil).To(Equal(tc.moves))
			}
		})
	}
}
