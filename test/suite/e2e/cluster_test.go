//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

var _ = Describe("A cluster with a blank endpoint", func() {
	It("runs one control plane and one worker, and releases its hosts", Label("smoke"), func(ctx context.Context) {
		w := workload{lab.Cluster{Name: "smoke", ControlPlanes: 1, Workers: 1}}
		step("smoke: cluster applied", func() { w.create(ctx) })
		step("smoke: endpoint filled", func() { w.expectEndpoint(ctx) })
		step("smoke: 1+1 running", func() { w.expectRunning(ctx, 2) })
		step("smoke: described clean", func() { w.expectDescribedClean(ctx) })
		step("smoke: hosts described", func() { w.expectHostsDescribed(ctx) })
		step("smoke: failing bootstrap shown", func() { w.expectFailureShown(ctx) })
		step("smoke: cluster deleted", func() { w.delete(ctx) })
		step("smoke: hosts available", func() { expectAllAvailable(ctx) })
		step("smoke: agents idle", func() { expectSmallAgents(ctx) })
	}, SpecTimeout(30*time.Minute))

	It("runs three control planes and two workers, scales, is deleted, and runs again on the same hosts", Label("full"), func(ctx context.Context) {
		w := workload{lab.Cluster{Name: "full", ControlPlanes: 3, Workers: 2}}
		step("full: cluster applied", func() { w.create(ctx) })
		step("full: endpoint filled", func() { w.expectEndpoint(ctx) })
		step("full: 3+2 running", func() { w.expectRunning(ctx, 5) })
		step("full: described clean", func() { w.expectDescribedClean(ctx) })
		step("full: workers scaled 2 -> 3", func() {
			w.scale(ctx, 3)
			w.expectRunning(ctx, 6)
		})
		step("full: workers scaled 3 -> 1", func() {
			w.scale(ctx, 1)
			w.expectRunning(ctx, 4)
		})
		step("full: cluster deleted", func() { w.delete(ctx) })
		step("full: hosts available", func() { expectAllAvailable(ctx) })

		again := workload{lab.Cluster{Name: "again", ControlPlanes: 1, Workers: 2}}
		step("again: second cluster on the same hosts running", func() {
			again.create(ctx)
			again.expectRunning(ctx, 3)
		})
		step("again: cluster deleted, hosts available", func() {
			again.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(45*time.Minute))
})
