//go:build embedded

package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/gomega"
)

// knowTemplates has clusterctl know the templates of a release, and that its version is installed.
func (s *station) knowTemplates() {
	folder := filepath.Join(s.home, "infrastructure-elemental", published)
	publish(s.t, folder)
	config := filepath.Join(s.home, ".config", "cluster-api")
	s.Expect(os.MkdirAll(config, 0o700)).To(Succeed())
	text := "providers:\n  - name: elemental\n    type: InfrastructureProvider\n    url: file://" + filepath.Join(folder, "infrastructure-components.yaml") + "\n"
	s.Expect(os.WriteFile(filepath.Join(config, "clusterctl.yaml"), []byte(text), 0o600)).To(Succeed())
	s.do("repository=" + filepath.Join(s.home, "infrastructure-elemental"))
	s.do("kubectl apply -f " + filepath.Join(module(s, "sigs.k8s.io/cluster-api"), "cmd/clusterctl/config/crd/bases/clusterctl.cluster.x-k8s.io_providers.yaml") + `
kubectl label crd providers.clusterctl.cluster.x-k8s.io clusterctl.cluster.x-k8s.io=
kubectl wait crd providers.clusterctl.cluster.x-k8s.io --for condition=Established --timeout 1m
kubectl apply -f - <<EOF
apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
kind: Provider
metadata:
  name: infrastructure-elemental
  namespace: elemental-system
  labels: {clusterctl.cluster.x-k8s.io: "", clusterctl.cluster.x-k8s.io/core: inventory, cluster.x-k8s.io/provider: infrastructure-elemental}
providerName: elemental
type: InfrastructureProvider
version: ` + published + `
EOF`)
}

// module returns the folder of a module that this one requires.
func module(s *station, name string) string {
	cmd := exec.CommandContext(s.t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", name)
	cmd.Dir = checkout(s)
	folder, err := cmd.Output()
	s.Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(folder))
}

// makeClusters makes a cluster on the hosts, one by the template and one by the class. Nothing serves the endpoint of
// virtual hosts, so each control plane ends at its first Machine.
func (s *station) makeClusters() {
	const page = "docs/install.md"
	s.Expect(s.run(page, "Make a cluster", "clusterctl generate cluster")).To(ContainSubstring("Cluster default/demo "))
	s.Eventually(func() (string, error) {
		return s.try("docs/clusterclass.md", "Make a cluster", "export CONTROL_PLANE_HOST_LABELS")
	}).Should(ContainSubstring("cluster.cluster.x-k8s.io/shop-7 "), "one applies again if the class is not ready")
	s.do("echo '# plugin' > kube-flannel.yml")
	s.Expect(s.run(page, "A network plugin for all clusters", "export NETWORK_PLUGIN")).To(ContainSubstring("clusterresourceset.addons.cluster.x-k8s.io/flannel created"))
	s.do("cd $repository/" + published + "; unset CONTROL_PLANE_HOST_LABELS NETWORK_PLUGIN")
	s.Expect(s.run("docs/operating.md", "Remediation", "export CLUSTER_NAME")).To(And(
		ContainSubstring("machinehealthcheck.cluster.x-k8s.io/demo-md-0 created"), ContainSubstring("machinehealthcheck.cluster.x-k8s.io/demo-control-plane created")))
	s.do("cd " + s.work)
	s.see("kubectl get elementalmachines -l cluster.x-k8s.io/cluster-name=demo", ContainSubstring("demo-control-plane-"))
	s.see("kubectl get machines -l cluster.x-k8s.io/deployment-name=demo-md-0", ContainSubstring("demo-md-0-"))
	s.see("kubectl get elementalhosts", MatchRegexp(`demo +demo-control-plane-\S+ +Provisioned`))
}

func checkout(s *station) string {
	folder, err := filepath.Abs("../../..")
	s.Expect(err).NotTo(HaveOccurred())
	return folder
}

// first returns the first name that a command prints.
func (s *station) first(command string) string {
	s.t.Helper()
	names := strings.Fields(s.do(command + " -o jsonpath='{.items[*].metadata.name}'"))
	s.Expect(names).NotTo(BeEmpty(), command)
	return names[0]
}

