//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// containers prints the boot of a host, the processes of its kubelet and its container runtime, and all containers with
// the times at which their processes started, in ticks since the boot of the kernel.
const containers = `
echo boot $(cat /run/lab-boot-id)
for unit in kubelet containerd; do
  echo $unit $(systemctl show --property MainPID,ExecMainStartTimestampMonotonic,NRestarts $unit)
done
ctr --namespace k8s.io containers list --quiet | sort | sed 's/^/container /'
ctr --namespace k8s.io tasks list | sed 1d | sort | while read -r id pid status; do
  echo task $id $pid $status started $(sed 's/.*) //' /proc/$pid/stat | cut -d ' ' -f 20)
done
`

// files prints the name of a host, and what kubeadm and an administrator have written on it.
const files = `
hostname
find /etc/kubernetes /var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env /etc/cni /etc/containerd \
  /etc/hostname /etc/hosts /etc/systemd/system/kubelet.service* /usr/local/lib/kubelet -type f \
  -exec stat --format '%n %i %Y %s' {} + | sort
find /etc/kubernetes /var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env /etc/hostname /etc/hosts -type f \
  -exec sha256sum {} + | sort
`

// memory is what an adoption may not change.
type memory struct {
	containers, files map[*engine.Host][]string
	nodes             map[string]string
	objects           []string
}

func (a *adoption) remember(ctx context.Context) {
	GinkgoHelper()
	a.before = a.now(ctx)
	for _, box := range a.boxes() {
		fmt.Printf("  %s: %d lines about processes and containers, %d about files\n", box.Name, len(a.before.containers[box]), len(a.before.files[box]))
	}
}

func (a *adoption) now(ctx context.Context) memory {
	GinkgoHelper()
	m := memory{containers: map[*engine.Host][]string{}, files: map[*engine.Host][]string{}, nodes: map[string]string{}}
	for _, box := range a.boxes() {
		m.containers[box] = strings.Split(shell(ctx, box, containers), "\n")
		m.files[box] = strings.Split(shell(ctx, box, files), "\n")
	}
	for _, node := range a.nodeList(ctx) {
		m.nodes[node.Name] = string(node.UID)
	}
	m.objects = a.objects(ctx)
	return m
}

func (a *adoption) nodeList(ctx context.Context) []corev1.Node {
	GinkgoHelper()
	nodes := &corev1.NodeList{}
	Expect(a.api.List(ctx, nodes)).To(Succeed())
	return nodes.Items
}

// objects returns lines about the Pods of the cluster, and about what kubeadm has made.
func (a *adoption) objects(ctx context.Context) (lines []string) {
	GinkgoHelper()
	pods := &corev1.PodList{}
	Expect(a.api.List(ctx, pods)).To(Succeed())
	for _, pod := range pods.Items {
		restarts := int32(0)
		for _, c := range pod.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		lines = append(lines, fmt.Sprintf("Pod %s/%s %s on %s, restarts: %d, ready: %t", pod.Namespace, pod.Name, pod.UID, pod.Spec.NodeName, restarts, isReady(&pod)))
	}
	sets, deployments, maps := &appsv1.DaemonSetList{}, &appsv1.DeploymentList{}, &corev1.ConfigMapList{}
	for _, list := range []client.ObjectList{sets, deployments, maps} {
		Expect(a.api.List(ctx, list, client.InNamespace("kube-system"))).To(Succeed())
	}
	for _, set := range sets.Items {
		lines = append(lines, fmt.Sprintf("DaemonSet %s generation %d", set.Name, set.Generation))
	}
	for _, deployment := range deployments.Items {
		lines = append(lines, fmt.Sprintf("Deployment %s generation %d", deployment.Name, deployment.Generation))
	}
	for _, m := range maps.Items {
		lines = append(lines, fmt.Sprintf("ConfigMap %s %s", m.Name, m.ResourceVersion))
	}
	return lines
}

// expectUntouched checks that nothing on the hosts and in the cluster is another than before.
func (a *adoption) expectUntouched(ctx context.Context) {
	GinkgoHelper()
	now := a.now(ctx)
	a.expectSame(now)
	Expect(now.nodes).To(Equal(a.before.nodes), "the Nodes are the same, and no other has come")
	Expect(now.objects).To(ConsistOf(a.before.objects))
	for _, node := range a.nodeList(ctx) {
		Expect(ready(&node)).To(BeTrue(), node.Name)
	}
}

// expectSameHosts checks that nothing was restarted or written on the adopted hosts.
func (a *adoption) expectSameHosts(ctx context.Context) {
	GinkgoHelper()
	a.expectSame(a.now(ctx))
}

func (a *adoption) expectSame(now memory) {
	GinkgoHelper()
	for _, box := range a.boxes() {
		Expect(now.containers[box]).To(Equal(a.before.containers[box]), "containers of %s", box.Name)
		Expect(now.files[box]).To(Equal(a.before.files[box]), "files of %s", box.Name)
	}
}
