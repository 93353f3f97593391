package redirect_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/redirect"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/namespaces"
)

// required is an environment variable. If it is set, the test fails where a program is missing.
const required = "REQUIRE_NFTABLES"

// The test runs in a new network namespace, which is the host of the endpoint. Two more are a
// client and another host of the control plane.
func TestKernel(t *testing.T) {
	for program, from := range map[string]string{"nft": "nftables", "ip": "iproute2"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv(required) != "" {
				t.Fatalf("there is no %s: install Debian's package %s", program, from)
			}
			t.Skipf("NOT RUN: there is no %s: install Debian's package %s", program, from)
		}
	}
	if !namespaces.Enter(t, syscall.CLONE_NEWNET) {
		return
	}
	s := newSite(t)
	for _, family := range []family{ipv4(), ipv6()} {
		for name, isTranslating := range map[string]bool{"alone": false, "beside kube-proxy": true} {
			t.Run(family.name+", "+name, func(t *testing.T) {
				c := &course{site: s, family: family, isTranslating: isTranslating, table: redirect.Table{Commands: oscommand.System{}}}
				c.run(t)
			})
		}
	}
	t.Run("blocked", func(t *testing.T) { testBlocked(t, s) })
}

// A packet filter of the host drops what the host passes on.
func testBlocked(t *testing.T, s *site) {
	c := &course{site: s, family: ipv4(), table: redirect.Table{Commands: oscommand.System{}}}
	serve(t, c.peer, c.first, "first")
	c.nft(t, "table inet strict { chain forward { type filter hook forward priority 0; policy drop; }; }")
	defer c.nft(t, "delete table inet strict")
	c.set(t, c.first)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !c.table.IsBlocked(ctx) {
		if ctx.Err() != nil {
			t.Fatal("it is not noticed")
		}
		c.client.do(t, func() error {
			conn, err := (&net.Dialer{Timeout: 50 * time.Millisecond}).DialContext(ctx, "tcp", c.endpoint)
			if err == nil {
				return errors.Join(errors.New("connected"), conn.Close())
			}
			return nil
		})
	}
	if err := c.table.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// course is the course of a redirection.
type course struct {
	*site

	family
	isTranslating bool
	table         redirect.Table
}

// set has the kernel redirect to a server, or to none if that is blank.
func (c *course) set(t *testing.T, server string) {
	t.Helper()
	rules := redirect.Rules{Endpoint: netip.MustParseAddrPort(c.endpoint), Local: addresses(c.host)}
	if server != "" {
		rules.Server = netip.MustParseAddrPort(server)
	}
	if err := c.table.Set(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
}

func (c *course) run(t *testing.T) {
	own, etcd := serve(t, nil, c.endpoint, "own"), serve(t, nil, netip.AddrPortFrom(netip.MustParseAddr(c.host), 2379).String(), "etcd")
	serve(t, c.peer, c.first, "first")
	atSecond := serve(t, c.peer, c.second, "second")
	if c.isTranslating {
		c.nft(t, c.kubeProxy)
		defer c.nft(t, "delete table "+c.kubeProxyTable)
	}
	// Before.
	before, inside := connect(t, c.client, c.endpoint, "own"), connect(t, nil, c.endpoint, "own")
	atOwn := own.accepted(t, before)
	beforeEtcd := connect(t, c.client, etcd.address, "etcd")
	var pod *connection
	if c.isTranslating {
		pod = connect(t, c.client, c.service, "own")
	}

	// While the API server of the host is replaced.
	c.set(t, c.first)
	before.expectReset(t)
	atOwn.expectEnd(t)
	redirected, idle := connect(t, c.client, c.endpoint, "first"), connect(t, c.client, c.endpoint, "first")
	hairpin := connect(t, c.peer, c.endpoint, "first")
	inside.expectEcho(t)
	connect(t, nil, c.endpoint, "own")
	beforeEtcd.expectEcho(t)
	connect(t, c.client, etcd.address, "etcd")
	if c.isTranslating {
		pod.expectEcho(t)
		connect(t, c.client, c.service, "own")
	}
	if c.table.IsBlocked(t.Context()) {
		t.Error("the connections get through")
	}
	c.set(t, c.first) // changes nothing
	redirected.expectEcho(t)
	hairpin.expectEcho(t)

	// The first server has failed.
	c.set(t, c.second)
	redirected.expectReset(t)
	second := connect(t, c.client, c.endpoint, "second")
	atSecond.drain()
	quiet := connect(t, c.client, c.endpoint, "second")
	speaker := <-atSecond.opened

	// Afterwards.
	c.set(t, "")
	second.expectReset(t)
	quiet.expectResetBy(t, speaker)
	hairpin.expectReset(t)
	idle.expectReset(t)
	connect(t, c.client, c.endpoint, "own")
	last := connect(t, c.peer, c.endpoint, "own")
	inside.expectEcho(t)
	beforeEtcd.expectEcho(t)
	if c.isTranslating {
		pod.expectEcho(t)
	}
	if err := c.table.Delete(t.Context()); err != nil || c.table.Exists(t.Context()) {
		t.Errorf("the table still exists: %v", err)
	}
	if left := c.nft(t, "list tables"); strings.Contains(left, "elemental") {
		t.Errorf("left: %s", left)
	}
	last.expectEcho(t)
	inside.expectEcho(t)
}
