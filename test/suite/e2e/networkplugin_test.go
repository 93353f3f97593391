//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/image"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/survey"
)

const (
	// networkPlugin is the value of NETWORK_PLUGIN.
	networkPlugin = "flannel"
	// pluginHosts is how many hosts the cluster with it has.
	pluginHosts = 2
)

var _ = Describe("A network plugin", func() {
	It("is installed by Cluster API, and connects Pods of bare hosts", Label("network-plugin"), func(ctx context.Context) {
		site, flannel := startSiteWithoutPodNetwork(ctx)
		w := workload{lab.Cluster{
			Name: "plugged", Namespace: bareNamespace, Version: site.current.Version, ControlPlanes: 1, Workers: pluginHosts - 1,
			Variables: map[string]string{"NETWORK_PLUGIN": networkPlugin},
		}}
		before := site.survey(ctx)
		step("network-plugin: ClusterResourceSet applied", func() {
			file := filepath.Join(GinkgoT().TempDir(), "kube-flannel.yml")
			Expect(os.WriteFile(file, []byte(flannel.Manifest), 0o600)).To(Succeed())
			kubectl(ctx, "--namespace", w.namespace(), "create", "configmap", networkPlugin, "--from-file="+file)
			set, err := lab.ReleaseFile(ctx, hosts, "cluster-resource-set.yaml", map[string]string{"NETWORK_PLUGIN": networkPlugin, "NAMESPACE": w.namespace()})
			Expect(err).NotTo(HaveOccurred())
			apply(ctx, set)
		})
		step("network-plugin: 1+1 running, Nodes Ready", func() {
			w.create(ctx)
			w.expectRunning(ctx, pluginHosts)
		})
		Expect(kubectl(ctx, "--namespace", w.namespace(), "get", "clusterresourcesetbinding", w.Name, "--output", "jsonpath={.spec.bindings[*].resources[*].applied}")).
			To(Equal("true"))
		step("network-plugin: Pods reach each other and a Service", func() { w.expectPodsConnected(ctx) })
		step("network-plugin: cluster deleted, hosts as bare as before", func() {
			w.delete(ctx)
			site.expectAvailable(ctx)
			for _, box := range site.boxes {
				now, err := survey.Take(ctx, box)
				Expect(err).NotTo(HaveOccurred())
				Expect(strings.Join(survey.Diff(before[box.Name], now), "\n")).To(BeEmpty(), "host %s", box.Name)
			}
		})
	}, SpecTimeout(45*time.Minute))
})

// startSiteWithoutPodNetwork starts bare hosts whose Pods have no network, with a bundle that has the images of flannel.
func startSiteWithoutPodNetwork(ctx context.Context) (*bareSite, image.Flannel) {
	GinkgoHelper()
	s, bare := &bareSite{}, lab.NewBare(hosts)
	var flannel image.Flannel
	step("network-plugin: flannel and the bundle built", func() {
		var err error
		flannel, err = bare.Flannel(ctx)
		Expect(err).NotTo(HaveOccurred())
		s.current, err = bare.Bundle(ctx, image.Current, image.None, flannel.Images...)
		Expect(err).NotTo(HaveOccurred())
	})
	s.start(ctx, pluginHosts, bare.HostWithoutPodNetwork, s.current)
	return s, flannel
}

// echoPods is a DaemonSet whose Pods say the name of their Node, and a Service of these Pods. Hosts have only the images of
// Kubernetes and of the network plugin, so the containers run programs of the host.
const echoPods = `
apiVersion: v1
kind: Service
metadata: {name: echo, namespace: default}
spec:
  selector: {app: echo}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: echo, namespace: default}
spec:
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 0
      containers:
      - name: echo
        image: IMAGE
        imagePullPolicy: Never
        command: [/usr/bin/socat, "TCP-LISTEN:8080,reuseaddr,fork", "EXEC:/usr/bin/printenv NODE"]
        env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        volumeMounts:
        - {name: usr, mountPath: /usr}
        - {name: bin, mountPath: /bin}
        - {name: lib, mountPath: /lib}
        - {name: lib64, mountPath: /lib64}
      volumes:
      - {name: usr, hostPath: {path: /usr}}
      - {name: bin, hostPath: {path: /usr/bin}}
      - {name: lib, hostPath: {path: /usr/lib}}
      - {name: lib64, hostPath: {path: /usr/lib64}}
`

// expectPodsConnected runs a Pod on each Node, and checks that each of them reaches all of them by their addresses, and
// those of both Nodes by the address and by the name of their Service.
func (w workload) expectPodsConnected(ctx context.Context) {
	GinkgoHelper()
	c, file := w.client(ctx), filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(file, w.kubeconfig(ctx), 0o600)).To(Succeed())
	inCluster := func(args ...string) []string {
		return append([]string{"--kubeconfig", file, "--namespace", "default"}, args...)
	}
	pods := &corev1.PodList{}
	Expect(c.List(ctx, pods, client.InNamespace("kube-system"), client.MatchingLabels{"k8s-app": "kube-proxy"})).To(Succeed())
	Expect(pods.Items).NotTo(BeEmpty())
	manifests := strings.ReplaceAll(echoPods, "IMAGE", pods.Items[0].Spec.Containers[0].Image)
	_, err := hosts.KubectlInput(ctx, strings.NewReader(manifests), inCluster("apply", "--filename", "-")...)
	Expect(err).NotTo(HaveOccurred())
	kubectl(ctx, inCluster("rollout", "status", "daemonset/echo", "--timeout", "3m")...)
	Expect(c.List(ctx, pods, client.InNamespace("default"), client.MatchingLabels{"app": "echo"})).To(Succeed())
	Expect(pods.Items).To(HaveLen(pluginHosts))
	service := &corev1.Service{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "echo"}, service)).To(Succeed())
	for _, from := range pods.Items {
		// ask has the Pod ask an address until all Nodes have answered.
		ask := func(address string, nodes ...string) {
			GinkgoHelper()
			heard := map[string]bool{}
			Eventually(func(g Gomega) {
				out, err := hosts.Kubectl(ctx, inCluster("exec", from.Name, "--", "socat", "-u", "TCP:"+address+",connect-timeout=5", "STDOUT")...)
				g.Expect(err).NotTo(HaveOccurred())
				heard[strings.TrimSpace(out)] = true
				for _, node := range nodes {
					g.Expect(heard).To(HaveKey(node), "from %s to %s", from.Spec.NodeName, address)
				}
			}).WithTimeout(2 * time.Minute).Should(Succeed())
			fmt.Printf("  the Pod on %s reaches %s\n", from.Spec.NodeName, address)
		}
		var nodes []string
		for _, to := range pods.Items {
			ask(to.Status.PodIP+":8080", to.Spec.NodeName)
			nodes = append(nodes, to.Spec.NodeName)
		}
		ask(service.Spec.ClusterIP+":80", nodes...)
		ask("echo:80", nodes...)
	}
}
