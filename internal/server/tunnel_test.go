package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

func ofTypeTunnel(c *infrav1.ElementalCluster) {
	c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "c-endpoint", Port: 16443}
	c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeTunnel}
}

// tunnelMember returns an agent of a bootstrapped host of cluster c that can open a tunnel
// and has polled.
func (h *harness) tunnelMember(token, machine string, role infrav1.ClaimRole) *agent {
	h.tb.Helper()
	a := h.agent()
	request := enrolRequest()
	request.Hello.Capabilities = append(request.Hello.Capabilities, protocol.CapabilityTunnel, protocol.CapabilityLocalEndpoint)
	if got := a.enrolAs(token, request); got.status != http.StatusOK {
		h.tb.Fatalf("enrolling: %d %s", got.status, got.body)
	}
	a.bind(machine, role)
	if got := a.reportOperation(protocol.OperationBootstrap, "claim-"+machine, protocol.StateSucceeded); got.status != http.StatusNoContent {
		h.tb.Fatalf("reporting the bootstrap: %d %s", got.status, got.body)
	}
	h.cachedSoon(h.host(a.name))
	if got := a.planOf("boot-1"); got.status != http.StatusOK {
		h.tb.Fatalf("plan: %d %s", got.status, got.body)
	}
	h.settle()
	h.writes.take()
	return a
}

func (a *agent) hostKey() types.NamespacedName {
	return types.NamespacedName{Namespace: a.h.namespace, Name: a.name}
}

// connect makes a connection of its own, with an ALPN protocol.
func (a *agent) connect(alpn string) *tls.Conn {
	a.h.tb.Helper()
	config := a.http.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{alpn}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(a.h.url, "https://"), config)
	a.h.must(err)
	a.h.tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// asks sends a request as it is, on a connection of its own, and returns the answer. The
// connection has nothing buffered.
func (a *agent) asks(request string) (*tls.Conn, answer) {
	a.h.tb.Helper()
	conn := a.connect("http/1.1")
	_, err := io.WriteString(conn, request)
	a.h.must(err)
	// Byte by byte, because HTTP/2 may follow.
	var head strings.Builder
	for one := make([]byte, 1); !strings.HasSuffix(head.String(), "\r\n\r\n"); {
		_, err := io.ReadFull(conn, one)
		a.h.must(err)
		head.Write(one)
	}
	response, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(head.String()), conn)), nil)
	a.h.must(err)
	defer func() { _ = response.Body.Close() }()
	got := answer{status: response.StatusCode, header: response.Header}
	if got.status != http.StatusSwitchingProtocols {
		body, err := io.ReadAll(response.Body)
		a.h.must(err)
		got.body = string(body)
	}
	return conn, got
}

// upgradeOf is the request for a tunnel of a boot.
func upgradeOf(boot string) string {
	return "GET " + protocol.PathTunnel + "?boot=" + boot + " HTTP/1.1\r\nHost: manager\r\nConnection: Upgrade\r\nUpgrade: " + protocol.TunnelProtocol + "\r\n\r\n"
}

// openTunnel opens a tunnel whose targets greet by name, and waits until dials reach it. The
// channel gets the end of the agent's side.
func (a *agent) openTunnel(boot string) <-chan error {
	a.h.tb.Helper()
	_, ended := a.tunnelOn(boot)
	return ended
}

// tunnelOn is openTunnel that returns the connection too.
func (a *agent) tunnelOn(boot string) (net.Conn, <-chan error) {
	a.h.tb.Helper()
	opened := a.h.metric("elemental_tunnels_opened_total")
	conn, got := a.asks(upgradeOf(boot))
	if got.status != http.StatusSwitchingProtocols {
		a.h.tb.Fatalf("upgrade: %d %s", got.status, got.body)
	}
	ended := make(chan error, 1)
	go func() { ended <- tunnel.Serve(context.WithoutCancel(a.h.tb.Context()), conn, a.greet) }()
	NewWithT(a.h.tb).Eventually(func() float64 { return a.h.metric("elemental_tunnels_opened_total") }, eventually, often).Should(BeNumerically(">", opened))
	NewWithT(a.h.tb).Eventually(a.reached, eventually, often).Should(Equal(a.name))
	return conn, ended
}

// moveTo makes the agent use another manager that has polled it.
func (a *agent) moveTo(next *harness) {
	a.h = next
	a.http.CloseIdleConnections()
	a.http.Transport.(*http.Transport).TLSClientConfig.RootCAs = next.roots
	if got := a.planOf("boot-1"); got.status != http.StatusOK {
		next.tb.Fatalf("plan: %d %s", got.status, got.body)
	}
}

