package redirect_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/redirect"
)

func addresses(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func rules(endpoint, server string, local ...string) redirect.Rules {
	r := redirect.Rules{Endpoint: netip.MustParseAddrPort(endpoint), Local: addresses(local...)}
	if server != "" {
		r.Server = netip.MustParseAddrPort(server)
	}
	return r
}

func TestScript(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]redirect.Rules{
		"redirect-ipv4": rules("10.0.0.1:6443", "10.0.0.2:6444", "10.0.0.1", "192.168.1.1", "fd00::1"),
		"redirect-ipv6": rules("[fd00::1]:6443", "[fd00::2]:6443", "10.0.0.1", "fd00::1", "fe80::1%eth0"),
		"cut-ipv4":      rules("10.0.0.1:6443", "", "10.0.0.1"),
		"cut-ipv6":      rules("[fd00::1]:6443", "", "fd00::1"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script, mark := r.Script()
			want, err := os.ReadFile(filepath.Join("testdata", name+".nft"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), strings.ReplaceAll(script, mark, "MARK")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if strings.Count(script, mark) != 1 {
				t.Errorf("the mark %q is not there once", mark)
			}
		})
	}
}

// Whatever the rules differ in, the mark differs too: otherwise a table that is outdated would
// stay.
func TestMark(t *testing.T) {
	t.Parallel()
	marks := map[string]bool{}
	for _, endpoint := range []string{"10.0.0.1:6443", "10.0.0.1:6444"} {
		for _, server := range []string{"", "10.0.0.2:6443", "10.0.0.3:6443"} {
			for _, local := range [][]string{{"10.0.0.1"}, {"10.0.0.1", "10.0.0.9"}} {
				_, mark := rules(endpoint, server, local...).Script()
				if marks[mark] {
					t.Errorf("%s, %s, %v: the mark is not unique", endpoint, server, local)
				}
				marks[mark] = true
			}
		}
	}
}
