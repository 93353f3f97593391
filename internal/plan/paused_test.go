package plan_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// While a host or its cluster is paused, no operation begins, and what has begun continues.
func TestNothingBeginsWhilePaused(t *testing.T) {
	const (
		bound, held, releasing     = infrav1.ClaimBound, infrav1.ClaimHeld, infrav1.ClaimReleasing
		running, succeeded, failed = infrav1.OperationRunning, infrav1.OperationSucceeded, infrav1.OperationFailed
	)
	for name, tc := range map[string]struct {
		host *infrav1.ElementalHost
		want protocol.OperationType
	}{
		"to be bootstrapped":          {able(bound), ""},
		"bootstrapped for another":    {able(bound, is("Bootstrap", succeeded, "id-0")), ""},
		"being bootstrapped":          {able(bound, is("Bootstrap", running, "id-1")), bootstrap},
		"bootstrapped":                {able(bound, is("Bootstrap", succeeded, "id-1")), bootstrap},
		"bootstrap failed":            {able(bound, is("Bootstrap", failed, "id-1")), bootstrap},
		"to be reset":                 {able(releasing, is("Bootstrap", succeeded, "id-1")), ""},
		"to be reset, fenced":         {able(releasing, fenced), ""},
		"being reset":                 {able(releasing, is("Reset", running, "id-1")), reset},
		"reset failed":                {able(releasing, is("Reset", failed, "id-1")), reset},
		"reset":                       {able(releasing, is("Reset", succeeded, "id-1")), reset},
		"to reboot, free":             {able("", toReboot), ""},
		"to reboot, held":             {able(held, toReboot), ""},
		"to reboot, bootstrapped":     {able(bound, toReboot, is("Bootstrap", succeeded, "id-1")), bootstrap},
		"rebooting":                   {able("", toReboot, is("Reboot", running, "r")), reboot},
		"to upgrade":                  {able("", toUpgrade), ""},
		"upgrading":                   {able("", toUpgrade, is("Upgrade", running, "u")), upgrade},
		"upgrading, to reboot":        {able("", toUpgrade, toReboot, is("Upgrade", running, "u")), upgrade},
		"to upgrade the Node":         {able(bound, toUpgradeNode, is("Bootstrap", succeeded, "id-1")), bootstrap},
		"upgrading the Node":          {able(bound, toUpgradeNode, is("Bootstrap", succeeded, "id-1"), is("NodeUpgrade", running, "n")), nodeUpgrade},
		"being reset, then prevented": {able(releasing, is("Reset", running, "id-1"), prevented), reset},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			of := func(h *infrav1.ElementalHost, cluster plan.Cluster) protocol.OperationType {
				p := plan.For(h, site, cluster)
				if p.Operation == nil {
					return ""
				}
				return p.Operation.Type
			}
			g.Expect(of(tc.host, plan.Cluster{Paused: true})).To(Equal(tc.want), "the cluster is paused")
			for _, annotation := range []string{clusterv1.PausedAnnotation, clusterctlv1.DeleteForMoveAnnotation} {
				h := tc.host.DeepCopy()
				if h.Annotations == nil {
					h.Annotations = map[string]string{}
				}
				h.Annotations[annotation] = ""
				g.Expect(of(h, plan.Cluster{})).To(Equal(tc.want), annotation)
				g.Expect(plan.For(h, site, plan.Cluster{}).Desired).To(Equal(plan.For(tc.host, site, plan.Cluster{}).Desired),
					"a pause changes nothing but the operation")
			}
		})
	}
}

// `clusterctl move` removes the annotation that prevents a reset just before it deletes the
// host: the source must not reset the host in between.
func TestMoveResetsNoHostThatIsNotToBeReset(t *testing.T) {
	g := NewWithT(t)
	h := able(infrav1.ClaimReleasing, prevented)
	g.Expect(operation(h)).To(BeEmpty())
	h.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
	g.Expect(operation(h)).To(BeEmpty())
	h.Annotations = nil
	g.Expect(operation(h)).To(Equal(reset))
}

func TestNoAgentUpdateBeginsWhilePaused(t *testing.T) {
	pinned := site
	pinned.Agent = &infrav1.AgentRelease{Version: "v2.0.0", Binaries: []infrav1.AgentBinary{{Architecture: "amd64", SHA256: "b2"}}}
	of := func(paused bool, update *infrav1.AgentUpdate) *protocol.AgentRelease {
		return plan.For(able("", func(h *infrav1.ElementalHost) {
			h.Status.Inventory = &infrav1.HostInventory{Architecture: "amd64"}
			h.Status.Agent.Update = update
		}), pinned, plan.Cluster{Paused: paused}).Desired.Agent
	}
	g := NewWithT(t)
	g.Expect(of(false, nil)).NotTo(BeNil())
	g.Expect(of(true, nil)).To(BeNil())
	g.Expect(of(true, &infrav1.AgentUpdate{Version: "v1.0.0", State: infrav1.OperationRunning})).To(BeNil(), "another update")
	g.Expect(of(true, &infrav1.AgentUpdate{Version: "v2.0.0", State: infrav1.OperationFailed})).To(BeNil())
	g.Expect(of(true, &infrav1.AgentUpdate{Version: "v2.0.0", State: infrav1.OperationRunning})).NotTo(BeNil(), "it has begun")
}
