//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/guide"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// adoption is a cluster that kubeadm made by hand on two hosts, and the administrator who has Cluster API take it over.
type adoption struct {
	administrator
	workload

	controlPlane, worker *engine.Host
	// names has the names of the Nodes.
	names map[*engine.Host]string
	// steps has the steps of docs/adopting.md by their titles.
	steps map[string]guide.Step
	// api is a client of the cluster, by the credentials that kubeadm has made.
	api client.Client
	// before is what may not change.
	before memory
}

func (a *adoption) boxes() []*engine.Host { return []*engine.Host{a.controlPlane, a.worker} }

// startAdoption makes what docs/adopting.md presupposes: a management cluster, the workstation of its administrator,
// and two hosts that know nothing of this provider.
func startAdoption(ctx context.Context, w workload) *adoption {
	GinkgoHelper()
	all := hosts.Hosts()
	Expect(len(all)).To(BeNumerically(">=", 3), "LAB_HOSTS")
	a := &adoption{workload: w, controlPlane: all[0], worker: all[1], names: map[*engine.Host]string{}, steps: map[string]guide.Step{}}
	text, err := os.ReadFile(filepath.Join(checkout, "docs", "adopting.md"))
	Expect(err).NotTo(HaveOccurred())
	steps, err := guide.Steps(string(text))
	Expect(err).NotTo(HaveOccurred())
	for _, s := range steps {
		Expect(a.sights()).To(HaveKey(s.Title), "the document has a new step: say here what one sees after it")
		a.steps[s.Title] = s
	}
	Expect(a.steps).To(HaveLen(len(a.sights())))
	step("adopt: hosts without an agent", func() {
		for _, box := range a.boxes() {
			removeAgent(ctx, box)
			a.names[box] = strings.TrimSpace(shell(ctx, box, "hostname"))
		}
	})
	step("adopt: workstation", func() {
		a.station, err = lab.Empty{Lab: hosts}.Workstation(ctx, a.boxes()...)
		Expect(err).NotTo(HaveOccurred())
		config, err := os.ReadFile(filepath.Join(filepath.Dir(hosts.Kubeconfig()), "clusterctl.yaml"))
		Expect(err).NotTo(HaveOccurred())
		folder := filepath.Join(a.station.Home, ".config", "cluster-api")
		Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(folder, "clusterctl.yaml"), config, 0o600)).To(Succeed())
		build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(a.station.Programs, "kubectl-elemental"), "./cmd/kubectl-elemental")
		build.Dir = checkout
		out, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
	})
	return a
}

// removeAgent removes the agent from a host, and its ElementalHost.
func removeAgent(ctx context.Context, box *engine.Host) {
	GinkgoHelper()
	host := hostOf(ctx, box)
	shell(ctx, box, `systemctl disable --now elemental-agent
rm -rf /etc/elemental /var/lib/elemental /run/elemental-agent /usr/local/bin/elemental-agent* /etc/systemd/system/elemental-agent.service
systemctl daemon-reload`)
	Expect(management.Delete(ctx, host)).To(Succeed())
}

// returnHosts enrols the hosts again as the lab does.
func (a *adoption) returnHosts(ctx context.Context) {
	GinkgoHelper()
	for _, box := range a.boxes() {
		removeAgent(ctx, box)
	}
	Expect(hosts.Enrol(ctx, lab.Enrolment{Name: "lab", Hosts: a.boxes()})).To(Succeed())
	kubectl(ctx, "--namespace", namespace, "delete", "elementalregistration", "shop")
}

// makeByHand runs kubeadm on the hosts, and Pods on the worker.
func (a *adoption) makeByHand(ctx context.Context) {
	GinkgoHelper()
	version, err := hosts.KubernetesVersion(ctx)
	Expect(err).NotTo(HaveOccurred())
	shell(ctx, a.controlPlane, fmt.Sprintf("kubeadm init --kubernetes-version %s --control-plane-endpoint %s:6443 --pod-network-cidr %s",
		version, a.controlPlane.Address, lab.PodSubnet))
	shell(ctx, a.worker, shell(ctx, a.controlPlane, "kubeadm token create --print-join-command"))
	file := filepath.Join(GinkgoT().TempDir(), "admin.kubeconfig")
	Expect(os.WriteFile(file, []byte(shell(ctx, a.controlPlane, "cat /etc/kubernetes/admin.conf")), 0o600)).To(Succeed())
	a.api = clientFor(file)
	images := shell(ctx, a.worker, "ctr --namespace k8s.io images list --quiet")
	pause := slices.IndexFunc(strings.Fields(images), func(name string) bool { return strings.Contains(name, "/pause:") })
	Expect(pause).To(BeNumerically(">=", 0), images)
	shell(ctx, a.controlPlane, "kubectl --kubeconfig /etc/kubernetes/admin.conf create deployment counter --replicas 3 --image "+strings.Fields(images)[pause])
	Eventually(func(g Gomega) {
		nodes := &corev1.NodeList{}
		g.Expect(a.api.List(ctx, nodes)).To(Succeed())
		g.Expect(nodes.Items).To(HaveLen(2))
		for _, node := range nodes.Items {
			g.Expect(ready(&node)).To(BeTrue(), node.Name)
		}
		pods := &corev1.PodList{}
		g.Expect(a.api.List(ctx, pods)).To(Succeed())
		g.Expect(len(pods.Items)).To(BeNumerically(">=", 11))
		for _, pod := range pods.Items {
			g.Expect(isReady(&pod)).To(BeTrue(), pod.Name)
		}
	}).WithTimeout(5 * time.Minute).Should(Succeed())
}

