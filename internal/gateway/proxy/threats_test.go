package proxy

import (
	"io"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

func TestThreat19_ImpersonationIsRefused(t *testing.T) {
	r := newRig(t, ok)
	for _, name := range []string{"Impersonate-User", "impersonate-group", "IMPERSONATE-UID", "Impersonate-Extra-Scopes"} {
		got := r.request(http.MethodGet, "/clusters/shop/c1/api", "ann", name, "root")
		r.Expect(got.code).To(Equal(http.StatusForbidden), name)
	}
	for _, header := range []string{
		"Connection: Impersonate-User", "impersonate-user: root", "Trailer: Impersonate-User\r\nTransfer-Encoding: chunked",
		"Impersonate-Group: ops\r\nImpersonate-Group: system:masters",
	} {
		answer := r.raw(t, "GET /clusters/shop/c1/api HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer ann\r\n"+header+"\r\n\r\n")
		r.Expect(answer).To(MatchRegexp("HTTP/1.1 40[03]"), header)
	}
	r.Expect(r.received).To(BeEmpty())
}

// Whatever an API server may understand one day, only what is listed gets there.
func TestThreat19_HeadersAreBuiltAnew(t *testing.T) {
	r := newRig(t, ok)
	got := r.request(http.MethodGet, "/clusters/shop/c1/api", "ann", "X-Remote-User", "root", "X-Remote-Group", "system:masters",
		"X-Forwarded-For", "192.0.2.1", "Act-As", "root", "Accept", "application/json")
	r.Expect(got.code).To(Equal(http.StatusOK))
	header := r.last().Header
	r.Expect(header).To(HaveKeyWithValue("Accept", []string{"application/json"}))
	r.Expect(header).To(HaveKeyWithValue("Impersonate-User", []string{"ann"}))
	for _, name := range []string{"X-Remote-User", "X-Remote-Group", "X-Forwarded-For", "Act-As"} {
		r.Expect(header).NotTo(HaveKey(name))
	}
}

func TestThreat19_AmbiguousPathsAreRefused(t *testing.T) {
	r := newRig(t, ok)
	for _, path := range []string{"/clusters/shop/c1/%2e%2e/c2/api", "/clusters/shop/c1/api/%2E/v1", "/clusters/shop/c1//api", "/clusters/shop/c1/a%2F..%2Fb"} {
		r.Expect(r.request(http.MethodGet, path, "ann").code).To(Equal(http.StatusBadRequest), path)
	}
	r.Expect(r.received).To(BeEmpty())
}

func TestThreat21_CredentialsStayBehind(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "of-the-child", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
		_, _ = io.WriteString(w, "done")
	})
	got := r.request(http.MethodGet, "/clusters/shop/c1/api", "ann", "Cookie", "session=secret", "Proxy-Authorization", "Basic c2VjcmV0")
	r.Expect(got.code).To(Equal(http.StatusOK))
	r.Expect(got.header).NotTo(HaveKey("Set-Cookie"))
	header := r.last().Header
	r.Expect(header["Authorization"]).To(Equal([]string{"Bearer token-of-the-proxy"}))
	r.Expect(header).NotTo(Or(HaveKey("Cookie"), HaveKey("Proxy-Authorization")))
}

func TestThreat21_TokensInProtocolsStayBehind(t *testing.T) {
	r := newRig(t, ok)
	got := r.request(http.MethodGet, "/clusters/shop/c1/api", "ann", "Sec-Websocket-Protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.YW5u")
	r.Expect(got.code).To(Equal(http.StatusOK))
	r.Expect(r.last().Header["Sec-Websocket-Protocol"]).To(Equal([]string{"v5.channel.k8s.io"}))
}

func TestThreat22_OpenRequestsAreJudgedAnew(t *testing.T) {
	r := newRig(t, echo)
	reader, _ := r.upgrade(t, "ann")
	r.change(func() { r.allowed["ann"] = false })
	r.tick()
	_, err := reader.ReadString('\n')
	r.Expect(err).To(HaveOccurred())
}

func TestThreat14_OpenRequestsAreBounded(t *testing.T) {
	r := newRig(t, ok)
	cluster := types.NamespacedName{Namespace: "shop", Name: "c1"}
	for range maxOfUser {
		r.Expect(r.proxy.open.begin("ann", cluster)).To(BeTrue())
	}
	got := r.request(http.MethodGet, "/clusters/shop/c1/api", "ann")
	r.Expect(got.code).To(Equal(http.StatusTooManyRequests), got.body)
	r.Expect(got.header.Get("Retry-After")).To(Equal("1"))
	r.Expect(got.body).To(ContainSubstring("too many open requests"))
}

func TestThreat32_NothingSecretIsLogged(t *testing.T) {
	r := newRig(t, ok)
	got := r.request(http.MethodGet, "/clusters/shop/c1/api/v1/nodes?token=secret-in-query", "ann", "Cookie", "secret-in-header")
	r.Expect(got.code).To(Equal(http.StatusOK))
	var line string
	r.Eventually(func() []string {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.lines) > 0 {
			line = r.lines[0]
		}
		return r.lines
	}, patience).Should(HaveLen(1))
	r.Expect(line).To(And(ContainSubstring(`"path"="/api/v1/nodes"`), Not(ContainSubstring("secret")), Not(ContainSubstring("token-of-the-proxy"))))
}

func TestThreat46_PathsStayEncoded(t *testing.T) {
	r := newRig(t, ok)
	r.Expect(r.request(http.MethodGet, "/clusters/shop/c1/api/v1/a%0Ab%1B%5B2J", "ann").code).To(Equal(http.StatusOK))
	r.Eventually(func() []string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.lines
	}, patience).Should(ConsistOf(ContainSubstring(`"path"="/api/v1/a%0Ab%1B%5B2J"`)))
}
