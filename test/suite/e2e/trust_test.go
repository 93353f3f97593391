//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

const agentState = "/var/lib/elemental/agent"

var _ = Describe("Hosts that cannot be trusted or reached", Ordered, Label("trust"), func() {
	w := workload{lab.Cluster{Name: "trust", ControlPlanes: 1, Workers: 1}}

	It("stay Nodes when registration, tokens and manager are deleted", func(ctx context.Context) {
		step("trust: 1+1 running", func() {
			w.create(ctx)
			w.expectRunning(ctx, 2)
		})
		kubelets := w.kubelets(ctx)
		step("trust: registration, tokens and manager deleted", func() {
			kubectl(ctx, "delete", "elementalregistration", "lab", "--namespace", namespace)
			manager := managerDeployment(ctx)
			kubectl(ctx, "--namespace", manager.Namespace, "scale", "deployment", manager.Name, "--replicas", "0")
			Eventually(func() string {
				return kubectl(ctx, "--namespace", manager.Namespace, "get", "pods", "--output", "name")
			}).WithTimeout(time.Minute).Should(BeEmpty())
			w.expectNodes(ctx, 2)
			kubectl(ctx, "--namespace", manager.Namespace, "scale", "deployment", manager.Name, "--replicas", "1")
			kubectl(ctx, "--namespace", manager.Namespace, "rollout", "status", "deployment", manager.Name, "--timeout", "2m")
		})
		step("trust: all hosts connected again", func() { expectConnected(ctx, hosts.Hosts()...) })
		Expect(w.kubelets(ctx)).To(Equal(kubelets), "no kubelet was restarted")
		w.expectNodes(ctx, 2)
	}, SpecTimeout(20*time.Minute))

	It("reconnect at once when their network returns", func(ctx context.Context) {
		box, _ := freeHost(ctx)
		Expect(box.Disconnect(ctx)).To(Succeed())
		step("trust: host knows that it is offline", func() {
			Eventually(func() string { return connection(ctx, box) }).WithTimeout(3 * time.Minute).Should(Equal("Disconnected"))
		})
		Expect(box.Connect(ctx)).To(Succeed())
		step("trust: offline host connected", func() { expectConnected(ctx, box) })
	}, SpecTimeout(10*time.Minute))

	It("are cut off when they are rejected", func(ctx context.Context) {
		box, host := freeHost(ctx)
		patch(ctx, host, `{"spec":{"approval":"Rejected"}}`)
		step("trust: rejected host disconnected", func() {
			Eventually(func() string { return connection(ctx, box) }).
				WithTimeout(time.Minute).WithPolling(100 * time.Millisecond).Should(Equal("Revoked"))
		})
		patch(ctx, host, `{"spec":{"approval":"Approved"}}`)
		restartAgent(ctx, box)
		expectConnected(ctx, box)
	}, SpecTimeout(10*time.Minute))

	It("are locked when one is cloned", func(ctx context.Context) {
		box, host := freeHost(ctx)
		copied, _ := freeHost(ctx, box)
		before := hostCount(ctx)
		stolen, err := box.Exec(ctx, "sh", "-c", "tar -C "+agentState+" -c . | base64")
		Expect(err).NotTo(HaveOccurred())
		shell(ctx, copied, "systemctl stop elemental-agent && mv "+agentState+" "+agentState+".own && mkdir -m 0700 "+agentState)
		_, err = copied.ExecInput(ctx, strings.NewReader(stolen), "sh", "-c", "base64 -d | tar -C "+agentState+" -x")
		Expect(err).NotTo(HaveOccurred())
		step("trust: cloned host locked", func() {
			shell(ctx, copied, "systemctl start elemental-agent")
			Eventually(func(g Gomega) {
				g.Expect(management.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
				g.Expect(host.Spec.Lock).NotTo(BeNil())
			}).WithTimeout(3 * time.Minute).Should(Succeed())
		})
		step("trust: both copies locked", func() {
			for _, one := range []*engine.Host{box, copied} {
				Eventually(func() string { return connection(ctx, one) }).WithTimeout(time.Minute).Should(Equal("Locked"))
			}
		})
		Expect(kubectl(ctx, "--namespace", namespace, "get", "events", "--field-selector",
			"involvedObject.name="+host.Name+",reason="+infrav1.IdentityClonedReason, "--output", "name")).NotTo(BeEmpty())
		Expect(hostCount(ctx)).To(Equal(before))
		step("trust: copy destroyed, host unlocked", func() {
			shell(ctx, copied, "systemctl stop elemental-agent && rm -r "+agentState+" && mv "+agentState+".own "+agentState+" && systemctl start elemental-agent")
			patch(ctx, host, `{"spec":{"lock":null}}`)
			restartAgent(ctx, box)
			expectConnected(ctx, box, copied)
		})
	}, SpecTimeout(10*time.Minute))

	It("can be released when they are dead, and are reset first when they return", func(ctx context.Context) {
		worker, host := w.worker(ctx)
		machine := host.Spec.Claim.MachineName
		Expect(worker.Kill(ctx)).To(Succeed())
		step("trust: dead host fenced and released", func() {
			patch(ctx, host, `{"spec":{"fence":{"reason":"dead"}}}`)
			Eventually(func() error {
				return management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machine}, &clusterv1.Machine{})
			}).WithTimeout(resetTimeout).Should(MatchError(ContainSubstring("not found")))
		})
		step("trust: another host in its place", func() { w.expectRunning(ctx, 2) })
		step("trust: dead host started, reset and still fenced", func() {
			Expect(worker.Start(ctx)).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(management.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
				g.Expect(host.Spec.Claim).To(BeNil())
				available := meta.FindStatusCondition(host.Status.Conditions, infrav1.AvailableCondition)
				g.Expect(available).To(HaveValue(HaveField("Reason", infrav1.FencedReason)))
				g.Expect(meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.CleanCondition)).To(BeTrue())
			}).WithTimeout(resetTimeout).Should(Succeed())
		})
		patch(ctx, host, `{"spec":{"fence":null}}`)
	}, SpecTimeout(20*time.Minute))

	It("are not remediated during maintenance", func(ctx context.Context) {
		_, host := w.worker(ctx)
		machine := &clusterv1.Machine{}
		skipped := func() bool {
			Expect(management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: host.Spec.Claim.MachineName}, machine)).To(Succeed())
			_, found := machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]
			return found
		}
		patch(ctx, host, `{"spec":{"maintenance":{"reason":"a new disk"}}}`)
		Eventually(skipped).WithTimeout(time.Minute).Should(BeTrue())
		patch(ctx, host, `{"spec":{"maintenance":null}}`)
		Eventually(skipped).WithTimeout(time.Minute).Should(BeFalse())
		step("trust: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(20*time.Minute))
})

