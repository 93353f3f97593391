package main

import (
	"os"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
)

// The reference has all flags. Those of the log library are left to --help.
func TestFlagsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	others := regexp.MustCompile(`^(log-.*|vmodule|version|v)$`)
	text, err := os.ReadFile("../../docs/reference.md")
	g.Expect(err).NotTo(HaveOccurred())
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	newOptions().addFlags(fs)
	shown := 0
	fs.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || others.MatchString(flag.Name) {
			return
		}
		shown++
		g.Expect(string(text)).To(ContainSubstring("`--" + flag.Name + "`"))
	})
	g.Expect(shown).To(BeNumerically(">", 20))
}
