//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/checkouts"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

const (
	// firstRelease and nextRelease are the versions of this provider before and after the upgrade.
	firstRelease, nextRelease = "v0.1.0", "v0.2.0"
	// upgradedHosts is how many hosts the upgraded management cluster has.
	upgradedHosts = 3
)

var _ = Describe("A provider that runs clusters", Ordered, Label("provider-upgrade"), func() {
	w := workload{lab.Cluster{Name: "years", ControlPlanes: 1, Workers: 1}}
	var first, next lab.Build

	BeforeAll(func(ctx context.Context) {
		step("provider-upgrade: manifests of both versions", func() {
			former, err := checkouts.Of(ctx, checkout, checkouts.First)
			Expect(err).NotTo(HaveOccurred())
			present, err := filepath.Abs(checkout)
			Expect(err).NotTo(HaveOccurred())
			first, next = manifestsOf(ctx, former, firstRelease), manifestsOf(ctx, present, nextRelease)
		})
		outer := hosts
		DeferCleanup(func() { manage(outer) })
		own := first.Lab(hosts, upgradedHosts)
		step("provider-upgrade: management cluster with "+firstRelease, func() { Expect(own.Up(ctx)).To(Succeed()) })
		step("provider-upgrade: hosts with agents of "+firstRelease, func() {
			Expect(own.Enrol(ctx, lab.Enrolment{Name: "lab", Hosts: own.Hosts()})).To(Succeed())
			manage(own)
			Eventually(func() []string { return agentVersions(ctx) }).WithTimeout(updateTimeout).Should(HaveEach(firstRelease))
		})
		step("provider-upgrade: 1+1 running, one host free", func() {
			w.create(ctx)
			w.expectRunning(ctx, 2)
		})
	}, NodeTimeout(40*time.Minute))

	It("is upgraded by clusterctl, and nothing happens to them", func(ctx context.Context) {
		before, machines, former, calls := hostStates(ctx), w.machines(ctx), connections(ctx), w.callPatiently(ctx)
		step("provider-upgrade: clusterctl upgrade apply", func() {
			Expect(next.OfferTo(ctx, hosts)).To(Succeed())
			plan, err := hosts.Clusterctl(ctx, "upgrade", "plan")
			Expect(err).NotTo(HaveOccurred(), plan)
			fmt.Println(plan)
			Expect(plan).To(MatchRegexp(`infrastructure-elemental .*%s +%s`, firstRelease, nextRelease))
			out, err := hosts.Clusterctl(ctx, "upgrade", "apply", "--infrastructure", "elemental-system/elemental:"+nextRelease, "--wait-providers")
			Expect(err).NotTo(HaveOccurred(), out)
		})
		expectReconnected(ctx, former)
		w.expectRunning(ctx, 2)
		w.expectDescribedClean(ctx)
		calls.stop()
		Expect(calls.outages()).To(BeEmpty(), "the cluster's API server always answers")
		Expect(w.machines(ctx)).To(Equal(machines), "no Machine is new")
		Expect(hostStates(ctx)).To(Equal(before), "no host was reset, disconnected or given another claim")
		Expect(agentVersions(ctx)).To(HaveEach(firstRelease))
	}, SpecTimeout(25*time.Minute))

	It("changes them with agents of the version before, updates these, and goes on", func(ctx context.Context) {
		step("provider-upgrade: second worker, by an agent of "+firstRelease, func() {
			w.scale(ctx, 2)
			w.expectRunning(ctx, 3)
		})
		before := hostStates(ctx)
		step("provider-upgrade: agents updated to "+nextRelease, func() {
			pinned := releaseOf(nextRelease, served(ctx))
			pin(ctx, &pinned)
			expectAgents(ctx, func(host *infrav1.ElementalHost, current *metav1.Condition) bool {
				return current.Status == metav1.ConditionTrue && host.Status.Agent.Version == nextRelease
			})
		})
		Expect(hostStates(ctx)).To(Equal(before))
		w.expectRunning(ctx, 3)
	}, SpecTimeout(25*time.Minute))

	It("goes back to the version before, and comes again", func(ctx context.Context) {
		for _, version := range []string{firstRelease, nextRelease} {
			before, machines, former := hostStates(ctx), w.machines(ctx), connections(ctx)
			step("provider-upgrade: components of "+version+" applied", func() { applyComponents(ctx, version) })
			expectReconnected(ctx, former)
			Expect(hostStates(ctx)).To(Equal(before))
			Expect(w.machines(ctx)).To(Equal(machines))
			replicas := int32(1)
			if version == nextRelease {
				replicas = 2
			}
			step(fmt.Sprintf("provider-upgrade: workers scaled to %d by the manager of %s", replicas, version), func() {
				w.scale(ctx, replicas)
				w.expectRunning(ctx, int(replicas)+1)
				if version == firstRelease {
					Eventually(func() int { return freeHosts(ctx) }).WithTimeout(resetTimeout).Should(Equal(1), "the host is reset")
				}
			})
		}
	}, SpecTimeout(25*time.Minute))

	It("releases their hosts", func(ctx context.Context) {
		step("provider-upgrade: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
		for _, condition := range []string{infrav1.AvailableCondition, infrav1.ConnectedCondition} {
			for _, host := range elementalHosts(ctx) {
				Expect(meta.IsStatusConditionTrue(host.Status.Conditions, condition)).To(BeTrue(), "%s: %s", host.Name, condition)
			}
		}
	}, SpecTimeout(15*time.Minute))
})

// manifestsOf writes the files for clusterctl of a checkout, as a version.
func manifestsOf(ctx context.Context, root, version string) lab.Build {
	GinkgoHelper()
	folder := filepath.Join(GinkgoT().TempDir(), version)
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "manifests", "VERSION="+version, "MANIFESTS_DIR="+folder)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return lab.Build{Checkout: root, Manifests: folder}
}