// explainClusters has the plugin explain what the cluster waits for.
func (s *station) explainClusters() {
	const page, demo = "docs/kubectl.md", " -l cluster.x-k8s.io/cluster-name=demo"
	machine, worker := s.first("kubectl get machines -l cluster.x-k8s.io/control-plane,cluster.x-k8s.io/cluster-name=demo"), s.first("kubectl get machines -l cluster.x-k8s.io/deployment-name=demo-md-0")
	host := strings.TrimSpace(s.do("kubectl get elementalmachine " + machine + " -o jsonpath='{.spec.hostRef.name}'"))
	s.replace("machine m1", "machine "+worker, "cluster c1", "cluster demo", "endpoint c1", "endpoint demo", "logs h1", "logs "+host, "support-bundle c1", "support-bundle demo",
		"elementalhost h1 ", "elementalhost "+host+" ", "secret h1-log", "secret "+host+"-log")
	s.Expect(s.run(page, "Explain a Machine", "kubectl elemental explain machine")).To(ContainSubstring("Machine default/" + worker))
	s.Expect(s.run(page, "Explain a Cluster", "kubectl elemental explain cluster")).To(And(ContainSubstring("Cluster default/demo: "), ContainSubstring("Endpoint host: "+host)))
	s.Expect(s.run(page, "The endpoint", "kubectl elemental endpoint")).To(And(ContainSubstring("Cluster default/demo: its endpoint is "), ContainSubstring("Host: "+host+" (connected)")))
	s.Expect(s.run(page, "Logs of hosts", "kubectl elemental logs")).To(ContainSubstring("Bootstrap begins"))
	s.run(page, "Support bundles", "kubectl elemental support-bundle")
	s.Expect(s.do("tar -tzf elemental-support-*.tar.gz")).To(ContainSubstring("summary.txt"))
	s.Eventually(func() (string, error) {
		return s.try("docs/operating.md", "Logs of a host", "kubectl patch elementalhost h1")
	}).Should(ContainSubstring("Bootstrap begins"))
}

// upgradeClusters changes versions and annotations as the page about upgrades says. What follows from them has tests of its
// own, on virtual and real hosts.
func (s *station) upgradeClusters() {
	const page = "docs/upgrading.md"
	s.do(`clusterctl generate cluster shop-1 --infrastructure elemental --kubernetes-version v1.36.1 --control-plane-machine-count 1 --worker-machine-count 1 | kubectl apply -f -`)
	s.see("kubectl get elementalmachines -l cluster.x-k8s.io/cluster-name=shop-1,cluster.x-k8s.io/control-plane", ContainSubstring("shop-1-control-plane-"))
	s.replace("shop-1-abcde", s.first("kubectl get elementalmachines -l cluster.x-k8s.io/cluster-name=shop-1,cluster.x-k8s.io/control-plane"))
	s.Expect(s.run(page, "Hold a cluster back", "kubectl label cluster")).To(And(ContainSubstring("shop-1 labeled"), ContainSubstring("shop-1 unlabeled")))
	s.Expect(s.run(page, "Upgrade", "kubectl patch kubeadmcontrolplane")).To(And(ContainSubstring("shop-1-control-plane patched"), MatchRegexp(`NAME +HOST +STATE +MESSAGE`)))
	s.Expect(s.do("kubectl get kubeadmcontrolplane shop-1-control-plane -o jsonpath='{.spec.version}'")).To(Equal("v1.36.3"))
	s.do(`kubectl patch kubeadmcontrolplane shop-1-control-plane --type merge -p '{"spec":{"version":"v1.36.2"}}'`)
	s.Expect(s.run(page, "By hand", "kubectl annotate kubeadmcontrolplane")).To(ContainSubstring("patched"))
	s.Expect(s.run(page, "Retry", "kubectl annotate elementalmachine")).To(ContainSubstring("annotated"))
	s.Expect(s.run(page, "End an upgrade", "kubectl annotate machine")).To(ContainSubstring("annotated"))
	s.run(page, "What is refused", "kubectl get events")
	for _, template := range []string{"shop-1-control-plane-os-2", "shop-1-md-0-os-2"} {
		s.do(`kubectl apply -f - <<EOF
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: ElementalMachineTemplate
metadata: {name: ` + template + `}
spec: {template: {spec: {osImage: "oci:registry.example.com/os:2"}}}
EOF`)
	}
	s.Expect(s.run(page, "Operating system", "kubectl patch kubeadmcontrolplane")).To(And(ContainSubstring("shop-1-control-plane patched"), ContainSubstring("shop-1-md-0 patched")))
}

