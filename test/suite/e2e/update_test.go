//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/update"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

const (
	agentProgram = "/usr/local/bin/elemental-agent"
	// formerAgent is older than any release, brokenAgent newer.
	formerAgent, brokenAgent = "v0.0.1", "v999.0.0"
	// brokenStarts gets a line each time the broken agent starts.
	brokenStarts = "/var/log/broken-agent-starts"
	// updateTimeout bounds an update and a rollback.
	updateTimeout = 5 * time.Minute
)

// brokenProgram is a defective release: it reports its version and fails otherwise.
const brokenProgram = `#!/bin/sh
if [ "$1" = version ]; then
	echo "elemental-agent ` + brokenAgent + ` linux/` + runtime.GOARCH + `"
	exit
fi
echo "$@" >> ` + brokenStarts + `
echo "this is broken" >&2
exit 1
`

var _ = Describe("Agents whose registration pins a release", Ordered, Label("update"), func() {
	w := workload{lab.Cluster{Name: "update", ControlPlanes: 1}}
	// pinned is the release that the manager serves.
	var pinned infrav1.AgentRelease

	BeforeAll(func(ctx context.Context) {
		step("update: all hosts with agent "+formerAgent, func() {
			Expect(hosts.Enrol(ctx, lab.Enrolment{Name: "lab", Hosts: hosts.Hosts(), AgentVersion: formerAgent})).To(Succeed())
			Eventually(func() []string { return agentVersions(ctx) }).WithTimeout(updateTimeout).Should(HaveEach(formerAgent))
		})
		DeferCleanup(func(ctx context.Context) {
			pin(ctx, nil)
			for _, box := range hosts.Hosts() {
				_, _ = box.Exec(ctx, "rm", "-f", brokenStarts)
			}
			Expect(hosts.Enrol(ctx, lab.Enrolment{Name: "lab", Hosts: hosts.Hosts()})).To(Succeed())
		})
		step("update: 1+0 running, other hosts free", func() {
			w.create(ctx)
			w.expectRunning(ctx, 1)
		})
	}, NodeTimeout(25*time.Minute))

	It("are updated, and nothing else changes", func(ctx context.Context) {
		version, err := hosts.Release()
		Expect(err).NotTo(HaveOccurred())
		pinned = releaseOf(version, served(ctx))
		before := hostStates(ctx)
		step("update: all agents updated to "+version, func() {
			pin(ctx, &pinned)
			expectAgents(ctx, func(host *infrav1.ElementalHost, current *metav1.Condition) bool {
				return current.Status == metav1.ConditionTrue && host.Status.Agent.Version == version
			})
		})
		expectPrograms(ctx, pinned)
		expectOutages(ctx)
		Expect(hostStates(ctx)).To(Equal(before))
		w.expectNodes(ctx, 1)
		expectServed(ctx)
	}, SpecTimeout(15*time.Minute))

	It("are rolled back when it does not start", func(ctx context.Context) {
		step("update: manager serves a broken release", func() { serve(ctx, brokenProgram) })
		sum := sha256.Sum256([]byte(brokenProgram))
		before := hostStates(ctx)
		step("update: broken release tried and rolled back on all hosts", func() {
			broken := releaseOf(brokenAgent, hex.EncodeToString(sum[:]))
			pin(ctx, &broken)
			expectServed(ctx)
			expectAgents(ctx, func(_ *infrav1.ElementalHost, current *metav1.Condition) bool {
				return current.Status == metav1.ConditionFalse && current.Reason == infrav1.AgentUpdateFailedReason
			})
		})
		for _, host := range elementalHosts(ctx) {
			current := meta.FindStatusCondition(host.Status.Conditions, infrav1.AgentCurrentCondition)
			fmt.Printf("  %s: %s\n", host.Name, current.Message)
			Expect(current.Message).To(ContainSubstring("%s was started %d times and never reached the manager; %s was put back",
				brokenAgent, update.MaxStarts, pinned.Version))
			Expect(host.Status.Agent.Version).To(Equal(pinned.Version))
		}
		expectConnected(ctx, hosts.Hosts()...)
		expectPrograms(ctx, pinned)
		expectOutages(ctx)
		Consistently(func(g Gomega) {
			for _, box := range hosts.Hosts() {
				starts := shell(ctx, box, "cat "+brokenStarts)
				g.Expect(strings.Count(starts+"\n", "run --self-update\n")).To(Equal(update.MaxStarts), starts)
			}
		}).WithTimeout(30 * time.Second).WithPolling(5 * time.Second).Should(Succeed())
		Expect(hostStates(ctx)).To(Equal(before))
		w.expectNodes(ctx, 1)
		step("update: former release pinned again", func() {
			pin(ctx, &pinned)
			expectAgents(ctx, func(_ *infrav1.ElementalHost, current *metav1.Condition) bool {
				return current.Status == metav1.ConditionTrue
			})
		})
	}, SpecTimeout(20*time.Minute))

	It("are rolled back when it cannot reach the manager", func(ctx context.Context) {
		box, host := freeHost(ctx)
		former := installFormer(ctx, box)
		step("update: new agent disconnected from its start, and rolled back by itself", func() {
			// The former program is kept immediately before it is replaced.
			shell(ctx, box, "setsid sh -c 'until [ -e "+agentProgram+update.PreviousSuffix+" ]; do sleep 0.05; done; "+
				"ip link set eth0 down' >/dev/null 2>&1 &")
			pin(ctx, &pinned)
			onDisk := func() string { return digestIn(shell(ctx, box, "sha256sum "+agentProgram)) }
			Eventually(onDisk).WithTimeout(time.Minute).Should(Equal(pinned.Binaries[0].SHA256))
			Eventually(onDisk).WithTimeout(update.TrialTime + time.Minute).Should(Equal(former))
		})
		step("update: network and former agent running again", func() {
			Expect(box.Connect(ctx)).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(management.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
				current := meta.FindStatusCondition(host.Status.Conditions, infrav1.AgentCurrentCondition)
				g.Expect(current).To(HaveValue(And(HaveField("Reason", infrav1.AgentUpdateFailedReason), HaveField("Message", ContainSubstring(
					"%s ran for %s and did not reach the manager; %s was put back", pinned.Version, update.TrialTime, formerAgent)))))
				g.Expect(host.Status.Agent.Version).To(Equal(formerAgent))
			}).WithTimeout(updateTimeout).Should(Succeed())
		})
		expectConnected(ctx, box)
	}, SpecTimeout(20*time.Minute))

	It("still reset their hosts", func(ctx context.Context) {
		step("update: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(15*time.Minute))
})

func releaseOf(version, digest string) infrav1.AgentRelease {
	return infrav1.AgentRelease{
		Version: version, Binaries: []infrav1.AgentBinary{{Architecture: runtime.GOARCH, SHA256: digest}},
	}
}

// pin sets the release that the registration of all hosts pins; nil pins none. It retries, because
// the webhook of a restarted manager may not be reachable yet.
func pin(ctx context.Context, release *infrav1.AgentRelease) {
	GinkgoHelper()
	change, err := json.Marshal(map[string]any{"spec": map[string]any{"agent": release}})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		_, err := hosts.Kubectl(ctx, "--namespace", namespace, "patch", "elementalregistration", "lab", "--type", "merge", "--patch", string(change))
		return err
	}).WithTimeout(time.Minute).Should(Succeed())
}

