//go:build e2e

package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/guide"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// administrator does at a workstation what a document says.
type administrator struct {
	station *lab.Workstation
	// replaced has the texts of the document that were replaced.
	replaced map[string]bool
}

// follow runs the commands of a step as they are in the document, but for the replacements: the text of the document,
// and that of the lab. root@HOST becomes the first of the boxes. A step that is done on each host runs once for each of
// the boxes. follow returns what the last script of each run printed.
func (a *administrator) follow(ctx context.Context, s guide.Step, boxes []*engine.Host, replacements map[string]string) []lab.Output {
	GinkgoHelper()
	if !s.OnEachHost() {
		boxes = boxes[:1]
	}
	var outputs []lab.Output
	for _, box := range boxes {
		var out lab.Output
		for _, script := range s.Scripts {
			script = a.replace(script, replacements)
			out = a.run(ctx, strings.ReplaceAll(script, "root@HOST", "root@"+box.Address))
		}
		outputs = append(outputs, out)
	}
	return outputs
}

// replace makes the replacements in a script, and notes them.
func (a *administrator) replace(script string, replacements map[string]string) string {
	if a.replaced == nil {
		a.replaced = map[string]bool{}
	}
	for _, from := range slices.Sorted(maps.Keys(replacements)) {
		if strings.Contains(script, from) {
			a.replaced[from] = true
			script = strings.ReplaceAll(script, from, replacements[from])
		}
	}
	return script
}

func (a *administrator) run(ctx context.Context, script string) lab.Output {
	GinkgoHelper()
	out, err := a.station.Run(ctx, script)
	Expect(err).NotTo(HaveOccurred(), "%s\n%s%s", script, out.Stdout, out.Stderr)
	return out
}

// expectSeen repeats a command until its output is as expected, and returns it.
func (a *administrator) expectSeen(ctx context.Context, command string, timeout time.Duration, want OmegaMatcher) (out string) {
	GinkgoHelper()
	Eventually(func(assert Gomega) {
		printed, err := a.station.Run(ctx, command)
		assert.Expect(err).NotTo(HaveOccurred())
		out = printed.Stdout
		assert.Expect(out).To(want)
	}).WithTimeout(timeout).WithPolling(2 * time.Second).Should(Succeed())
	return out
}