// endpoints moves an endpoint and keeps an address.
func (s *station) endpoints() {
	// An owner that does not exist would have the claim deleted at once.
	owner := s.do("kubectl get elementalcluster demo -o jsonpath='{.metadata.uid}'")
	s.do(`kubectl apply -f - <<EOF
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata:
  name: demo-endpoint
  ownerReferences: [{apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: ElementalCluster, name: demo, uid: ` + owner + `}]
spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: pool}}
EOF`)
	s.replace("ipaddressclaim CLUSTER-endpoint", "ipaddressclaim demo-endpoint", "elementalcluster NAME", "elementalcluster demo")
	s.Expect(s.run("docs/vip.md", "Addresses from an IP pool", "kubectl patch ipaddressclaim")).To(ContainSubstring("patched"))
	s.Expect(s.do("kubectl get ipaddressclaim demo-endpoint -o jsonpath='{.metadata.ownerReferences}'")).To(BeEmpty())
	s.Expect(s.run("docs/endpoint.md", "Move it yourself", "kubectl annotate elementalcluster")).To(ContainSubstring("annotated"))
	s.see("kubectl get events --field-selector involvedObject.kind=ElementalCluster", ContainSubstring("NoMoveCandidate"))
}

// backUp handles snapshots of etcd. The virtual hosts have none.
func (s *station) backUp() {
	const page = "docs/backups.md"
	s.build(checkout(s), "filippo.io/age/cmd/age-keygen", "age-keygen")
	s.Expect(s.run(page, "Off the hosts", "age-keygen")).To(MatchRegexp(`(?i)public key: age1`))
	s.do("echo certificate > ca.crt; kubectl create namespace sites")
	s.Expect(s.run(page, "Off the hosts", "kubectl create secret generic backups")).To(And(ContainSubstring("secret/backups created"), ContainSubstring("secret/backups labeled")))
	s.run(page, "Watch", "kubectl get elementalcluster NAME")
	s.do(`kubectl apply -f - <<EOF
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: ElementalEtcdRestore
metadata: {name: back-to-noon, namespace: sites}
spec:
  clusterName: site-1
  source: {snapshot: {hostName: host-1, id: 20261124T120000Z}}
EOF`)
	s.see("kubectl -n sites get elementaletcdrestore back-to-noon", ContainSubstring("Refused"))
	s.Expect(s.run(page, "Restore", "kubectl -n sites get elementaletcdrestore")).To(ContainSubstring("There is no Cluster site-1 of this provider in the namespace"))
	s.Expect(s.run(page, "Restore from S3", "kubectl -n sites create secret")).To(ContainSubstring("created"))
	s.Expect(s.run(page, "Restore from S3", "kubectl -n sites delete secret")).To(ContainSubstring("deleted"))

	// The host is this machine.
	state := filepath.Join(s.work, "host")
	s.program("ssh", "#!/bin/sh\ncd / && exec sh -c \"$2\"\n")
	snapshots := filepath.Join(state, "etcd-snapshots", "0123456789abcdef")
	s.do("mkdir -p " + snapshots + "; touch " + snapshots + "/20261124T120000Z.db " + snapshots + "/20261124T120000Z.json")
	s.replace("/var/lib/elemental/agent", state, "ID.*", "20261124T120000Z.*", "ID.tar", "20261124T120000Z.tar")
	s.run(page, "Copy one by hand", "ssh root@HOST")
	s.Expect(s.do("tar -tf 20261124T120000Z.tar")).To(And(ContainSubstring("0123456789abcdef/20261124T120000Z.db\n"), ContainSubstring("20261124T120000Z.json\n")))
}
