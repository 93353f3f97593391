package reject_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/reject"
)

// A script for nft contains only parsed addresses and ports, never text of a
// plan.
func TestThreat40_RulesAreNotInjected(t *testing.T) {
	t.Parallel()
	for _, former := range []string{
		"10.0.0.1:6443\nflush ruleset", "10.0.0.1:6443 accept; flush ruleset", "10.0.0.1:6443 }", "10.0.0.1/0:6443", "{ 10.0.0.1, 10.0.0.2 }:6443",
		"$x:6443", "10.0.0.1:https", "10.0.0.1:1-65535", "0x0a000001:6443", "[::1%}\nflush ruleset\n]:6443", "\"include\":1", "@set:6443", "*:6443",
	} {
		if script, _, err := reject.Script(former, nil); err == nil {
			t.Errorf("%q was accepted: %s", former, script)
		}
	}
	for _, local := range []string{"fe80::1%}\nflush ruleset\n", "fe80::1%eth0,0.0.0.0/0"} {
		script, _, err := reject.Script("[2001:db8::1]:6443", []netip.Addr{netip.MustParseAddr(local)})
		if err != nil || strings.Contains(script, "flush") || strings.Contains(script, "%") || strings.Contains(script, "/0") {
			t.Errorf("%q makes %s: %v", local, script, err)
		}
	}
}

// A script changes a table of the agent's own, and nothing of the host's rules.
func TestThreat40_TableOfItsOwn(t *testing.T) {
	t.Parallel()
	script, _, err := reject.Script("10.0.0.1:6443", []netip.Addr{netip.MustParseAddr("10.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(script) {
		if strings.Contains(line, "table ") && !strings.HasPrefix(strings.TrimPrefix(line, "delete "), "table inet elemental_endpoint") {
			t.Errorf("changes another table: %s", line)
		}
	}
	if strings.Count(script, "chain ") != 1 || strings.Contains(script, "flush") {
		t.Errorf("is not one chain: %s", script)
	}
}
