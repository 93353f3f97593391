package workload_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload"
)

func (c *cluster) readiness(m fleet.Machine) func() corev1.ConditionStatus {
	return func() corev1.ConditionStatus {
		c.t.Helper()
		for _, condition := range c.node(m).Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status
			}
		}
		return ""
	}
}

func (c *cluster) podReady(name string) corev1.ConditionStatus {
	c.t.Helper()
	pod := &corev1.Pod{}
	c.Expect(c.admin().Get(c.t.Context(), client.ObjectKey{Namespace: "kube-system", Name: name}, pod)).To(Succeed())
	return pod.Status.Conditions[0].Status
}

// pass advances the clock in steps of the inspection interval.
func (c *cluster) pass(clock *clocktesting.FakeClock, d time.Duration) {
	for range int(d / (5 * time.Second)) {
		c.Eventually(clock.HasWaiters).Should(BeTrue())
		clock.Step(5 * time.Second)
	}
}

func unknown(c *cluster, m fleet.Machine) {
	c.t.Helper()
	c.Eventually(c.readiness(m)).Should(Equal(corev1.ConditionUnknown))
}

// The Node of a host without power becomes Unknown after 40 s, and Ready when the host boots.
func TestSilentNode(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	r := newRig(t, workload.Options{Clock: clock})
	c, hosts := r.of(3)
	m := hosts[2]
	r.Halt(m)
	c.pass(clock, 35*time.Second)
	r.Consistently(c.readiness(m), 100*time.Millisecond).Should(Equal(corev1.ConditionTrue))
	c.pass(clock, 5*time.Second)
	unknown(c, m)
	r.Eventually(func() corev1.ConditionStatus { return c.podReady("kube-apiserver-" + m.Hostname) }).Should(Equal(corev1.ConditionFalse))
	r.Expect(c.node(m).Spec.Taints).To(ContainElement(HaveField("Key", corev1.TaintNodeUnreachable)))
	r.Expect(c.readiness(hosts[1])()).To(Equal(corev1.ConditionTrue))

	r.Expect(r.Boot(t.Context(), m)).To(Succeed())
	r.Expect(c.readiness(m)()).To(Equal(corev1.ConditionTrue))
	r.Expect(c.podReady("kube-apiserver-" + m.Hostname)).To(Equal(corev1.ConditionTrue))
	r.Expect(c.node(m).Spec.Taints).NotTo(ContainElement(HaveField("Key", corev1.TaintNodeUnreachable)))
	r.Expect(clock.HasWaiters()).To(BeFalse(), "no inspection is planned while all hosts are healthy")
}

// The Node of a worker whose kubeconfig names a dead endpoint is Unknown until the kubeconfig
// names a live one.
func TestWorkerFollows(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	r := newRig(t, workload.Options{Clock: clock})
	c, hosts := r.of(3)
	worker := r.machine()
	c.join(worker, false)
	former := c.endpoint
	r.Halt(hosts[0])
	c.endpoint = netip.AddrPortFrom(hosts[1].Address, 6443)
	c.pass(clock, 40*time.Second)
	unknown(c, worker)
	unknown(c, hosts[0])
	r.Expect(c.readiness(hosts[1])()).To(Equal(corev1.ConditionTrue), "a control-plane host uses its own API server")

	file := filepath.Join(worker.Root, "etc/kubernetes/kubelet.conf")
	text, err := os.ReadFile(file)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(os.WriteFile(file, []byte(strings.ReplaceAll(string(text), former.String(), c.endpoint.String())), 0o600)).To(Succeed())
	c.pass(clock, 5*time.Second)
	r.Eventually(c.readiness(worker)).Should(Equal(corev1.ConditionTrue))
}

// Without a quorum of etcd, no controller can mark Nodes as Unknown.
func TestNoQuorumKeepsNodesReady(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	r := newRig(t, workload.Options{Clock: clock})
	c, hosts := r.of(3)
	r.Halt(hosts[1])
	r.Halt(hosts[2])
	c.pass(clock, 2*time.Minute)
	r.Expect(c.ready(hosts[0], anyAddress())).To(Equal(500))
	r.Expect(r.Boot(t.Context(), hosts[1])).To(Succeed())
	r.Expect(c.ready(hosts[0], anyAddress())).To(Equal(200))
	r.Eventually(c.readiness(hosts[2])).Should(Equal(corev1.ConditionUnknown))
	r.Expect(c.readiness(hosts[0])()).To(Equal(corev1.ConditionTrue))
}