// installFormer installs the former agent on a host manually and returns its digest. Afterwards no
// release is pinned.
func installFormer(ctx context.Context, box *engine.Host) string {
	GinkgoHelper()
	pin(ctx, nil)
	Expect(hosts.Enrol(ctx, lab.Enrolment{Name: "lab", Hosts: []*engine.Host{box}, AgentVersion: formerAgent})).To(Succeed())
	Eventually(func() []string { return agentVersions(ctx) }).WithTimeout(updateTimeout).Should(ContainElement(formerAgent))
	return digestIn(shell(ctx, box, "sha256sum "+agentProgram))
}

// served returns the digest of the agent in the manager's image.
func served(ctx context.Context) string {
	GinkgoHelper()
	return digestIn(shell(ctx, hosts.Management(), "sha256sum /proc/$(pgrep -o -f agent-api-url)/root"+lab.ServedAgent))
}

// digestIn returns the digest in a line of sha256sum's output.
func digestIn(line string) string {
	GinkgoHelper()
	digest, _, found := strings.Cut(line, " ")
	Expect(found).To(BeTrue(), line)
	return digest
}

// serve makes the manager serve a program from an additional folder.
func serve(ctx context.Context, program string) {
	GinkgoHelper()
	const name, file = "other-agents", "other"
	manager := managerDeployment(ctx)
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: manager.Namespace, Name: name}, Data: map[string]string{file: program},
	}
	Expect(management.Create(ctx, config)).To(Succeed())
	deployment := func(args ...string) {
		kubectl(ctx, append([]string{"--namespace", manager.Namespace}, args...)...)
	}
	// The folder of a ConfigMap contains links; a subPath mount provides a regular file.
	deployment("patch", "deployment", manager.Name, "--type", "json", "--patch", `[
		{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--agent-binaries=/agents,/`+name+`"},
		{"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-",
		 "value": {"name": "`+name+`", "mountPath": "/`+name+`/`+file+`", "subPath": "`+file+`"}},
		{"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "`+name+`", "configMap": {"name": "`+name+`"}}}]`)
	rolledOut := func() { deployment("rollout", "status", "deployment", manager.Name, "--timeout", "3m") }
	DeferCleanup(func(ctx context.Context) {
		kubectl(ctx, "--namespace", manager.Namespace, "rollout", "undo", "deployment", manager.Name)
		kubectl(ctx, "--namespace", manager.Namespace, "rollout", "status", "deployment", manager.Name, "--timeout", "3m")
		Expect(management.Delete(ctx, config)).To(Succeed())
	})
	rolledOut()
}