// greet is the dialer of the agent's side: the API server sends the host's name.
func (a *agent) greet(_ context.Context, target string) (net.Conn, error) {
	if target != protocol.TargetAPIServer {
		return nil, tunnel.ErrForbidden
	}
	near, far := net.Pipe()
	if a.silent.Load() {
		go func() { _, _ = io.Copy(io.Discard, far) }()
		return near, nil
	}
	go func() {
		_, _ = io.WriteString(far, a.name)
		_ = far.Close()
	}()
	return near, nil
}

// reached returns what a dial through the host's tunnel reaches.
func (a *agent) reached() (string, error) {
	conn, err := a.h.server.Dial(context.WithoutCancel(a.h.tb.Context()), a.hostKey(), protocol.TargetAPIServer)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	greeting, err := io.ReadAll(conn)
	return string(greeting), err
}

// revisionOf returns the revision of the plan of a boot.
func (a *agent) revisionOf(boot string) string {
	a.h.tb.Helper()
	var p protocol.Plan
	a.h.must(json.Unmarshal([]byte(a.planOf(boot).body), &p))
	return p.Revision
}

// audited returns the line of the audit log with a decision about a host, or a blank string.
func (h *harness) audited(decision, host string) string {
	for line := range strings.Lines(h.logs.text()) {
		if strings.Contains(line, `"decision":"`+decision+`"`) && strings.Contains(line, `"name":"`+host+`"`) {
			return line
		}
	}
	return ""
}

// expectEnd waits until the tunnel has ended on both sides, although no time passes.
func (a *agent) expectEnd(ended <-chan error) {
	a.h.tb.Helper()
	g := NewWithT(a.h.tb)
	g.Eventually(ended, eventually).Should(Receive(MatchError(tunnel.ErrClosed)))
	// The agent may see the end before the manager's table does.
	g.Eventually(func() error {
		_, err := a.reached()
		return err
	}, eventually, often).Should(MatchError(tunnel.ErrAbsent))
	g.Expect(a.h.server.Streams(a.hostKey())).To(BeZero())
}

func TestDialThroughATunnel(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	a, b := h.tunnelMember(token, "m1", infrav1.RoleControlPlane), h.tunnelMember(token, "m2", infrav1.RoleControlPlane)
	_, err := a.reached()
	g.Expect(err).To(MatchError(tunnel.ErrAbsent))
	ofA, ofB := a.openTunnel("boot-1"), b.openTunnel("boot-1")
	g.Expect(a.reached()).To(Equal(a.name))
	g.Expect(b.reached()).To(Equal(b.name))
	g.Expect(h.metric("elemental_tunnels_connected")).To(Equal(2.0))

	_, err = h.server.Dial(t.Context(), a.hostKey(), "etcd")
	g.Expect(err).To(MatchError(tunnel.ErrForbidden))
	_, err = h.server.Dial(t.Context(), a.hostKey(), "10.0.0.1:22")
	g.Expect(err).To(MatchError(tunnel.ErrForbidden))

	// A newer tunnel of the same boot replaces the former one.
	again := a.openTunnel("boot-1")
	g.Eventually(ofA, eventually).Should(Receive(MatchError(tunnel.ErrClosed)))
	g.Expect(a.reached()).To(Equal(a.name))

	h.stop()
	g.Eventually(ofB, eventually).Should(Receive(MatchError(tunnel.ErrClosed)), "a manager that ends closes tunnels")
	g.Eventually(again, eventually).Should(Receive(MatchError(tunnel.ErrClosed)))
}

