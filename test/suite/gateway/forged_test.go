package gateway

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"

	. "github.com/onsi/gomega"
)

// Whoever asks to be somebody else is refused, and nothing of it reaches the workload cluster.
func (r *rig) testForgedHeaders() {
	roots := x509.NewCertPool()
	r.Expect(roots.AppendCertsFromPEM(r.ca)).To(BeTrue())
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
	path := func(i int) string {
		return fmt.Sprintf("/clusters/%s/%s/api/v1/namespaces/forged-%d", r.namespace, cluster, i)
	}
	number := 0
	for _, header := range []string{
		"Impersonate-User: root", "impersonate-user: root", "IMPERSONATE-USER: root", "Impersonate-Group: system:masters",
		"Impersonate-Uid: 0", "impersonate-extra-scopes: all", "Impersonate-User:",
		"Impersonate-Group: ops\r\nImpersonate-Group: system:masters", "Connection: Impersonate-User\r\nImpersonate-User: root",
		"Connection: impersonate-user", "Trailer: Impersonate-User", "TE: trailers, impersonate-user",
	} {
		number++
		conn, err := tls.Dial("tcp", strings.TrimPrefix(r.url, "https://"), config)
		r.Expect(err).NotTo(HaveOccurred())
		_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n", path(number), annToken, header)
		r.Expect(err).NotTo(HaveOccurred())
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		r.Expect(err).NotTo(HaveOccurred())
		r.expectForged(response, header)
		_ = conn.Close()
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	transport := &http.Transport{Protocols: protocols, TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	send := func(body io.Reader, change func(*http.Request)) *http.Response {
		number++
		request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+path(number), body)
		r.Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Authorization", "Bearer "+annToken)
		change(request)
		response, err := transport.RoundTrip(request)
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(response.ProtoMajor).To(Equal(2))
		return response
	}
	for name, values := range map[string][]string{
		"Impersonate-User": {"root"}, "impersonate-group": {"ops", "system:masters"}, "IMPERSONATE-EXTRA-x": {"y"}, "Te": {"trailers"},
	} {
		response := send(http.NoBody, func(q *http.Request) {
			q.Header[name] = values
			if name == "Te" {
				q.Trailer = http.Header{"Impersonate-User": {"root"}}
				q.Body = io.NopCloser(strings.NewReader("{}"))
				q.ContentLength = -1
			}
		})
		r.expectForged(response, name)
		_ = response.Body.Close()
	}
	// The request that follows is in the audit log, and none of them.
	r.whoami(r.user(annToken))
	r.Eventually(r.childEvents).WithTimeout(patience).Should(ContainElement(HaveField("RequestURI", HaveSuffix("/selfsubjectreviews"))))
	for _, e := range r.childEvents() {
		r.Expect(e.RequestURI).NotTo(ContainSubstring("forged"))
		r.Expect(e.ImpersonatedUser.Username).NotTo(Equal("root"))
	}
}

func (r *rig) expectForged(response *http.Response, what string) {
	r.t.Helper()
	body, err := io.ReadAll(response.Body)
	r.Expect(err).NotTo(HaveOccurred())
	_ = response.Body.Close()
	r.Expect(response.StatusCode).To(Equal(http.StatusForbidden), "%s: %s", what, body)
	r.Expect(string(body)).To(ContainSubstring("can't impersonate"), what)
}