// connections returns the local addresses of the connections that the agents have to the manager, by host.
func connections(ctx context.Context) map[string][]string {
	GinkgoHelper()
	all := map[string][]string{}
	for _, box := range hosts.Hosts() {
		for line := range strings.Lines(shell(ctx, box, fmt.Sprintf("ss -Htn state established 'dport = :%d'", lab.AgentAPIPort))) {
			if fields := strings.Fields(line); len(fields) > 2 {
				all[box.Name] = append(all[box.Name], fields[2])
			}
		}
	}
	return all
}

// expectReconnected waits until each host has a connection that is none of the former ones. Its conditions don't say that:
// they stay while a manager is replaced.
func expectReconnected(ctx context.Context, former map[string][]string) {
	GinkgoHelper()
	began := time.Now()
	Eventually(func(g Gomega) {
		now := connections(ctx)
		for _, box := range hosts.Hosts() {
			g.Expect(now[box.Name]).NotTo(BeEmpty(), box.Name)
			for _, local := range now[box.Name] {
				g.Expect(former[box.Name]).NotTo(ContainElement(local), box.Name)
			}
		}
	}).WithTimeout(2 * time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
	fmt.Printf("  all hosts are connected to the new manager %.1f s later\n", time.Since(began).Seconds())
}

// applyComponents replaces the provider by another version, as docs/operating.md says.
func applyComponents(ctx context.Context, version string) {
	GinkgoHelper()
	components, err := hosts.Clusterctl(ctx, "generate", "provider", "--infrastructure", "elemental:"+version)
	Expect(err).NotTo(HaveOccurred())
	_, err = hosts.KubectlInput(ctx, strings.NewReader(components), "apply", "--server-side", "--force-conflicts", "--filename", "-")
	Expect(err).NotTo(HaveOccurred())
	key := managerDeployment(ctx)
	kubectl(ctx, "--namespace", key.Namespace, "rollout", "status", "deployment", key.Name, "--timeout", "3m")
}

// freeHosts counts the hosts that are available.
func freeHosts(ctx context.Context) int {
	GinkgoHelper()
	count := 0
	for _, host := range elementalHosts(ctx) {
		if meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.AvailableCondition) {
			count++
		}
	}
	return count
}
