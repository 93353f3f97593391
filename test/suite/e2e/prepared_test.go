//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/preflight"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

const (
	// preparedLabel is on the hosts that the cluster of the spec may have.
	preparedLabel = "lab.elemental/prepared"
	// swapsFile is mounted over /proc/swaps of a host: swap is that of the machine, which a host can't
	// change.
	swapsFile = "/run/swaps"
	// swapsHeading is the first line of /proc/swaps.
	swapsHeading = `Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n`
	// lookTime bounds how long the agent takes to look at the host by itself, on a busy machine.
	lookTime = 2 * time.Minute
)

// defect is something on a host that kubeadm fails on.
type defect struct {
	finding infrav1.FindingName
	// make makes it, and mend does what the message says.
	make, mend string
	// shown is how the line of Prepared begins, and advice is a part of it.
	shown, advice string
	// isSeen is true if the agent sees the repair without a restart.
	isSeen bool
}

// defects returns what is put in the way of a host, in this order.
func defects() []defect {
	return []defect{
		{
			finding: infrav1.FindingSwap, shown: "Swap is on", advice: "run swapoff -a",
			make: `printf '` + swapsHeading + `/dev/vdb partition 1048572 0 -2\n' >` + swapsFile,
			mend: `printf '` + swapsHeading + `' >` + swapsFile,
		},
		{
			finding: infrav1.FindingPorts, shown: "Port 6443 is taken", advice: "stop the program that listens there, which ss -ltnp shows",
			make: `systemd-run --quiet --unit taken socat TCP-LISTEN:6443,fork,reuseaddr EXEC:/bin/true
until ss -ltn | grep -q :6443; do sleep 0.1; done`,
			mend: `ss -ltnp | grep :6443 | grep -q socat
systemctl stop taken`,
		},
		{
			finding: infrav1.FindingVersions, shown: "kubelet is v1.30.0 and kubeadm is v", advice: "install both of the same minor version",
			make: `mv /usr/local/bin/kubelet /usr/local/lib/kubelet-of-the-host
printf '#!/bin/sh\necho Kubernetes v1.30.0\n' >/usr/local/bin/kubelet
chmod 755 /usr/local/bin/kubelet`,
			mend: `mv /usr/local/lib/kubelet-of-the-host /usr/local/bin/kubelet`,
		},
		{
			finding: infrav1.FindingBridgeNetfilter, shown: "br_netfilter is not in use", advice: "set net.bridge.bridge-nf-call-iptables to 1",
			make: `sysctl --quiet --write net.bridge.bridge-nf-call-iptables=0`,
			mend: `sysctl --quiet --write net.bridge.bridge-nf-call-iptables=1`,
		},
		{
			finding: infrav1.FindingRuntime, shown: "The container runtime does not run", advice: "start it", isSeen: true,
			make: `systemctl stop containerd`,
			mend: `systemctl start containerd`,
		},
	}
}

var _ = Describe("A host that is not prepared", func() {
	It("is named, gets no Machine, and gets one once it is mended", Label("prepared"), func(ctx context.Context) {
		all := hosts.Hosts()
		Expect(len(all)).To(BeNumerically(">=", 2), "LAB_HOSTS")
		u := &unprepared{workload: workload{lab.Cluster{Name: "mended", ControlPlanes: 1, Workers: 1}}, box: all[1]}
		DeferCleanup(u.restore)
		step("mended: two hosts without the machine's swap", func() {
			for _, box := range all[:2] {
				shell(ctx, box, `printf '`+swapsHeading+`' >`+swapsFile+` && mount --bind `+swapsFile+` /proc/swaps`)
				restartAgent(ctx, box)
				u.expectFinding(ctx, box, nil)
				patch(ctx, hostOf(ctx, box), `{"metadata":{"labels":{"`+preparedLabel+`":"yes"}}}`)
			}
		})
		u.before = hostOf(ctx, u.box).Status
		faults := defects()
		step("mended: one of them not prepared", func() { u.put(ctx, faults[0]) })
		step("mended: cluster without a worker", func() {
			u.createStrict(ctx)
			u.expectWaiting(ctx)
		})
		for i, fault := range faults {
			step(fmt.Sprintf("mended: %s alone keeps the worker waiting", fault.finding), func() {
				// The host is never without a defect: the next one is there before the last is mended.
				if i > 0 {
					u.put(ctx, fault)
					u.mend(ctx, faults[i-1])
				}
				u.expectFinding(ctx, u.box, &fault)
				u.expectWaiting(ctx)
			})
		}
		step("mended: the mended host is the worker", func() {
			u.mend(ctx, faults[len(faults)-1])
			u.expectRunning(ctx, 2)
			host := hostOf(ctx, u.box)
			Expect(host.Spec.Claim).NotTo(BeNil())
			Expect(host.Spec.Claim.Role.IsControlPlane()).To(BeFalse())
		})
		step("mended: cluster deleted", func() {
			u.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(30*time.Minute))
})

// unprepared is a cluster whose worker can only have a host that is not prepared.
type unprepared struct {
	workload

	box *engine.Host
	// before is the status of its ElementalHost before the cluster.
	before infrav1.ElementalHostStatus
}

// put makes a defect, and has the agent look.
func (u *unprepared) put(ctx context.Context, d defect) {
	GinkgoHelper()
	shell(ctx, u.box, "set -e\n"+d.make)
	restartAgent(ctx, u.box)
	Eventually(func(g Gomega) { g.Expect(u.findings(ctx, u.box)).To(ContainElement(d.finding)) }).
		WithTimeout(lookTime).Should(Succeed())
}

// mend does what the message says, and has the agent look as the documentation says.
func (u *unprepared) mend(ctx context.Context, d defect) {
	GinkgoHelper()
	shell(ctx, u.box, "set -e\n"+d.mend)
	if !d.isSeen {
		restartAgent(ctx, u.box)
	}
}

// findings returns what keeps Machines off a host, by name.
func (u *unprepared) findings(ctx context.Context, box *engine.Host) []infrav1.FindingName {
	GinkgoHelper()
	var names []infrav1.FindingName
	for _, f := range preflight.Blocking(preflight.Findings(hostOf(ctx, box), preflight.Need{})) {
		names = append(names, f.Name)
	}
	return names
}

// expectFinding waits until Prepared of the host names the defect and nothing else that keeps
// Machines off it, or is True if d is nil.
func (u *unprepared) expectFinding(ctx context.Context, box *engine.Host, d *defect) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		prepared := meta.FindStatusCondition(hostOf(ctx, box).Status.Conditions, infrav1.PreparedCondition)
		g.Expect(prepared).NotTo(BeNil())
		if d == nil {
			g.Expect(prepared.Reason).To(Equal(infrav1.PreparedReason), prepared.Message)
			return
		}
		g.Expect(prepared.Reason).To(Equal(infrav1.NotPreparedReason))
		g.Expect(prepared.Message).To(HavePrefix(d.shown))
		g.Expect(prepared.Message).To(ContainSubstring(d.advice))
		g.Expect(u.findings(ctx, box)).To(Equal([]infrav1.FindingName{d.finding}))
	}).WithTimeout(lookTime).Should(Succeed())
}

