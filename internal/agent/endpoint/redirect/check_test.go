package redirect_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/redirect"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestParse(t *testing.T) {
	t.Parallel()
	local := addresses("10.0.0.1", "fd00::1")
	for name, test := range map[string]struct {
		endpoint string
		servers  []string
		want     string
		refused  string
	}{
		"IPv4":                    {"10.0.0.1:6443", []string{"10.0.0.2:6443", "10.0.0.3:443"}, "10.0.0.2:6443 10.0.0.3:443", ""},
		"IPv6":                    {"[fd00::1]:6443", []string{"[FD00::2]:6443"}, "[fd00::2]:6443", ""},
		"IPv4 in IPv6":            {"[::ffff:10.0.0.1]:6443", []string{"[::ffff:10.0.0.2]:6443"}, "10.0.0.2:6443", ""},
		"two families":            {"10.0.0.1:6443", []string{"[fd00::2]:6443", "10.0.0.2:6443"}, "10.0.0.2:6443", ""},
		"another family only":     {"10.0.0.1:6443", []string{"[fd00::2]:6443"}, "", "no other host"},
		"no server":               {"10.0.0.1:6443", nil, "", "no other host"},
		"the endpoint of another": {"10.0.0.9:6443", []string{"10.0.0.2:6443"}, "", "10.0.0.9 is no address of this host"},
		"a name":                  {"shop.example.com:6443", []string{"10.0.0.2:6443"}, "", "no address of an API server"},
		"too many":                {"10.0.0.1:6443", slices.Repeat([]string{"10.0.0.2:6443"}, protocol.MaxBackends+1), "", "more than 32"},
		"a loopback endpoint":     {"127.0.0.1:6443", []string{"10.0.0.2:6443"}, "", "no address of an API server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, err := redirect.Parse(protocol.Redirect{Endpoint: test.endpoint, Servers: test.servers}, local)
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("got %v, %v", target, err)
				}
				return
			}
			var got []string
			for _, server := range target.Servers {
				got = append(got, server.String())
			}
			if err != nil || strings.Join(got, " ") != test.want || !slices.Contains(local, target.Endpoint.Addr()) {
				t.Errorf("got %v, %v", target, err)
			}
		})
	}
}

func TestCheckForwarding(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	ipv4, ipv6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	if err := redirect.CheckForwarding(root, ipv4); err == nil {
		t.Error("a kernel without the setting passes packets on")
	}
	for path, value := range map[string]string{"ipv4/ip_forward": "1\n", "ipv6/conf/all/forwarding": "0\n"} {
		path = filepath.Join(root, "proc/sys/net", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := redirect.CheckForwarding(root, ipv4); err != nil {
		t.Error(err)
	}
	if err := redirect.CheckForwarding(root, ipv6); err == nil || !strings.Contains(err.Error(), "ipv6/conf/all/forwarding is 0") {
		t.Errorf("got %v", err)
	}
}
