package redirect_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/redirect"
)

// kernel imitates nft.
type kernel struct {
	table   string
	writes  int
	missing bool
	err     error
}

func (k *kernel) Run(_ context.Context, stdin string, args ...string) (string, error) {
	switch line := strings.Join(args, " "); {
	case k.missing:
		return "", fmt.Errorf("running nft: %w", &exec.Error{Name: "nft", Err: exec.ErrNotFound})
	case k.err != nil:
		return "", k.err
	case line == "nft -f -":
		k.writes++
		_, k.table, _ = strings.Cut(stdin, "delete table inet elemental_redirect\n")
		return "", nil
	case line == "nft list table inet elemental_redirect" && k.table != "":
		return k.table, nil
	}
	return "", errors.New("No such file or directory")
}

func TestTable(t *testing.T) {
	t.Parallel()
	k := &kernel{}
	table := redirect.Table{Commands: k}
	if table.Exists(t.Context()) || table.IsBlocked(t.Context()) {
		t.Error("the table exists")
	}
	for _, step := range []struct {
		server string
		writes int
	}{{"10.0.0.2:6443", 1}, {"10.0.0.2:6443", 1}, {"10.0.0.3:6443", 2}, {"", 3}, {"", 3}} {
		if err := table.Set(t.Context(), rules("10.0.0.1:6443", step.server, "10.0.0.1")); err != nil || k.writes != step.writes || !table.Exists(t.Context()) {
			t.Errorf("%q: %d writes: %v", step.server, k.writes, err)
		}
	}
	if err := table.Delete(t.Context()); err != nil || table.Exists(t.Context()) {
		t.Errorf("the table still exists: %v", err)
	}
	k.err = errors.New("out of memory")
	err := errors.Join(table.Set(t.Context(), rules("10.0.0.1:6443", "", "10.0.0.1")), table.Delete(t.Context()))
	if err == nil || strings.Count(err.Error(), "out of memory") != 2 {
		t.Errorf("got %v", err)
	}
}

func TestHostWithoutNft(t *testing.T) {
	t.Parallel()
	table := redirect.Table{Commands: &kernel{missing: true}}
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
		if got := (redirect.Table{Commands: &kernel{table: listed}}).IsBlocked(t.Context()); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