// kubelets returns the start times of the cluster's kubelets.
func (w workload) kubelets(ctx context.Context) map[string]string {
	GinkgoHelper()
	started := map[string]string{}
	for _, host := range elementalHosts(ctx) {
		if host.Spec.Claim != nil && host.Spec.Claim.ClusterName == w.Name {
			started[host.Name] = shell(ctx, boxOf(&host), "systemctl show --property ExecMainStartTimestampMonotonic kubelet")
		}
	}
	Expect(started).NotTo(BeEmpty())
	return started
}

// worker returns a host of the cluster whose address is not the endpoint.
func (w workload) worker(ctx context.Context) (*engine.Host, *infrav1.ElementalHost) {
	GinkgoHelper()
	cluster := &infrav1.ElementalCluster{}
	Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
	for _, host := range elementalHosts(ctx) {
		if c := host.Spec.Claim; c != nil && c.ClusterName == w.Name && c.Phase == infrav1.ClaimBound &&
			host.Name != cluster.Spec.ControlPlaneEndpointPolicy.HostRef.Name {
			return boxOf(&host), &host
		}
	}
	Fail("the cluster has no worker")
	return nil, nil
}

// freeHost returns an available host other than the given one.
func freeHost(ctx context.Context, others ...*engine.Host) (*engine.Host, *infrav1.ElementalHost) {
	GinkgoHelper()
	for _, host := range elementalHosts(ctx) {
		box := boxOf(&host)
		if !meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.AvailableCondition) {
			continue
		}
		if len(others) == 0 || box.Name != others[0].Name {
			return box, &host
		}
	}
	Fail("no host is free")
	return nil, nil
}

func elementalHosts(ctx context.Context) []infrav1.ElementalHost {
	GinkgoHelper()
	list := &infrav1.ElementalHostList{}
	Expect(management.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

func hostCount(ctx context.Context) int { return len(elementalHosts(ctx)) }

// boxOf returns the lab host of an ElementalHost.
func boxOf(host *infrav1.ElementalHost) *engine.Host {
	GinkgoHelper()
	for _, box := range hosts.Hosts() {
		if hasAddress(host, box.Address) {
			return box
		}
	}
	Fail("no host has an address of " + host.Name)
	return nil
}

// connection returns the state of the connection that the agent reports.
func connection(ctx context.Context, box *engine.Host) string {
	out, err := box.Exec(ctx, "elemental-agent", "status", "--output", "json")
	if err != nil {
		return err.Error()
	}
	var status struct{ Connection struct{ State string } }
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return err.Error()
	}
	return status.Connection.State
}

func expectConnected(ctx context.Context, boxes ...*engine.Host) {
	GinkgoHelper()
	for _, box := range boxes {
		Eventually(func() string { return connection(ctx, box) }).
			WithTimeout(3*time.Minute).WithPolling(100*time.Millisecond).Should(Equal("Connected"), box.Name)
	}
}

func restartAgent(ctx context.Context, box *engine.Host) {
	GinkgoHelper()
	shell(ctx, box, "systemctl restart elemental-agent")
}

func shell(ctx context.Context, box *engine.Host, script string) string {
	GinkgoHelper()
	out, err := box.Exec(ctx, "sh", "-c", script)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := hosts.Kubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred(), out)
	return strings.TrimSpace(out)
}

func patch(ctx context.Context, host *infrav1.ElementalHost, change string) {
	GinkgoHelper()
	kubectl(ctx, "--namespace", host.Namespace, "patch", "elementalhost", host.Name, "--type", "merge", "--patch", change)
}

// managerDeployment returns the key of the provider's Deployment.
func managerDeployment(ctx context.Context) client.ObjectKey {
	GinkgoHelper()
	out := kubectl(ctx, "get", "deployments", "--all-namespaces", "--selector", clusterv1.ProviderNameLabel+"=infrastructure-elemental",
		"--output", `jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{end}`)
	var key client.ObjectKey
	_, err := fmt.Sscan(out, &key.Namespace, &key.Name)
	Expect(err).NotTo(HaveOccurred(), out)
	return key
}
