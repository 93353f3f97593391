//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

const (
	siteSubnet = "172.31.0.0/24"
	siteHosts  = 6
	siteGroup  = "site"
	// Bounds of what a person notices, from the requirements of type Tunnel.
	maxTunnelOutage  = 10 * time.Second
	maxPowerCut      = 15 * time.Second
	maxManagerKilled = 30 * time.Second
	tunnelNoticed    = time.Minute
	// linkCut is longer than Cluster API's grace for remote conditions.
	linkCut = 6 * time.Minute
)

// Nothing can open a connection to the hosts of these specs: they are behind a router with NAT,
// which drops and counts what tries.
var _ = Describe("A cluster that nothing can dial into", Ordered, Label("tunnel"), func() {
	w := workload{lab.Cluster{Name: "tunnel", Flavor: "tunnel", ControlPlanes: 3, Workers: 2}}
	var site *remoteSite

	BeforeAll(func(ctx context.Context) {
		site = startSite(ctx)
		exposeGateway(ctx)
	})

	It("comes up, and its API server answers at a name", func(ctx context.Context) {
		step("tunnel: 3+2 running", func() {
			w.createOn(ctx, siteGroup)
			w.expectRunning(ctx, 5)
			w.expectTunnel(ctx, "True")
		})
		Expect(w.infra(ctx).Spec.ControlPlaneEndpoint.Host).To(Equal("tunnel-endpoint.default.svc.cluster.local"))
	}, SpecTimeout(25*time.Minute))

	It("is scaled and rolled", func(ctx context.Context) {
		step("tunnel: workers scaled 2 -> 3 -> 2", func() {
			w.scale(ctx, 3)
			w.expectRunning(ctx, 6)
			w.scale(ctx, 2)
			w.expectRunning(ctx, 5)
		})
		caller := w.call(ctx, time.Second)
		step("tunnel: control plane rolled", func() {
			w.rollOut(ctx)
			w.expectRunning(ctx, 5)
		})
		caller.stop()
		Expect(caller.longestOutage()).To(BeNumerically("<", maxTunnelOutage))
	}, SpecTimeout(45*time.Minute))

	It("is served by another control plane when a host loses its power", func(ctx context.Context) {
		carrier, before := w.carrier(ctx, site), w.specs(ctx)
		observed := w.observe(ctx, site, carrier)
		step("tunnel: power of "+carrier.Name+" cut", func() {
			site.cutPower(ctx, carrier)
			w.expectReached(ctx, 2*time.Minute)
		})
		observed.expectServed(maxPowerCut)
		Expect(w.specs(ctx)).To(Equal(before))
		step("tunnel: host back", func() {
			Expect(site.box(carrier).Start(ctx)).To(Succeed())
			w.expectRunning(ctx, 5)
		})
	}, SpecTimeout(20*time.Minute))

	It("is reachable again soon after the manager was killed", func(ctx context.Context) {
		before := w.connectionConditions(ctx)
		caller := w.call(ctx, time.Second)
		step("tunnel: manager killed", func() {
			_, err := hosts.Management().Exec(ctx, "pkill", "-KILL", "-f", "agent-api-url")
			Expect(err).NotTo(HaveOccurred())
			Eventually(func() bool {
				made := caller.all()
				return len(made) > 60 && made[len(made)-1].err == nil
			}).WithTimeout(5 * time.Minute).Should(BeTrue())
		})
		caller.stop()
		Expect(caller.longestOutage()).To(BeNumerically("<", maxManagerKilled))
		Expect(w.connectionConditions(ctx)).To(Equal(before))
	}, SpecTimeout(15*time.Minute))

	It("survives a cut of the site's link", func(ctx context.Context) {
		before := w.infra(ctx).Spec
		cut := time.Now()
		step("tunnel: link cut, noticed", func() {
			Expect(site.Cut(ctx)).To(Succeed())
			w.expectTunnel(ctx, "False")
		})
		step("tunnel: link stays cut, Nodes stay Ready", func() {
			Consistently(func() string { return w.nodesInSite(ctx, site) }).
				WithTimeout(time.Until(cut.Add(linkCut))).WithPolling(10 * time.Second).Should(Equal("True True True True True"))
		})
		step("tunnel: link mended", func() {
			Expect(site.Mend(ctx)).To(Succeed())
			w.expectTunnel(ctx, "True")
			w.expectRunning(ctx, 5)
		})
		Expect(w.infra(ctx).Spec).To(Equal(before))
	}, SpecTimeout(25*time.Minute))

	It("is deleted, and nothing has ever dialed into the site", func(ctx context.Context) {
		step("tunnel: cluster deleted, hosts available", func() {
			w.delete(ctx)
			for _, box := range site.Hosts() {
				expectAvailable(ctx, box)
			}
		})
		Expect(site.Refused(ctx)).To(BeZero())
	}, SpecTimeout(20*time.Minute))
})
