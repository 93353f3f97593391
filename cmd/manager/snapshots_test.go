package main

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
)

// A storage that is no HOST:PORT is refused when the manager starts: nobody would notice it before a host
// can't upload.
func TestRelayEndpoints(t *testing.T) {
	g := NewWithT(t)
	with := func(endpoints string) *options {
		o, flags := newOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
		o.addFlags(flags)
		g.Expect(flags.Parse([]string{"--snapshot-relay-endpoints=" + endpoints})).To(Succeed())
		return o
	}
	for _, endpoint := range []string{"https://s3.example.com", "s3.example.com", ":9000"} {
		g.Expect(with(endpoint).validate()).To(MatchError(ContainSubstring("--snapshot-relay-endpoints must have")), endpoint)
	}
	o := with("s3.example.com:9000,192.0.2.1:443")
	g.Expect(o.validate()).To(Succeed())
	g.Expect(o.agentAPI.relayEndpoints()).To(HaveLen(2))
}
