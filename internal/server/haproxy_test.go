package server_test

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// requireHAProxy is the environment variable that makes tests fail without haproxy, as make ci
// does.
const requireHAProxy = "REQUIRE_HAPROXY"

// TestDocumentedHAProxy runs HAProxy with the configuration of the documentation, in front of a
// manager and two nodes on which none runs: hosts enrol through it, and the manager sees their
// addresses.
func TestDocumentedHAProxy(t *testing.T) {
	program, err := exec.LookPath("haproxy")
	if err != nil && os.Getenv(requireHAProxy) != "" {
		t.Fatal("there is no haproxy: install Debian's package haproxy")
	}
	if err != nil {
		t.Skip("NOT RUN: there is no haproxy: install Debian's package haproxy")
	}
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	frontend := startHAProxy(t, program, strings.TrimPrefix(h.url, "https://"))
	h.registration("edge")
	token, _ := h.token("edge")

	const host = "127.0.0.7"
	a := h.agent()
	transport, ok := a.http.Transport.(*http.Transport)
	g.Expect(ok).To(BeTrue())
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, frontend)
	}
	g.Expect(a.enrol(token).status).To(Equal(http.StatusOK))
	var enrolled string
	for line := range strings.Lines(h.logs.text()) {
		if strings.Contains(line, `"decision":"Enrolled"`) {
			enrolled = line
		}
	}
	g.Expect(enrolled).To(ContainSubstring(`"source":"` + host + ":"))
}

// startHAProxy runs HAProxy with the documented configuration. Its first node is the manager; no
// node listens at the addresses of the others. It returns the address of the frontend.
func startHAProxy(t *testing.T, program, manager string) (frontend string) {
	t.Helper()
	g := NewWithT(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "agent-api.md"))
	g.Expect(err).NotTo(HaveOccurred())
	found := regexp.MustCompile("(?s)\n```haproxy\n(.*?)\n```").FindStringSubmatch(string(page))
	g.Expect(found).NotTo(BeEmpty(), "docs/agent-api.md has no configuration of HAProxy")
	frontend = unusedAddress(t)
	config := found[1] + "\n"
	for from, to := range map[string]string{
		"bind :443\n": "bind " + frontend + "\n", "192.0.2.11:30443": manager, "192.0.2.12:30443": unusedAddress(t), "192.0.2.13:30443": unusedAddress(t),
	} {
		g.Expect(config).To(ContainSubstring(from))
		config = strings.ReplaceAll(config, from, to)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	g.Expect(os.WriteFile(file, []byte(config), 0o600)).To(Succeed())
	var log strings.Builder
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "-db", "-f", file)
	cmd.Stdout, cmd.Stderr = &log, &log
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("HAProxy said:\n%s", log.String())
		}
	})
	g.Eventually(func() error {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", frontend)
		if err != nil {
			return err
		}
		return conn.Close()
	}, eventually, often).Should(Succeed())
	return frontend
}

// unusedAddress returns an address of the loopback that nobody listens at.
func unusedAddress(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	address := listener.Addr().String()
	g.Expect(listener.Close()).To(Succeed())
	return address
}