// expectServed waits until the manager reports that it serves the pinned release.
func expectServed(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		registration := &infrav1.ElementalRegistration{}
		g.Expect(management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "lab"}, registration)).To(Succeed())
		ready := meta.FindStatusCondition(registration.Status.Conditions, infrav1.AgentBinariesReadyCondition)
		g.Expect(ready).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue),
			HaveField("ObservedGeneration", registration.Generation))), "%+v", registration.Status.Conditions)
	}).WithTimeout(2 * time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
}

func agentVersions(ctx context.Context) []string {
	GinkgoHelper()
	var versions []string
	for _, host := range elementalHosts(ctx) {
		Expect(host.Status.Agent).NotTo(BeNil())
		versions = append(versions, host.Status.Agent.Version)
	}
	return versions
}

// expectAgents waits until AgentCurrent of all hosts is as wanted, and prints when each host
// reached it.
func expectAgents(ctx context.Context, wanted func(host *infrav1.ElementalHost, current *metav1.Condition) bool) {
	GinkgoHelper()
	start, done := time.Now(), map[string]bool{}
	Eventually(func(g Gomega) {
		all := elementalHosts(ctx)
		for _, host := range all {
			current := meta.FindStatusCondition(host.Status.Conditions, infrav1.AgentCurrentCondition)
			if current == nil || done[host.Name] || !wanted(&host, current) {
				continue
			}
			done[host.Name] = true
			fmt.Printf("  %s (%s) after %.1f s: AgentCurrent %s, %s\n",
				host.Name, boxOf(&host).Name, time.Since(start).Seconds(), current.Status, current.Reason)
		}
		g.Expect(done).To(HaveLen(len(all)))
	}).WithTimeout(updateTimeout).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// expectPrograms checks the running program and the installed files on the hosts.
func expectPrograms(ctx context.Context, release infrav1.AgentRelease) {
	GinkgoHelper()
	for _, box := range hosts.Hosts() {
		const running = "/proc/$(systemctl show --property MainPID --value elemental-agent)/exe"
		for _, program := range []string{running, agentProgram} {
			Expect(digestIn(shell(ctx, box, "sha256sum "+program))).To(Equal(release.Binaries[0].SHA256), "%s on %s", program, box.Name)
		}
		Expect(shell(ctx, box, agentProgram+" version")).To(ContainSubstring(release.Version))
		Eventually(func() string { return shell(ctx, box, "ls -d "+agentProgram+"*") }).
			WithTimeout(time.Minute).Should(Equal(agentProgram), "leftovers on %s", box.Name)
	}
}

// expectOutages prints how long each host had no connected agent, according to its journal.
func expectOutages(ctx context.Context) {
	GinkgoHelper()
	for _, box := range hosts.Hosts() {
		var replaced, back float64
		for line := range strings.Lines(shell(ctx, box, "journalctl --no-pager --output short-unix --unit elemental-agent")) {
			first, _, _ := strings.Cut(line, " ")
			switch at, _ := strconv.ParseFloat(first, 64); {
			case strings.Contains(line, "Replaced the agent"):
				replaced, back = at, 0
			case strings.Contains(line, "msg=Connected") && replaced > 0 && back == 0:
				back = at
			}
		}
		Expect(back).To(BeNumerically(">", replaced), box.Name)
		fmt.Printf("  %s was disconnected for %.1f s\n", box.Name, back-replaced)
	}
}

// hostState is the state of a host that an update must not change.
type hostState struct {
	uid, fingerprint, claim, boot, kubelet string
	connected                              metav1.Condition
}

func hostStates(ctx context.Context) map[string]hostState {
	GinkgoHelper()
	all := map[string]hostState{}
	for _, host := range elementalHosts(ctx) {
		box := boxOf(&host)
		boot, err := box.BootID(ctx)
		Expect(err).NotTo(HaveOccurred())
		connected := meta.FindStatusCondition(host.Status.Conditions, infrav1.ConnectedCondition)
		Expect(connected).To(HaveValue(HaveField("Status", metav1.ConditionTrue)), host.Name)
		state := hostState{
			connected: metav1.Condition{Status: connected.Status, LastTransitionTime: connected.LastTransitionTime},
			uid:       string(host.UID), boot: boot, fingerprint: fingerprint(ctx, box),
			kubelet: shell(ctx, box, "systemctl show --property ExecMainStartTimestampMonotonic,ExecMainPID kubelet containerd"),
		}
		if host.Spec.Claim != nil {
			state.claim = host.Spec.Claim.ID
		} else {
			// The kubelet of a host that is not a node restarts continuously.
			state.kubelet = ""
		}
		all[host.Name] = state
	}
	Expect(all).To(HaveLen(len(hosts.Hosts())))
	return all
}

// fingerprint returns the fingerprint of the host's key, as the agent reports it.
func fingerprint(ctx context.Context, box *engine.Host) string {
	GinkgoHelper()
	var status struct{ Key string }
	Expect(json.Unmarshal([]byte(shell(ctx, box, "elemental-agent status --output json")), &status)).To(Succeed())
	Expect(status.Key).NotTo(BeEmpty())
	return status.Key
}