// createStrict applies the cluster for the two hosts, with no finding ignored.
func (u *unprepared) createStrict(ctx context.Context) {
	GinkgoHelper()
	u.createModified(ctx, func(object *unstructured.Unstructured) {
		if object.GetKind() != "ElementalMachineTemplate" {
			return
		}
		spec := []string{"spec", "template", "spec"}
		unstructured.RemoveNestedField(object.Object, append(spec, "ignoreFindings")...)
		Expect(unstructured.SetNestedStringMap(object.Object, map[string]string{preparedLabel: "yes"},
			append(spec, "hostSelector", "matchLabels")...)).To(Succeed())
	})
}

// expectWaiting waits until the control plane runs and the worker waits for a host, with the reason
// counted, and checks that nothing has happened to the host that is not prepared.
func (u *unprepared) expectWaiting(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		machines := &infrav1.ElementalMachineList{}
		g.Expect(management.List(ctx, machines, u.inCluster()...)).To(Succeed())
		g.Expect(machines.Items).To(HaveLen(2))
		waiting := 0
		for _, m := range machines.Items {
			claimed := meta.FindStatusCondition(m.Status.Conditions, infrav1.HostClaimedCondition)
			g.Expect(claimed).NotTo(BeNil())
			if claimed.Reason == infrav1.NoHostReason {
				waiting++
				g.Expect(claimed.Message).To(ContainSubstring("1 Claimed, 1 NotPrepared"))
			}
		}
		g.Expect(waiting).To(Equal(1))
	}).WithTimeout(provisionTimeout).Should(Succeed())
	host := hostOf(ctx, u.box)
	Expect(host.Spec.Claim).To(BeNil())
	Expect(host.Spec.Quarantine).To(BeNil())
	Expect(host.Status.Operations).To(Equal(u.before.Operations))
	Expect(host.Status.Failures).To(Equal(u.before.Failures))
	shell(ctx, u.box, "test ! -e /etc/kubernetes/kubelet.conf")
}

// restore removes the cluster and all defects, whatever the spec has reached.
func (u *unprepared) restore(ctx context.Context) {
	GinkgoHelper()
	if keepsLab() && CurrentSpecReport().Failed() {
		return
	}
	cluster := &unstructured.Unstructured{}
	cluster.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	cluster.SetKind("Cluster")
	cluster.SetName(u.Name)
	cluster.SetNamespace(u.namespace())
	if management.Get(ctx, client.ObjectKeyFromObject(cluster), cluster) == nil {
		u.delete(ctx)
	}
	shell(ctx, u.box, `sysctl --quiet --write net.bridge.bridge-nf-call-iptables=1
systemctl stop taken 2>/dev/null
systemctl start containerd
if [ -e /usr/local/lib/kubelet-of-the-host ]; then mv /usr/local/lib/kubelet-of-the-host /usr/local/bin/kubelet; fi`)
	for _, box := range hosts.Hosts()[:2] {
		shell(ctx, box, `umount /proc/swaps; rm -f `+swapsFile)
		restartAgent(ctx, box)
		patch(ctx, hostOf(ctx, box), `{"metadata":{"labels":{"`+preparedLabel+`":null}}}`)
	}
}
