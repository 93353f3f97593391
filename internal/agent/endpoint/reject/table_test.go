package reject_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/nftable/nftabletest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/reject"
)

func local(addresses ...string) []netip.Addr {
	var list []netip.Addr
	for _, address := range addresses {
		list = append(list, netip.MustParseAddr(address))
	}
	return list
}

func TestScript(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		former string
		local  []netip.Addr
		want   []string
	}{
		"IPv4": {
			"10.0.0.1:6443", local("10.0.0.1", "127.0.0.1", "10.0.0.1", "2001:db8::1"),
			[]string{"\t\tip saddr { 10.0.0.1, 127.0.0.1 } accept", "\t\tip daddr 10.0.0.1 tcp dport 6443 reject with tcp reset comment %q"},
		},
		"IPv6": {
			"[2001:DB8::1]:443", local("10.0.0.1", "fe80::1%eth0", "2001:db8::1"),
			[]string{"\t\tip6 saddr { 2001:db8::1, fe80::1 } accept", "\t\tip6 daddr 2001:db8::1 tcp dport 443 reject with tcp reset comment %q"},
		},
		"an address that the host lost": {
			"10.0.0.1:6443", nil,
			[]string{"\t\tip daddr 10.0.0.1 tcp dport 6443 reject with tcp reset comment %q"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, mark, err := reject.Script(test.former, test.local)
			if err != nil {
				t.Fatal(err)
			}
			last := len(test.want) - 1
			test.want[last] = fmt.Sprintf(test.want[last], mark)
			want := slices.Concat([]string{
				"table inet elemental_endpoint", "delete table inet elemental_endpoint", "table inet elemental_endpoint {",
				"\tchain input {", "\t\ttype filter hook input priority -10; policy accept;", "\t\tiif \"lo\" accept",
			}, test.want, []string{"\t}", "}", ""})
			if got != strings.Join(want, "\n") {
				t.Errorf("got\n%s", got)
			}
		})
	}
	marks := map[string]bool{}
	for _, former := range []string{"10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.1:6444"} {
		for _, addresses := range [][]netip.Addr{nil, local("10.0.0.1"), local("10.0.0.1", "10.0.0.3")} {
			_, mark, err := reject.Script(former, addresses)
			if err != nil || marks[mark] {
				t.Errorf("%s, %v: mark %q is not unique: %v", former, addresses, mark, err)
			}
			marks[mark] = true
		}
	}
}

func TestInvalidAddresses(t *testing.T) {
	t.Parallel()
	for _, former := range []string{"", "10.0.0.1", "api.example.com:6443", "10.0.0.1:0", "[fe80::1%eth0]:6443", "10.0.0.1:6443 accept\n"} {
		if script, _, err := reject.Script(former, nil); err == nil {
			t.Errorf("%q was accepted: %s", former, script)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	k := &nftabletest.Kernel{Name: reject.Name}
	table := reject.Table{Commands: k}
	if table.Exists(t.Context()) {
		t.Error("the table exists")
	}
	for _, step := range []struct {
		former string
		local  []netip.Addr
		writes int
	}{
		{"10.0.0.1:6443", local("10.0.0.1"), 1},
		{"10.0.0.1:6443", local("10.0.0.1"), 1},
		{"10.0.0.1:6443", local("10.0.0.1", "10.0.0.9"), 2},
		{"10.0.0.9:6443", local("10.0.0.1", "10.0.0.9"), 3},
	} {
		if err := table.Set(t.Context(), step.former, step.local); err != nil || k.Writes != step.writes || !table.Exists(t.Context()) {
			t.Errorf("%s: %d writes: %v", step.former, k.Writes, err)
		}
	}
	k.Table = "table inet elemental_endpoint { }" // another program flushed it
	if err := table.Set(t.Context(), "10.0.0.9:6443", local("10.0.0.1", "10.0.0.9")); err != nil || k.Writes != 4 {
		t.Errorf("%d writes: %v", k.Writes, err)
	}
	if err := table.Delete(t.Context()); err != nil || table.Exists(t.Context()) {
		t.Errorf("the table still exists: %v", err)
	}
	k.Err = errors.New("out of memory")
	if err := errors.Join(table.Set(t.Context(), "10.0.0.1:6443", nil), table.Delete(t.Context())); err == nil || strings.Count(err.Error(), "out of memory") != 2 {
		t.Errorf("got %v", err)
	}
}

func TestHostWithoutNft(t *testing.T) {
	t.Parallel()
	table := reject.Table{Commands: &nftabletest.Kernel{IsMissing: true}}
	if err := table.Set(t.Context(), "10.0.0.1:6443", nil); err == nil || !strings.Contains(err.Error(), "install nftables") {
		t.Errorf("got %v", err)
	}
	if err := table.Delete(t.Context()); err != nil || table.Exists(t.Context()) {
		t.Errorf("Delete must succeed without nft: %v", err)
	}
}
