package docs_test

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/command"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/guide"
)

// maxCommands are those of the guide from boxes to a cluster.
const maxCommands = 12

// The guide is as short as it says: few commands, one of them on each host, and after each
// step it says what one sees.
func TestGuideIsShort(t *testing.T) {
	g := NewWithT(t)
	all, err := guide.Steps(read(t, "docs/guide.md"))
	g.Expect(err).NotTo(HaveOccurred())
	var commands, onHosts []string
	for _, s := range all {
		g.Expect(s.Commands()).NotTo(BeEmpty(), s.Title)
		g.Expect(s.Text).To(ContainSubstring("\n**You see** "), s.Title)
		commands = append(commands, s.Commands()...)
		if s.OnEachHost() {
			onHosts = append(onHosts, s.Commands()...)
		}
	}
	t.Logf("%d commands, %d of them on each host", len(commands), len(onHosts))
	g.Expect(len(commands)).To(BeNumerically("<=", maxCommands), "%q", commands)
	g.Expect(onHosts).To(HaveLen(1))
	g.Expect(read(t, "docs/guide.md")).To(ContainSubstring("It takes twelve commands, one of them on each host."))
	g.Expect(commands).To(HaveLen(maxCommands))
}

// After each step of a takeover, the administrator sees whether it worked.
func TestTakeoverSaysWhatOneSees(t *testing.T) {
	g := NewWithT(t)
	all, err := guide.Steps(read(t, "docs/adopting.md"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).NotTo(BeEmpty())
	for _, s := range all {
		g.Expect(s.Commands()).NotTo(BeEmpty(), s.Title)
		g.Expect(s.Text).To(ContainSubstring("\n**You see** "), s.Title)
	}
}

// Commands of the plugin in the documents, in sentences too, exist and have the flags that the documents use.
func TestPluginCommandsExist(t *testing.T) {
	g := NewWithT(t)
	invocation := regexp.MustCompile("(?m)(^ *|`)kubectl elemental ([^`|>#\n]*)")
	quoted := regexp.MustCompile(`'[^']*'|"[^"]*"`) // one word for the shell
	pages, err := filepath.Glob(root + "/docs/*.md")
	g.Expect(err).NotTo(HaveOccurred())
	seen := 0
	for _, page := range pages {
		for _, found := range invocation.FindAllStringSubmatch(read(t, "docs/"+filepath.Base(page)), -1) {
			plugin := command.New(command.Options{IOStreams: genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard}})
			words := strings.Fields(quoted.ReplaceAllString(strings.ReplaceAll(found[2], "…", ""), "quoted"))
			cmd, rest, err := plugin.Find(words)
			g.Expect(err).NotTo(HaveOccurred(), "%s: %s", page, found[0])
			g.Expect(cmd).NotTo(Equal(plugin), "%s: %s names no command", page, found[0])
			seen++
			if strings.TrimSpace(found[1]) != "" && (len(rest) == 0 || strings.Contains(found[2], "…")) {
				continue // a sentence that names the command
			}
			g.Expect(cmd.ParseFlags(rest)).To(Succeed(), "%s: %s", page, found[0])
			g.Expect(cmd.ValidateArgs(cmd.Flags().Args())).To(Succeed(), "%s: %s", page, found[0])
		}
	}
	g.Expect(seen).To(BeNumerically(">", 50))
}

// Reasons in the tables of the troubleshooting page are reasons of the API.
func TestSymptomsNameReasons(t *testing.T) {
	g := NewWithT(t)
	values := map[string]string{}
	addConstants(values, "", parse(t, root+"/api/v1beta2/conditions.go"))
	known := map[string]bool{}
	for _, value := range values {
		known[value] = true
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[A-Z].*?) \\|").FindAllStringSubmatch(read(t, "docs/troubleshooting.md"), -1) {
		for _, name := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(row[1], -1) {
			g.Expect(known[name[1]]).To(BeTrue(), "%s is no reason", name[1])
		}
	}
}