func TestTunnelsThatAreRefused(t *testing.T) {
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	h.infraCluster("d", "other")
	// About to open a tunnel, so that no worker has to, whichever case is first.
	h.tunnelMember(token, "m-control-plane", infrav1.RoleControlPlane)
	change := func(f func(*infrav1.ElementalHost)) func(*agent) {
		return func(a *agent) { h.cachedSoon(h.patch(a.name, f)) }
	}
	for name, test := range map[string]struct {
		role   infrav1.ClaimRole
		change func(*agent)
		// request, if it is another than that of boot-1.
		request string
		status  int
		kind    string
	}{
		"pending":             {change: change(func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalPending }), status: http.StatusForbidden},
		"rejected":            {change: change(func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalRejected }), status: http.StatusForbidden, kind: protocol.ProblemRevoked},
		"fenced":              {change: change(func(host *infrav1.ElementalHost) { host.Spec.Fence = &infrav1.HostFence{Reason: "dead"} }), status: http.StatusForbidden},
		"locked":              {change: change(func(host *infrav1.ElementalHost) { host.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} }), status: http.StatusForbidden, kind: protocol.ProblemLocked},
		"free":                {change: change(func(host *infrav1.ElementalHost) { host.Spec.Claim = nil }), status: http.StatusForbidden},
		"releasing":           {change: change(releasing), status: http.StatusForbidden},
		"another cluster":     {change: change(func(host *infrav1.ElementalHost) { host.Spec.Claim.ClusterName = "d" }), status: http.StatusForbidden},
		"a new claim":         {change: change(func(host *infrav1.ElementalHost) { host.Spec.Claim.ID = "claim-x" }), status: http.StatusForbidden},
		"worker":              {role: infrav1.RoleWorker, status: http.StatusForbidden},
		"unknown key":         {change: func(a *agent) { a.http = h.agent().http }, status: http.StatusUnauthorized, kind: protocol.ProblemUnknownHost},
		"another boot":        {request: upgradeOf("boot-2"), status: http.StatusConflict},
		"no boot":             {request: upgradeOf(""), status: http.StatusBadRequest},
		"long boot":           {request: upgradeOf(strings.Repeat("b", 129)), status: http.StatusBadRequest},
		"no upgrade":          {request: "GET /v1/tunnel?boot=boot-1 HTTP/1.1\r\nHost: m\r\n\r\n", status: http.StatusUpgradeRequired},
		"another protocol":    {request: strings.Replace(upgradeOf("boot-1"), protocol.TunnelProtocol, "websocket", 1), status: http.StatusUpgradeRequired},
		"upgrade is no token": {request: strings.Replace(upgradeOf("boot-1"), "Connection: Upgrade", "Connection: keep-alive", 1), status: http.StatusUpgradeRequired},
		"a body":              {request: strings.Replace(upgradeOf("boot-1"), "\r\n\r\n", "\r\nContent-Length: 3\r\n\r\nabc", 1), status: http.StatusBadRequest},
		"another method":      {request: strings.Replace(upgradeOf("boot-1"), "GET", "POST", 1), status: http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			role, request := infrav1.RoleControlPlane, upgradeOf("boot-1")
			if test.role != "" {
				role = test.role
			}
			if test.request != "" {
				request = test.request
			}
			a := h.tunnelMember(token, "m-"+strings.ReplaceAll(name, " ", "-"), role)
			host := a.hostKey()
			if test.change != nil {
				test.change(a)
			}
			_, got := a.asks(request)
			g.Expect(got.status).To(Equal(test.status), got.body)
			g.Expect(got.header.Get("Content-Type")).To(Equal("application/problem+json"))
			if test.kind != "" {
				g.Expect(got.problem().Type).To(Equal(test.kind))
			}
			if test.status == http.StatusUpgradeRequired {
				g.Expect(got.header.Get("Upgrade")).To(Equal(protocol.TunnelProtocol))
			}
			_, err := h.server.Dial(t.Context(), host, protocol.TargetAPIServer)
			g.Expect(err).To(MatchError(tunnel.ErrAbsent))
		})
	}
	t.Run("by HTTP/2", func(t *testing.T) {
		g := NewWithT(t)
		a := h.tunnelMember(token, "m-http2", infrav1.RoleControlPlane)
		got := a.call(http.MethodGet, protocol.PathTunnel+"?boot=boot-1", nil)
		g.Expect(got.status).To(Equal(http.StatusUpgradeRequired))
		g.Expect(got.problem().Title).To(ContainSubstring("HTTP/1.1"))
	})
	t.Run("no boot has polled", func(t *testing.T) {
		g := NewWithT(t)
		a := h.tunnelMember(token, "m-silent", infrav1.RoleControlPlane)
		next := startIn(t, h.namespace, h.clock)
		a.h = next
		a.http.CloseIdleConnections()
		a.http.Transport.(*http.Transport).TLSClientConfig.RootCAs = next.roots
		_, got := a.asks(upgradeOf("boot-1"))
		g.Expect(got.status).To(Equal(http.StatusServiceUnavailable))
		g.Expect(got.header.Get("Retry-After")).NotTo(BeEmpty())
		g.Expect(a.planOf("boot-1").status).To(Equal(http.StatusOK))
		a.openTunnel("boot-1")
	})
}
