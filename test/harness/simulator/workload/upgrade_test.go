package workload_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload"
)

const newer = "v1.37.1"

func to(role protocol.UpgradeRole) protocol.NodeUpgrade {
	return protocol.NodeUpgrade{Role: role, Bundle: protocol.Bundle{Version: newer}}
}

// Hosts are upgraded in their turn: the first of the control plane, its others, the workers.
func TestUpgrade(t *testing.T) {
	r := newRig(t, workload.Options{})
	c, hosts := r.of(2)
	first, second, worker := hosts[0], hosts[1], r.machine()
	c.join(worker, false)
	outOfTurn := func(m fleet.Machine, role protocol.UpgradeRole, why string) {
		t.Helper()
		r.Expect(r.CheckUpgrade(t.Context(), m, to(role))).To(MatchError(ContainSubstring(why)))
	}
	outOfTurn(r.machine(), protocol.UpgradeWorker, "the host is no node")
	outOfTurn(worker, protocol.UpgradeFirstControlPlane, "another role")
	outOfTurn(worker, protocol.UpgradeWorker, "configured for Kubernetes v1.36.3")
	outOfTurn(second, protocol.UpgradeControlPlane, "configured for Kubernetes v1.36.3")

	c.upgrade(first, protocol.UpgradeFirstControlPlane)
	outOfTurn(worker, protocol.UpgradeWorker, "newer than an API server")
	c.upgrade(second, protocol.UpgradeControlPlane)
	c.upgrade(worker, protocol.UpgradeWorker)
	for _, m := range hosts {
		pod := &corev1.Pod{}
		r.Expect(c.admin().Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "kube-scheduler-" + m.Hostname}, pod)).To(Succeed())
		r.Expect(pod.Spec.Containers[0].Image).To(HaveSuffix(":" + newer))
	}
	last := r.machine()
	c.join(last, false)
	r.Expect(c.node(last).Status.NodeInfo.KubeletVersion).To(Equal(newer))
}

// upgrade upgrades a host, twice as after a crash.
func (c *cluster) upgrade(m fleet.Machine, role protocol.UpgradeRole) {
	c.t.Helper()
	before := c.node(m)
	c.Expect(c.CheckUpgrade(c.t.Context(), m, to(role))).To(Succeed())
	for range 2 {
		c.Expect(c.Upgrade(c.t.Context(), m, to(role), func(string) {})).To(Succeed())
	}
	after := c.node(m)
	c.Expect(after.UID).To(Equal(before.UID))
	c.Expect(after.Status.NodeInfo.KubeletVersion).To(Equal(newer))
}

// A host whose API server does not run waits for it.
func TestUpgradeWaitsForTheAPIServer(t *testing.T) {
	r := newRig(t, workload.Options{})
	first := r.machine()
	r.cluster(first, 0)
	r.Halt(first)
	r.Expect(r.Upgrade(t.Context(), first, to(protocol.UpgradeFirstControlPlane), func(string) {})).To(MatchError(ContainSubstring("does not reach")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Expect(r.CheckUpgrade(ctx, first, to(protocol.UpgradeFirstControlPlane))).To(MatchError(context.Canceled))
	r.Expect(r.Boot(t.Context(), first)).To(Succeed())
	r.Expect(r.CheckUpgrade(t.Context(), first, to(protocol.UpgradeFirstControlPlane))).To(Succeed())
}
