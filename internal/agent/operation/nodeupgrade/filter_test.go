package nodeupgrade_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/redirect"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
)

const (
	// address is that of the host, and of the endpoint.
	address = "192.0.2.1"
	// peerA and peerB are API servers of other hosts.
	peerA = "192.0.2.2:6443"
	peerB = "192.0.2.3:6443"
)

// filter is the kernel's packet filter.
type filter struct {
	// table is that of package redirect; blank if it does not exist.
	table string
	// went is where connections went, in order: to an API server, "cut" or "".
	went []string
	// isMissing is true without nft, and isBlocking if the host drops what it passes on.
	isMissing, isBlocking bool
	// isUnchecked: connections need not be redirected.
	isUnchecked bool
	// failures is how often nft fails to delete the table.
	failures int
}

// nft imitates nft with the one table.
func (f *filter) nft(stdin string, args ...string) (string, error) {
	line := strings.Join(args, " ")
	switch {
	case f.isMissing:
		return "", fmt.Errorf("running nft: %w", &exec.Error{Name: "nft", Err: exec.ErrNotFound})
	case line == "nft list table "+redirect.Name && f.table == "":
		return "", errors.New("running nft: No such file or directory")
	case line == "nft list table "+redirect.Name && f.isBlocking:
		return f.table + "counter packets 3 bytes 180 dnat\ncounter packets 0 bytes 0 masquerade\n", nil
	case line == "nft list table "+redirect.Name:
		return f.table, nil
	case line != "nft -f -":
		return "", fmt.Errorf("running %s: %w", line, errors.ErrUnsupported)
	}
	_, table, _ := strings.Cut(stdin, "delete table "+redirect.Name+"\n")
	if table == "" && f.failures > 0 {
		f.failures--
		return "", errors.New("running nft: out of memory")
	}
	f.table = table
	f.went = append(f.went, f.goes())
	return "", nil
}

// goes returns where connections to the endpoint go.
func (f *filter) goes() string {
	_, server, isRedirected := strings.Cut(f.table, "dnat ip to ")
	switch {
	case isRedirected:
		server, _, _ = strings.Cut(server, "\n")
		return server
	case f.table != "":
		return "cut"
	}
	return ""
}

// atEndpoint makes the host's address the control plane endpoint.
func (m *machine) atEndpoint() {
	m.want.Redirect = &protocol.Redirect{Endpoint: address + ":6443", Servers: []string{peerA, peerB}}
	m.write("/proc/sys/net/ipv4/ip_forward", "1\n", 0o644)
}

// expectClients fails the test unless the endpoint's clients are where they can be served: at
// another API server while that of the host is replaced.
func (m *machine) expectClients() {
	m.t.Helper()
	if m.want.Redirect == nil || m.filter.isMissing || m.filter.isBlocking || m.filter.isUnchecked {
		return
	}
	goes := m.filter.goes()
	if m.api.isDown(peerA) && m.api.isDown(peerB) {
		return
	}
	if goes != peerA && goes != peerB {
		m.t.Errorf("connections to the endpoint go to %q while the API server is replaced", goes)
	}
}

// beForeign has API servers of other hosts be none of the cluster's.
func (m *machine) beForeign(peers ...string) {
	m.t.Helper()
	authority, err := pki.NewAuthority("kubernetes", time.Now())
	m.must(err)
	m.api.foreign, m.api.stranger = peers, m.api.start(authority)
}
