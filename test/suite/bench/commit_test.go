package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// What is measured stays the commit that it was, although its own figures are written into the checkout.
func TestFiguresAreOfOneCommit(t *testing.T) {
	g := NewWithT(t)
	checkout := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(checkout, name)
		g.Expect(os.MkdirAll(filepath.Dir(name), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(name, []byte(text), 0o600)).To(Succeed())
	}
	git := func(args ...string) string {
		said, err := shell.Command{Args: append([]string{"git", "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...), Dir: checkout}.Run(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		return said
	}
	write("test/tools/kubernetes/go.mod", "module kubernetes\n\ngo 1.26\n\nrequire k8s.io/kubernetes v1.2.3\n")
	write("figures.md", "none")
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "--message", "all")
	nothing := func(context.Context, *run) error { return nil }
	options := Options{Self: []string{"none"}, Checkout: checkout}
	var commits []string
	g.Expect(Measure(t.Context(), []Scenario{{"a", "A", nothing}, {"b", "B", nothing}}, options, func(s table.Section) error {
		g.Expect(s.Machine).To(HaveSuffix("Kubernetes v1.2.3"))
		commits = append(commits, s.Commit)
		write("figures.md", s.String())
		return nil
	})).To(Succeed())
	head := git("rev-parse", "--short=12", "HEAD")
	g.Expect(commits).To(Equal([]string{head, head}))

	full := errors.New("no space left")
	g.Expect(Measure(t.Context(), []Scenario{{"a", "A", nothing}}, options, func(s table.Section) error {
		g.Expect(s.Commit).To(Equal(head + "-dirty"))
		return full
	})).To(MatchError(full))
}
