//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/guide"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/survey"
)

// take runs the commands of a step of the guide, and checks that the administrator sees what the guide says.
func (g *walk) take(ctx context.Context, s guide.Step) {
	GinkgoHelper()
	see, found := g.sights()[s.Title]
	Expect(found).To(BeTrue(), "the guide has a new step %q: say here what one sees after it", s.Title)
	for _, out := range g.follow(ctx, s, g.boxes, g.replacements()) {
		see(ctx, out)
	}
}

// replacements are what differs between the guide and the lab: the text of the guide, and that of
// the lab.
func (g *walk) replacements() map[string]string {
	digest := regexp.MustCompile(`sha256: (\S+)`).FindStringSubmatch(g.bundle)
	size := regexp.MustCompile(`sizeBytes: (\S+)`).FindStringSubmatch(g.bundle)
	all := map[string]string{
		// clusterctl gets Cluster API and the stand-in for cert-manager from this machine, and the node
		// port is that of agentAPI, because nothing gives the lab a load balancer.
		"\nproviders:\n":                "\n" + g.station.CertManager + "ELEMENTAL_AGENT_API_NODE_PORT: \"" + strconv.Itoa(lab.AgentAPIPort) + "\"\nproviders:\n" + g.station.Clusterctl,
		"https://elemental.example.com": g.agentAPI(),
		// The programs of this machine stay as they are.
		"-C /usr/local/bin":           "-C " + g.station.Programs,
		"https://mirror.example.com/": g.mirror,
		"root@10.1.1.1":               "root@HOST",
		"5d1c1b7d1a0e4a1f2c3b4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192": "",
		"319488123": "",
	}
	if digest != nil && size != nil {
		all["5d1c1b7d1a0e4a1f2c3b4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192"], all["319488123"] = digest[1], size[1]
	}
	if runtime.GOARCH != "amd64" {
		all["amd64"] = runtime.GOARCH
	}
	return all
}

func (g *walk) agentAPI() string {
	return "https://" + net.JoinHostPort(g.lab.Management().Address, strconv.Itoa(lab.AgentAPIPort))
}

// sights are what the guide says that one sees after each step, by the title of the step.
func (g *walk) sights() map[string]func(context.Context, lab.Output) {
	return map[string]func(context.Context, lab.Output){
		"Tell clusterctl where the release is": func(ctx context.Context, _ lab.Output) {
			Expect(g.run(ctx, "clusterctl config repositories").Stdout).To(MatchRegexp(`(?m)^elemental .*` + regexp.QuoteMeta("file://"+g.station.Home+"/elemental/")))
		},
		"Install the provider": func(_ context.Context, out lab.Output) {
			Expect(out.Stderr).To(And(ContainSubstring("Installing cert-manager"), ContainSubstring(`Installing provider="infrastructure-elemental"`)))
		},
		"Install the plugin of kubectl and the program that builds bundles": func(ctx context.Context, _ lab.Output) {
			Expect(g.run(ctx, "kubectl elemental").Stdout).To(And(ContainSubstring("  hosts "), ContainSubstring("  enrol ")))
		},
		"Make a registration": func(ctx context.Context, _ lab.Output) {
			g.expectSeen(ctx, "kubectl get elementalregistrations", time.Minute, And(MatchRegexp(`berlin +True`), ContainSubstring(g.agentAPI())))
		},
		"Build a bundle": func(_ context.Context, out lab.Output) {
			Expect(out.Stdout).To(And(MatchRegexp(`sha256: [0-9a-f]{64}\n`), MatchRegexp(`sizeBytes: [0-9]+`)))
			g.bundle = out.Stdout
		},
		"Pin the bundle": func(ctx context.Context, _ lab.Output) {
			g.expectSeen(ctx, "kubectl get elementalkubernetesreleases", time.Minute, ContainSubstring("v1.36.3"))
		},
		"Enrol each host": func(_ context.Context, out lab.Output) {
			Expect(out.Stdout + out.Stderr).To(ContainSubstring("elemental-agent is installed and enrols this host"))
		},
		"Look at the hosts": func(ctx context.Context, _ lab.Output) {
			g.expectAvailable(ctx)
			g.survey(ctx)
		},
		"Make a cluster": func(ctx context.Context, _ lab.Output) {
			g.expectSeen(ctx, "kubectl get machines", provisionTimeout, ContainSubstring("Running"))
		},
		"Get the kubeconfig": func(_ context.Context, out lab.Output) {
			Expect(out.Stdout + out.Stderr).To(BeEmpty())
			Expect(os.Stat(filepath.Join(g.station.Home, "demo.kubeconfig"))).To(HaveField("Size()", BeNumerically(">", 1000)))
		},
		"Install a network plugin": func(_ context.Context, out lab.Output) {
			Expect(out.Stdout).To(ContainSubstring("daemonset.apps/podnetwork created"))
		},
		"Look at the nodes": func(ctx context.Context, _ lab.Output) {
			out := g.expectSeen(ctx, "kubectl --kubeconfig demo.kubeconfig get nodes", 2*provisionTimeout, WithTransform(readyNodes, Equal(guideHosts)))
			fmt.Println(out)
		},
	}
}

// readyNodes counts the Nodes that kubectl prints as Ready.
func readyNodes(out string) int {
	return len(regexp.MustCompile(`(?m)^\S+ +Ready `).FindAllString(out, -1))
}

// expectAvailable waits until all hosts are available by the names that they have themselves.
func (g *walk) expectAvailable(ctx context.Context) {
	GinkgoHelper()
	var wanted []OmegaMatcher
	for _, box := range g.boxes {
		wanted = append(wanted, MatchRegexp(`(?m)^`+box.Name+` .*\bAvailable\b`))
	}
	g.expectSeen(ctx, "kubectl elemental hosts", resetTimeout, And(wanted...))
}

// survey records the hosts' states.
func (g *walk) survey(ctx context.Context) {
	GinkgoHelper()
	for _, box := range g.boxes {
		found, err := survey.Take(ctx, box)
		Expect(err).NotTo(HaveOccurred())
		g.before[box.Name] = found
	}
}