// isReady reports whether a Pod is ready.
func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// take follows a step of the document, and checks that the administrator sees what the document says.
func (a *adoption) take(ctx context.Context, title string) {
	GinkgoHelper()
	step("adopt: "+title, func() {
		for _, out := range a.followStep(ctx, title) {
			a.sights()[title](ctx, out)
		}
	})
}

// followStep runs the commands of a step.
func (a *adoption) followStep(ctx context.Context, title string) []lab.Output {
	GinkgoHelper()
	return a.follow(ctx, a.steps[title], a.boxes(), a.replacements(ctx))
}

// script returns the only script of a step.
func (a *adoption) script(title string) string {
	GinkgoHelper()
	Expect(a.steps[title].Scripts).To(HaveLen(1), title)
	return a.steps[title].Scripts[0]
}

// replacements are what differs between the document and the lab.
func (a *adoption) replacements(ctx context.Context) map[string]string {
	GinkgoHelper()
	version, err := hosts.KubernetesVersion(ctx)
	Expect(err).NotTo(HaveOccurred())
	return map[string]string{
		"root@10.1.1.1": "root@HOST", "v1.36.3": version,
		" shop-1 ": " " + a.names[a.controlPlane] + " ", " shop-2 ": " " + a.names[a.worker] + " ",
	}
}

// sights are what the document says that one sees after each step, by the title of the step.
func (a *adoption) sights() map[string]func(context.Context, lab.Output) {
	contains := func(texts ...string) func(context.Context, lab.Output) {
		return func(_ context.Context, out lab.Output) {
			GinkgoHelper()
			for _, text := range texts {
				Expect(out.Stdout + out.Stderr).To(ContainSubstring(text))
			}
		}
	}
	return map[string]func(context.Context, lab.Output){
		stepLook: contains("controlPlaneEndpoint: ", "podSubnet: "+lab.PodSubnet, "serviceSubnet: 10.96.0.0/12"),
		stepRegister: func(ctx context.Context, _ lab.Output) {
			a.expectSeen(ctx, "kubectl get elementalregistrations", time.Minute, MatchRegexp(`shop +True`))
		},
		stepInstall: func(ctx context.Context, out lab.Output) {
			contains("elemental-agent is installed and enrols this host")(ctx, out)
			a.expectHosts(ctx, "PendingApproval")
		},
		stepDeclare:     contains("patched"),
		stepApprove:     func(ctx context.Context, _ lab.Output) { a.expectHosts(ctx, "Adoptable") },
		stepAuthorities: contains("shop-ca created", "shop-etcd created", "shop-proxy created", "shop-sa created", "shop-ca labeled"),
		stepMake: func(ctx context.Context, _ lab.Output) {
			fmt.Println(a.expectSeen(ctx, "kubectl get machines", provisionTimeout, WithTransform(func(out string) int { return strings.Count(out, "Running") }, Equal(2))))
		},
		stepLookAgain: func(_ context.Context, out lab.Output) {
			fmt.Println(out.Stdout)
			for _, name := range a.names {
				Expect(out.Stdout).To(MatchRegexp(`(?m)^` + name + ` .*elemental://default/` + name + `$`))
			}
		},
		stepRelease: contains("annotated"),
	}
}

// expectHosts waits until both hosts have a state.
func (a *adoption) expectHosts(ctx context.Context, state string) {
	GinkgoHelper()
	fmt.Println(a.expectSeen(ctx, "kubectl elemental hosts", time.Minute, And(
		MatchRegexp(`(?m)^`+a.names[a.controlPlane]+` +`+state+`\b`), MatchRegexp(`(?m)^`+a.names[a.worker]+` +`+state+`\b`))))
}
