//go:build embedded

package docs_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

// startManagement returns a management cluster that ends with the test.
func startManagement(t *testing.T, options embedded.Options) *embedded.Cluster {
	t.Helper()
	options.Progress = t.Output()
	cluster, err := embedded.Start(t.Context(), options)
	if err != nil {
		t.Fatalf("starting a management cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Errorf("stopping the management cluster: %v", err)
		}
	})
	return cluster
}

// agentsFolder returns a folder with something that a manager serves as the agent.
func agentsFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "elemental-agent-linux-"+runtime.GOARCH), []byte("no agent"), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// powerOn switches virtual hosts on, with the configuration of agents that the reader has fetched into a file. Their
// names are the prefix and a number.
func (s *station) powerOn(cluster *embedded.Cluster, file, prefix string, count int) *fleet.Fleet {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.work, file))
	s.Expect(err).NotTo(HaveOccurred())
	config, err := enrolment.DecodeAgentConfig(text)
	s.Expect(err).NotTo(HaveOccurred())
	hosts, err := fleet.New(fleet.Settings{
		Count: count, Prefix: prefix, Servers: config.Servers, TrustBundle: config.TrustBundle, Token: config.Token,
	})
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(config.Servers).To(ContainElement(cluster.AgentURL))
	s.t.Cleanup(func() { s.Expect(hosts.Close()).To(Succeed()) })
	s.Expect(hosts.PowerOn(s.t.Context(), 0)).To(Succeed())
	return hosts
}

// TestCommands runs the commands by which administrators enrol, see and operate hosts, and make clusters of them, in a
// management cluster with virtual hosts.
func TestCommands(t *testing.T) {
	cluster := startManagement(t, embedded.Options{Simulation: true, ManagerArgs: []string{"--agent-binaries=" + agentsFolder(t)}})
	s := newStation(t, cluster.Kubeconfig, "kubectl", "clusterctl")
	s.program("sudo", "#!/bin/sh\nexec \"$@\"\n")
	s.replace("https://elemental.example.com", cluster.AgentURL, "/usr/local/bin", s.programs, "edge-4711", "edge-box-1", "cluster shop-1 --infrastructure", "cluster shop-7 --infrastructure")

	s.installPlugin()
	s.giveRights()
	s.enrol(cluster)
	s.look()
	s.act()
	s.operate()
	s.knowTemplates()
	s.makeClusters()
	s.explainClusters()
	s.endpoints()
	s.upgradeClusters()
	s.backUp()
	s.rotate()
}

// installPlugin installs the plugin from the sources.
func (s *station) installPlugin() {
	checkout, err := filepath.Abs(root)
	s.Expect(err).NotTo(HaveOccurred())
	s.do("cd " + checkout)
	s.Expect(s.run("docs/kubectl.md", "Install", "make build")).To(MatchRegexp(`(?m)^v`), "the version of the plugin")
	s.Expect(s.run("test/README.md", "Run one end-to-end scenario on real hosts", "make test-e2e-labels")).To(MatchRegexp(`(?m)^  guide +The guide leads from boxes to a cluster$`))
	s.run("docs/kubectl.md", "Install", "sudo ln -s")
	s.Expect(s.do("kubectl __complete elemental ex")).To(ContainSubstring("explain"))
	s.do("cd " + s.work)
}

func (s *station) enrol(cluster *embedded.Cluster) {
	const page = "docs/install.md"
	s.Expect(s.run("docs/agent-api.md", "How hosts reach the agent API", "curl")).To(Equal("200\n"))
	s.Expect(s.run(page, "Enrol hosts", "kubectl apply")).To(ContainSubstring("elementalregistration.infrastructure.cluster.x-k8s.io/berlin created"))
	s.see("kubectl get secret berlin-token", ContainSubstring("berlin-token"))
	s.Expect(s.run("docs/kubectl.md", "Tokens", "kubectl elemental token berlin")).To(And(
		ContainSubstring("ElementalRegistration default/berlin: 1 token\n  Server: "+cluster.AgentURL), ContainSubstring("Secret berlin-token: Usable, expires at "),
		ContainSubstring("10 of 10 uses left")))
	s.run(page, "Enrol hosts", "kubectl get secret berlin-token")
	s.powerOn(cluster, "config.yaml", "box", 6)
	s.see("kubectl get elementalhosts", And(MatchRegexp(`edge-box-1 +.*PendingApproval`), MatchRegexp(`edge-box-6 +.*PendingApproval`)))
	out := s.run(page, "Enrol hosts", "kubectl get elementalhosts -o wide")
	s.Expect(out).To(And(ContainSubstring("KUBERNETES"), ContainSubstring("elementalhost.infrastructure.cluster.x-k8s.io/edge-box-1 patched")))
	s.see("kubectl get elementalhost edge-box-1", ContainSubstring("Available"))
	s.Expect(s.run(page, "Enrol hosts", "kubectl get elementalhosts -o custom-columns")).To(MatchRegexp(`(?m)^NAME +PREPARED +MESSAGE\nedge-box-1 +True `))
}

func (s *station) look() {
	s.Expect(s.run("docs/kubectl.md", "See the fleet", "kubectl elemental hosts")).To(And(
		MatchRegexp(`^NAME +STATE +CLUSTER +MACHINE +ZONE +CORES +MEMORY +ADDRESS +KUBERNETES +AGENT +CONTACT\n`), MatchRegexp(`edge-box-1 +Available .* berlin `)))
	s.Expect(s.run("docs/agent.md", "Programs of Kubernetes", "kubectl get elementalhosts")).To(And(ContainSubstring("KUBERNETES"), ContainSubstring(`"kubelet":{`)))
	s.Expect(s.run("docs/agent.md", "Preflight", "kubectl get elementalhost")).NotTo(BeEmpty())
	s.replace("explain host h1", "explain host edge-box-1")
	s.Expect(s.run("docs/kubectl.md", "Explain a host", "kubectl elemental explain host h1")).To(ContainSubstring("ElementalHost default/edge-box-1: its state is Available"))
}

