package command_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func bigHost(h *infrav1.ElementalHost) {
	h.Labels = map[string]string{infrav1.DefaultFailureDomainLabel: "berlin", "rack": "r1"}
	h.Spec.RegistrationRef = &infrav1.LocalReference{Name: "berlin"}
	h.Status.Inventory = &infrav1.HostInventory{
		CPU: infrav1.HostCPU{Cores: 32}, MemoryBytes: 64 << 30,
		Kubernetes: &infrav1.HostKubernetes{Kubelet: infrav1.HostProgram{Path: "/usr/bin/kubelet", Version: "v1.36.3"}},
	}
	h.Status.Agent = &infrav1.HostAgent{Version: "v0.1.0"}
}

// fleetOf creates four hosts in different states.
func fleetOf(f *fixture) {
	f.Host("a-free", bigHost)
	f.Host("b-away", disconnected)
	f.Host("c-claimed", claimed(infrav1.ClaimBound), func(h *infrav1.ElementalHost) {
		h.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "fd00::7"}}
		h.Status.Inventory = &infrav1.HostInventory{CPU: infrav1.HostCPU{Cores: 4}, MemoryBytes: 3<<30 + 1<<29}
		// What a host reports must not command the terminal.
		h.Status.Agent = &infrav1.HostAgent{Version: "v9\x1b[2J"}
	})
	f.Host("d-new", func(h *infrav1.ElementalHost) { h.Status = infrav1.ElementalHostStatus{} })
}

func TestHosts(t *testing.T) {
	f := newFixture(t)
	fleetOf(f)
	for name, args := range map[string][]string{
		"all":          nil,
		"state":        {"--state", "agentdisconnected,Available"},
		"cluster":      {"--cluster", "other"},
		"registration": {"--registration", "berlin", "--no-headers"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := f.run(append([]string{"hosts"}, args...)...)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			f.expectGolden("hosts-"+name, text)
		})
	}
}

func TestHostsOfAllNamespaces(t *testing.T) {
	f := newFixture(t)
	f.Host("h1", labelled("only", f.Namespace))
	text, err := f.run("hosts", "-A", "-l", "only="+f.Namespace)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(strings.Fields(text)[:2]).To(Equal([]string{"NAMESPACE", "NAME"}))
	f.Expect(text).To(MatchRegexp(`\n%s +h1 +Available `, f.Namespace))
}

func TestHostsForPrograms(t *testing.T) {
	f := newFixture(t)
	fleetOf(f)
	for _, args := range [][]string{{"-l", "rack=r1"}, {"--state", "Nothing"}} {
		text, err := f.run(append([]string{"hosts", "-o", "json"}, args...)...)
		f.Expect(err).NotTo(HaveOccurred())
		list := &infrav1.ElementalHostList{}
		f.Expect(json.Unmarshal([]byte(text), list)).To(Succeed(), text)
		f.Expect(list.Kind).To(Equal("List"))
		selector, err := labels.Parse("rack=r1")
		f.Expect(err).NotTo(HaveOccurred())
		for _, host := range list.Items {
			f.Expect(selector.Matches(labels.Set(host.Labels))).To(BeTrue())
			f.Expect(host.Kind).To(Equal("ElementalHost"))
		}
	}
	text, err := f.run("hosts", "-o", "yaml", "-l", "rack=r1")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(text).To(And(HavePrefix("---\napiVersion: infrastructure.cluster.x-k8s.io/v1beta2\nkind: ElementalHost\n"), ContainSubstring("name: a-free")))
}

func TestCompletion(t *testing.T) {
	f := newFixture(t)
	f.Host("h1")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"explain", "host", ""}, "h1\n:4\n"},
		{[]string{"explain", ""}, "cluster\tExplain the endpoint"},
		{[]string{"hosts", "--state", ""}, "Available\n"},
		{[]string{"fence", ""}, "h1\n:4\n"},
		{[]string{"endpoint", "c1", ""}, "move\n:4\n"},
		{[]string{"endpoint", "c1", "move", "--to", ""}, "h1\n:4\n"},
		{[]string{"cordon", "--dry-run", ""}, "none\nserver\n"},
		{[]string{"hosts", "--context", ""}, "lab\n:4\n"},
		{[]string{"hosts", "--namespace", ""}, f.Namespace + "\n"},
	} {
		// Completions end with the word to be completed, so the flag comes first.
		text, err := f.run(append([]string{"__complete", "--kubeconfig", f.kubeconfig}, tc.args...)...)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(text).To(ContainSubstring(tc.want))
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		text, err := f.run("completion", shell)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(text).To(ContainSubstring("kubectl-elemental"))
	}
	text, err := f.run("version")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(text).To(Equal("v1.2.3\n"))
}

func TestCommandsAreDocumented(t *testing.T) {
	f := newFixture(t)
	text, err := os.ReadFile("../../../docs/kubectl.md")
	f.Expect(err).NotTo(HaveOccurred())
	help, err := f.run("help")
	f.Expect(err).NotTo(HaveOccurred())
	commands := regexp.MustCompile(`(?m)^  ([a-z-]+) {2,}`).FindAllStringSubmatch(help, -1)
	f.Expect(len(commands)).To(BeNumerically(">", 12))
	for _, command := range commands {
		switch command[1] {
		case "completion", "help":
		default:
			f.Expect(string(text)).To(Or(ContainSubstring("`"+command[1]+" HOST"), ContainSubstring("kubectl elemental "+command[1])))
		}
	}
}
