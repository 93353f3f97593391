package redirect_test

import (
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/redirect"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A script for nft contains only parsed addresses and ports, never text of a plan.
func TestThreat40_RedirectionsAreNotInjected(t *testing.T) {
	t.Parallel()
	local := addresses("10.0.0.1", "fd00::1")
	for _, text := range []string{
		"10.0.0.2:6443\nflush ruleset", "10.0.0.2:6443 accept; flush ruleset", "10.0.0.2:6443 }", "10.0.0.0/8:6443", "{ 10.0.0.2, 10.0.0.3 }:6443",
		"$x:6443", "10.0.0.2:https", "10.0.0.2:1-65535", "0x0a000002:6443", "[fe80::1%}\nflush ruleset\n]:6443", "[fd00::2%}\nflush ruleset\n]:6443", "@set:6443", "*:6443",
	} {
		for _, endpoint := range []string{"10.0.0.1:6443", "[fd00::1]:6443"} {
			if target, err := redirect.Parse(protocol.Redirect{Endpoint: endpoint, Servers: []string{text}}, local); err == nil {
				t.Errorf("the server %q was accepted: %v", text, target)
			}
		}
		if target, err := redirect.Parse(protocol.Redirect{Endpoint: text, Servers: []string{"10.0.0.2:6443"}}, local); err == nil {
			t.Errorf("the endpoint %q was accepted: %v", text, target)
		}
	}
}

// A script changes a table of the agent's own, and nothing of the host's rules.
func TestThreat40_TableOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"", "10.0.0.2:6443"} {
		script, _ := rules("10.0.0.1:6443", server, "10.0.0.1").Script()
		for line := range strings.Lines(script) {
			if strings.Contains(line, "table ") && !strings.HasPrefix(strings.TrimPrefix(line, "delete "), "table inet elemental_redirect") {
				t.Errorf("changes another table: %s", line)
			}
		}
		if strings.Contains(script, "flush") {
			t.Errorf("flushes something: %s", script)
		}
	}
}

// A plan leads connections to the endpoint to other hosts only.
func TestThreat65_NoAddressOfTheHost(t *testing.T) {
	t.Parallel()
	local := addresses("10.0.0.1", "192.168.1.1", "fd00::1")
	for _, server := range []string{
		"10.0.0.1:22", "192.168.1.1:2379", "[::ffff:192.168.1.1]:2379", "127.0.0.1:10248", "127.9.9.9:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:6443",
		"169.254.169.254:80", "255.255.255.255:6443", "224.0.0.1:6443", "10.0.0.2:0",
	} {
		if target, err := redirect.Parse(protocol.Redirect{Endpoint: "10.0.0.1:6443", Servers: []string{server}}, local); err == nil {
			t.Errorf("%s was accepted: %v", server, target)
		}
	}
	for _, server := range []string{"[fd00::1]:2379", "[::1]:80", "[::]:6443", "[fe80::2]:6443", "[ff02::1]:6443"} {
		if target, err := redirect.Parse(protocol.Redirect{Endpoint: "[fd00::1]:6443", Servers: []string{server}}, local); err == nil {
			t.Errorf("%s was accepted: %v", server, target)
		}
	}
	// Neither are connections redirected that are for another host, or for nobody else.
	for _, endpoint := range []string{"10.0.0.9:6443", "127.0.0.1:6443", "0.0.0.0:6443", "[::1]:6443"} {
		if target, err := redirect.Parse(protocol.Redirect{Endpoint: endpoint, Servers: []string{"10.0.0.2:6443"}}, append(local, addresses("127.0.0.1", "::1", "0.0.0.0")...)); err == nil {
			t.Errorf("the endpoint %s was accepted: %v", endpoint, target)
		}
	}
}