// act fences a host, and does not.
func (s *station) act() {
	s.replace("fence box-1", "fence edge-box-2")
	for _, host := range []string{"2", "3", "4", "5", "6"} {
		s.do(`kubectl patch elementalhost edge-box-` + host + ` --type merge -p '{"spec":{"approval":"Approved"}}'`)
		s.see("kubectl get elementalhost edge-box-"+host, ContainSubstring("Available"))
	}
	out, err := s.try("docs/kubectl.md", "Act", "kubectl elemental fence box-1")
	s.Expect(err).To(HaveOccurred(), "nobody has typed the name")
	s.Expect(out).To(And(ContainSubstring("ElementalHost default/edge-box-2: fence it, because of: stolen"), ContainSubstring("Type the name edge-box-2 to go on: ")))
}

// operate requests operations of a free host, and takes them back.
func (s *station) operate() {
	const page, host = "docs/operating.md", "edge-box-2"
	s.replace("elementalhost NAME", "elementalhost "+host, "cordon NAME", "cordon "+host, "maintenance NAME", "maintenance "+host)
	state := func(want string) { s.see("kubectl get elementalhost "+host, ContainSubstring(want)) }
	s.Expect(s.run(page, "Pause", "kubectl annotate elementalhost NAME")).To(ContainSubstring("annotated"))
	state("Paused")
	s.do("kubectl annotate elementalhost " + host + " cluster.x-k8s.io/paused-")
	state("Available")
	s.Expect(s.run(page, "Cordon", "kubectl elemental cordon")).To(ContainSubstring("ElementalHost default/" + host + ": "))
	state("Cordoned")
	s.do("kubectl elemental uncordon " + host)
	s.Expect(s.run(page, "Maintenance", "kubectl elemental maintenance")).To(ContainSubstring("ElementalHost default/" + host + ": "))
	state("Maintenance")
	s.do("kubectl elemental maintenance " + host + " --end")
	state("Available")
	s.Expect(s.run(page, "Reboot", "kubectl patch elementalhost NAME")).To(ContainSubstring("patched"))
	s.see("kubectl get elementalhost "+host+" -o jsonpath='{.status.operations}'", And(ContainSubstring(`"2026-11-22-a"`), ContainSubstring("Succeeded")))
	s.Expect(s.run(page, "Certificate renewal", "kubectl patch elementalhost NAME")).To(ContainSubstring("patched"))
	s.Expect(s.run(page, "OS upgrade", "kubectl patch elementalhost NAME")).To(ContainSubstring("patched"))
	s.do("kubectl patch elementalhost " + host + ` --type merge -p '{"spec":{"osUpgrade":null,"certificateRenewal":null}}'`)
	s.Expect(s.run(page, "Hold, and prevent-reset", "kubectl annotate elementalhost NAME")).To(ContainSubstring("annotated"))
}

// rotate rotates the CA of the agent API.
func (s *station) rotate() {
	const page, heading = "docs/operating.md", "Rotate the agent API's CA"
	s.run(page, heading, "step() {")
	for _, step := range []string{"Prepare", "Switch", "Finish"} {
		s.run(page, heading, "step "+step)
		s.see("kubectl -n elemental-system get secret elemental-agent-api-ca -o yaml", Not(ContainSubstring("ca-rotation:")))
	}
	s.see("kubectl -n elemental-system get events", ContainSubstring("Hosts are told to trust no other CA"))
	s.Expect(s.run(page, heading, "kubectl -n elemental-system events")).To(And(ContainSubstring("CARotated"), ContainSubstring("Hosts are told to trust no other CA than the one in use")))
}

// giveRights gives teams their rights.
func (s *station) giveRights() {
	const page = "docs/sharing.md"
	s.run(page, "Roles", "kubectl create namespace berlin")
	s.run(page, "Roles", "kubectl create clusterrolebinding host-operators")
	can := func(verb string) string { return "kubectl auth can-i " + verb + " elementalhosts -n berlin --as=ann" }
	var answers string
	s.Eventually(func() string {
		// can-i fails if the answer is no, which is the first one.
		script := s.script(page, "Roles", "kubectl auth can-i approve")
		answers, _ = s.shell("set +e\n" + script)
		return answers
	}).Should(Equal("no\nWarning: verb 'fence' is not a known verb\n\nyes\n"))
	out, _ := s.shell(can("approve"))
	s.Expect(out).To(Equal("no\n"))
	s.run(page, "Roles", "kubectl -n berlin create role approver")
	s.see(can("approve"), HaveSuffix("yes\n"))
	log := "kubectl auth can-i get secrets/berlin-7-log -n berlin --as=bob --as-group=host-operators"
	out, _ = s.shell(log)
	s.Expect(out).To(Equal("no\n"))
	s.run(page, "Roles", "kubectl -n berlin create role log-of-berlin-7")
	s.see(log, Equal("yes\n"))
	s.replace("NAMESPACE:NAME", "k0s:control-plane")
	s.run(page, "Templates, images and ClusterClasses", "kubectl create clusterrolebinding elemental-machines")
	s.see("kubectl auth can-i install elementalmachines.infrastructure.cluster.x-k8s.io --as=system:serviceaccount:k0s:control-plane", HaveSuffix("yes\n"))
}
