//go:build embedded

package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/repository"
)

const published = "v0.1.0"

// emptyCluster starts an API server that has nothing, and returns an administrator's kubeconfig file.
func emptyCluster(t *testing.T) string {
	t.Helper()
	env := envtest.Start(t, envtest.Bare())
	config := env.AddUser(t, "administrator", "system:masters")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	const name = "test"
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, file)
	if err != nil {
		t.Fatalf("writing a kubeconfig: %v", err)
	}
	return file
}

// publish writes the files for clusterctl that make publish would write, into a folder.
func publish(t *testing.T, folder string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", root, "manifests", "MANIFESTS_DIR="+folder, "VERSION="+published)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("running make manifests: %v\n%s", err, out)
	}
}

// addClusterAPI has clusterctl know Cluster API and the stand-in for cert-manager, without the Internet.
func (s *station) addClusterAPI() {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "go", "-C", filepath.Join(root, "test/tools/cluster-api"), "list", "-m", "-f", "{{.Version}} {{.Dir}}", "sigs.k8s.io/cluster-api")
	out, err := cmd.Output()
	s.Expect(err).NotTo(HaveOccurred())
	module := strings.Fields(string(out))
	r := repository.Repository{Root: s.t.TempDir(), Version: module[0], Module: module[1], Kubectl: filepath.Join(s.programs, "kubectl")}
	s.Expect(r.Write(s.t.Context())).To(Succeed())
	file := filepath.Join(s.home, ".config", "cluster-api", "clusterctl.yaml")
	text, err := os.ReadFile(file)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(os.WriteFile(file, []byte(string(text)+r.Providers()+r.CertManager()), 0o600)).To(Succeed())
}

// TestCommandsOfInstallation runs the commands that install the provider into API servers that have nothing. No manager
// runs there.
func TestCommandsOfInstallation(t *testing.T) {
	s := newStation(t, emptyCluster(t), "kubectl", "clusterctl")
	publish(t, filepath.Join(s.work, "out", "published", published))
	const page = "docs/install.md"
	s.run(page, "By clusterctl", "repository=")
	s.addClusterAPI()

	s.waysToTheAgentAPI()
	s.do("repository=~/.config/cluster-api/infrastructure-elemental")
	s.Expect(s.run(page, "By clusterctl", "export ELEMENTAL_AGENT_API_URL")).To(ContainSubstring("Your management cluster has been initialized successfully!"))
	s.Expect(s.do("kubectl -n elemental-system get service elemental-agent-api -o yaml")).To(And(ContainSubstring("type: LoadBalancer"), ContainSubstring("externalTrafficPolicy: Local")))
	s.Expect(s.run("docs/bundles.md", "Serve bundles", "kubectl -n elemental-system patch deployment")).To(ContainSubstring("patched"))
	s.restrict()
	s.monitor()

	t.Log("By the Cluster API Operator")
	s.use(emptyCluster(t))
	s.Expect(s.run(page, "By the Cluster API Operator", "cd $repository")).To(ContainSubstring("configmap/elemental-v0.1.0 labeled"))
	s.Expect(s.do("kubectl -n elemental-system get configmaps -l provider-components=elemental -o jsonpath='{.items[*].data}'")).To(And(
		ContainSubstring(`"components":`), ContainSubstring(`"metadata":`)))

	t.Log("One namespace only")
	s.use(emptyCluster(t))
	s.do("sed -i s/infrastructure-components.yaml/infrastructure-components-namespaced.yaml/ ~/.config/cluster-api/clusterctl.yaml")
	s.run(page, "One namespace only", "export ELEMENTAL_WATCH_NAMESPACE")
	s.Expect(s.do("kubectl get rolebindings -n edge -o name")).NotTo(BeEmpty())
	s.Expect(s.do("kubectl -n elemental-system get deployment elemental-controller-manager -o yaml")).To(ContainSubstring("edge"))
	s.do("sed -i s/infrastructure-components-namespaced.yaml/infrastructure-components.yaml/ ~/.config/cluster-api/clusterctl.yaml")

	t.Log("With upgrades in place")
	s.use(emptyCluster(t))
	s.replace("kubectl get extensionconfig elemental-in-place -o yaml", "kubectl get crd extensionconfigs.runtime.cluster.x-k8s.io -o name")
	s.run("docs/upgrading.md", "Switch it on", "export EXP_RUNTIME_SDK")
	s.Expect(s.do("kubectl -n elemental-system get deployment elemental-controller-manager -o yaml")).To(ContainSubstring("--in-place-updates=true"))
	s.Expect(s.do("kubectl -n capi-system get deployment capi-controller-manager -o yaml")).To(ContainSubstring("RuntimeSDK=true"))
	s.do("kubectl create namespace shops")
	s.Expect(s.run("docs/upgrading.md", "Switch it on", "kubectl label namespace")).To(ContainSubstring("namespace/shops labeled"))
}

// waysToTheAgentAPI sets the variables of each way to the agent API, and looks at what clusterctl makes of them.
func (s *station) waysToTheAgentAPI() {
	const page = "docs/agent-api.md"
	for _, way := range []struct {
		page, heading, first string
		want                 []string
	}{
		{page, "A load balancer", "export", []string{"value: https://elemental.example.com\n", "type: LoadBalancer", "externalTrafficPolicy: Local", "metallb.io/address-pool: edge"}},
		{page, "A node port", "export", []string{"value: https://elemental.example.com:30443\n", "type: NodePort", "nodePort: 30443"}},
		{page, "A Gateway", "export", []string{"value: https://elemental.example.com\n", "type: ClusterIP"}},
		{page, "HAProxy", "export", []string{"type: NodePort", "nodePort: 30443", "externalTrafficPolicy: Local", "192.0.2.5/32"}},
		{"docs/backups.md", "Through the manager", "export", []string{"--snapshot-relay-endpoints=s3.example.com:9000"}},
	} {
		s.forget()
		s.do("cd " + s.work)
		s.run(way.page, way.heading, way.first)
		made, err := s.execute("clusterctl generate provider --infrastructure elemental")
		s.Expect(err).NotTo(HaveOccurred(), made)
		for _, text := range way.want {
			s.Expect(made).To(ContainSubstring(text), way.heading)
		}
	}
	s.forget()
}

// restrict applies the network policy.
func (s *station) restrict() {
	out := s.run("docs/install.md", "Network policy", "kubectl get endpointslices")
	s.Expect(out).To(And(ContainSubstring("ENDPOINTS"), ContainSubstring("CLUSTER-IP"), ContainSubstring("networkpolicy.networking.k8s.io/")))
	s.Expect(s.do("kubectl -n elemental-system get networkpolicies -o yaml")).To(And(ContainSubstring("192.0.2.0/28"), ContainSubstring("10.96.0.1/32")))
}

// monitor applies what the Prometheus operator reads. Its kinds are here without their fields.
func (s *station) monitor() {
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
		lower := strings.ToLower(kind)
		s.do(`kubectl apply -f - <<EOF
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + lower + `s.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ` + kind + `, plural: ` + lower + `s, singular: ` + lower + `}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
EOF
kubectl wait crd ` + lower + `s.monitoring.coreos.com --for condition=Established --timeout 1m`)
	}
	s.do("cd $repository/" + published + "; kubectl create namespace monitoring")
	s.Expect(s.run("docs/monitoring.md", "Set it up", "clusterctl generate yaml")).To(ContainSubstring("servicemonitor.monitoring.coreos.com/"))
	s.Expect(s.run("docs/monitoring.md", "Set it up", "kubectl apply -n monitoring")).To(ContainSubstring("prometheusrule.monitoring.coreos.com/"))
}
