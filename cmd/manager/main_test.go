package main

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
)

// Further arguments are checked as those of the command line, and come after them.
func TestFurtherArguments(t *testing.T) {
	g := NewWithT(t)
	g.Expect(arguments([]string{"--leader-elect", "-v=0"}, " --agent-downloads=64  -v=2\n")).To(
		Equal([]string{"--leader-elect", "-v=0", "--agent-downloads=64", "-v=2"}))
	g.Expect(arguments([]string{"--leader-elect"}, "")).To(Equal([]string{"--leader-elect"}))
	g.Expect(run(context.Background(), arguments(nil, "--no-such-flag"))).To(MatchError(ContainSubstring("no-such-flag")))
}
