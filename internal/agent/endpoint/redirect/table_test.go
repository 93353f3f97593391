package redirect_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/nftable/nftabletest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/redirect"
)

func TestTable(t *testing.T) {
	t.Parallel()
	k := &nftabletest.Kernel{Name: redirect.Name}
	table := redirect.Table{Commands: k}
	if table.Exists(t.Context()) || table.IsBlocked(t.Context()) {
		t.Error("the table exists")
	}
	for _, step := range []struct {
		server string
		writes int
	}{{"10.0.0.2:6443", 1}, {"10.0.0.2:6443", 1}, {"10.0.0.3:6443", 2}, {"", 3}, {"", 3}} {
		if err := table.Set(t.Context(), rules("10.0.0.1:6443", step.server, "10.0.0.1")); err != nil || k.Writes != step.writes || !table.Exists(t.Context()) {
			t.Errorf("%q: %d writes: %v", step.server, k.Writes, err)
		}
	}
	if err := table.Delete(t.Context()); err != nil || table.Exists(t.Context()) {
		t.Errorf("the table still exists: %v", err)
	}
	k.Err = errors.New("out of memory")
	err := errors.Join(table.Set(t.Context(), rules("10.0.0.1:6443", "", "10.0.0.1")), table.Delete(t.Context()))
	if err == nil || strings.Count(err.Error(), "out of memory") != 2 {
		t.Errorf("got %v", err)
	}
}

func TestHostWithoutNft(t *testing.T) {
	t.Parallel()
	table := redirect.Table{Commands: &nftabletest.Kernel{IsMissing: true}}
	if err := table.Set(t.Context(), rules("10.0.0.1:6443", "", "10.0.0.1")); err == nil || !strings.Contains(err.Error(), "install nftables") {
		t.Errorf("got %v", err)
	}
	if err := table.Delete(t.Context()); err != nil || table.Exists(t.Context()) {
		t.Errorf("Delete must succeed without nft: %v", err)
	}
}

func TestIsBlocked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opened, left int
		want         bool
	}{"nothing happens": {0, 0, false}, "one is on its way": {1, 0, false}, "all get through": {5, 5, false}, "some get through": {5, 1, false}, "none gets through": {2, 0, true}} {
		listed := fmt.Sprintf("tcp dport 6443 counter packets %d bytes 60 dnat ip to 10.0.0.2:6443\nproto-dst 6443 counter packets %d bytes 60 masquerade\n", test.opened, test.left)
		if got := (redirect.Table{Commands: &nftabletest.Kernel{Name: redirect.Name, Table: listed}}).IsBlocked(t.Context()); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
