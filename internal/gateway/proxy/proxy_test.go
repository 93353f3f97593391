package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
)

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

// The workload cluster's API server sees the proxy, which impersonates the caller, and nothing
// of the caller's credentials.
func TestForwardsAsTheCaller(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Location", "/api/v1/next?a=b")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "made")
	})
	got := r.request(http.MethodPost, "/clusters/shop/c1/api/v1/pods?dryRun=All", "ann",
		"Content-Type", "application/json", "Cookie", "session=1", "X-Remote-User", "root", "X-Remote-Group", "system:masters",
		"X-Forwarded-For", "192.0.2.1", "Forwarded", "for=192.0.2.1", "Proxy-Authorization", "Basic x", "Audit-Id", "mine", "User-Agent", "kubectl")
	r.Expect(got.code).To(Equal(http.StatusCreated))
	r.Expect(got.body).To(Equal("made"))
	r.Expect(got.header).NotTo(HaveKey("Set-Cookie"))
	r.Expect(got.header.Get("Location")).To(Equal("/clusters/shop/c1/api/v1/next?a=b"))

	sent := r.last()
	r.Expect(sent.URL.String()).To(Equal("/api/v1/pods?dryRun=All"))
	r.Expect(sent.Host).To(Equal("kubernetes.default.svc"))
	id := sent.Header.Get(auditIDHeader)
	r.Expect(id).NotTo(Or(BeEmpty(), Equal("mine")))
	r.Expect(got.header.Get(auditIDHeader)).To(Equal(id))
	header := sent.Header.Clone()
	for _, name := range []string{auditIDHeader, "Content-Length"} {
		header.Del(name)
	}
	r.Expect(header).To(Equal(http.Header{
		"Authorization": {"Bearer token-of-the-proxy"}, "Impersonate-User": {"ann"}, "Impersonate-Group": {"ops"},
		"Content-Type": {"application/json"}, "User-Agent": {"kubectl"}, "Accept-Encoding": {"gzip"},
	}))
	r.Eventually(func() []string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.lines
	}, patience).Should(ConsistOf(And(ContainSubstring(`"user"="ann"`), ContainSubstring(`"cluster"="shop/c1"`),
		ContainSubstring(`"path"="/api/v1/pods"`), ContainSubstring(`"code"=201`), ContainSubstring(id))))
}

func TestRefusals(t *testing.T) {
	r := newRig(t, ok)
	for name, test := range map[string]struct {
		path, token string
		header      []string
		code        int
		message     string
	}{
		"no credentials":               {"/clusters/shop/c1/api", "", nil, 401, "the gateway takes the credentials"},
		"unknown credentials":          {"/clusters/shop/c1/api", "who", nil, 401, ""},
		"unknown path, no credentials": {"/metrics", "", nil, 401, ""},
		"unknown path":                 {"/metrics", "ann", nil, 400, "the path must be"},
		"path out of the cluster":      {"/clusters/shop/c1/%2e%2e/c2/api", "ann", nil, 400, "empty segment"},
		"no right to the cluster":      {"/clusters/shop/c1/api", "eve", nil, 403, "may not create clusters/proxy"},
		"another cluster":              {"/clusters/shop/c2/api", "ann", nil, 403, "may not create clusters/proxy"},
		"administrator":                {"/clusters/shop/c1/api", "sys", nil, 403, "one of the management cluster's own"},
		"another user":                 {"/clusters/shop/c1/api", "ann", []string{"Impersonate-User", "root"}, 403, "can't impersonate"},
		"another user, in lower case":  {"/clusters/shop/c1/api", "ann", []string{"impersonate-user", "root"}, 403, "can't impersonate"},
		"another user, extra":          {"/clusters/shop/c1/api", "ann", []string{"Impersonate-Extra-Scopes", "x"}, 403, "can't impersonate"},
		"another UID":                  {"/clusters/shop/c1/api", "ann", []string{"Impersonate-Uid", "1"}, 403, "can't impersonate"},
	} {
		t.Run(name, func(t *testing.T) {
			got := r.request(http.MethodGet, test.path, test.token, test.header...)
			g := NewWithT(t)
			g.Expect(got.code).To(Equal(test.code), got.body)
			g.Expect(got.header.Get("Content-Type")).To(Equal("application/json"))
			g.Expect(got.body).To(And(ContainSubstring(`"kind":"Status"`), ContainSubstring(test.message)))
		})
	}
	r.Expect(r.received).To(BeEmpty())
	r.Expect(testutil.ToFloat64(r.proxy.metrics.requests.WithLabelValues("4xx"))).To(BeEquivalentTo(12))
}

// Headers that a client of HTTP/1.1 can hide from the proxy of a careless author.
func TestHiddenHeadersOverHTTP1(t *testing.T) {
	r := newRig(t, ok)
	for name, header := range map[string]string{
		"named by Connection":          "Connection: Impersonate-User, keep-alive",
		"odd case":                     "iMpErSoNaTe-uSeR: root",
		"repeated":                     "Impersonate-Group: a\r\nImpersonate-Group: system:masters",
		"announced as trailer":         "Trailer: Impersonate-User\r\nTransfer-Encoding: chunked",
		"announced among other things": "Trailer: Expires , impersonate-group\r\nTransfer-Encoding: chunked",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(r.raw(t, "GET /clusters/shop/c1/api HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer ann\r\n"+header+"\r\n\r\n")).
				To(HavePrefix("HTTP/1.1 40"))
		})
	}
	// A trailer that was not announced is dropped.
	g := NewWithT(t)
	g.Expect(r.raw(t, "POST /clusters/shop/c1/api HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer ann\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"1\r\nx\r\n0\r\nImpersonate-User: root\r\n\r\n")).To(HavePrefix("HTTP/1.1 200"))
	g.Expect(r.last().Header.Values("Impersonate-User")).To(Equal([]string{"ann"}))
	g.Expect(r.last().Trailer).To(BeEmpty())
}

// raw sends bytes and returns the first line of the answer.
func (r *rig) raw(t *testing.T, request string) string {
	t.Helper()
	conn := r.connect(t)
	_, err := io.WriteString(conn, request)
	r.Expect(err).NotTo(HaveOccurred())
	line, err := bufio.NewReader(conn).ReadString('\n')
	r.Expect(err).NotTo(HaveOccurred())
	return line
}

// connect opens a connection to the proxy for HTTP/1.1.
func (r *rig) connect(t *testing.T) *tls.Conn {
	t.Helper()
	config := r.front.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", r.front.Listener.Addr().String(), config)
	r.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestServiceAccountsHaveNamesOfTheirOwn(t *testing.T) {
	r := newRig(t, ok)
	r.Expect(r.request(http.MethodGet, "/clusters/shop/c1/api", "bot").code).To(Equal(http.StatusOK))
	r.Expect(r.last().Header.Values("Impersonate-User")).To(Equal([]string{"management:system:serviceaccount:ci:bot"}))
	r.Expect(r.last().Header).NotTo(HaveKey("Impersonate-Group"))
}

func TestErrorsOfClusters(t *testing.T) {
	r := newRig(t, ok)
	for _, test := range []struct {
		err  error
		code int
	}{{fmt.Errorf("finding: %w", ErrNoCluster), 404}, {fmt.Errorf("dialing: %w", ErrUnreachable), 503}, {errors.New("secret detail"), 500}} {
		r.change(func() { r.connectError = test.err })
		got := r.request(http.MethodGet, "/clusters/shop/c1/api", "ann")
		r.Expect(got.code).To(Equal(test.code), got.body)
	}
	r.change(func() { r.connectError, r.isGone = nil, true })
	got := r.request(http.MethodGet, "/clusters/shop/c1/api", "ann")
	r.Expect(got.code).To(Equal(http.StatusServiceUnavailable), got.body)
}

// An exec or port-forward is an upgraded connection.
func TestUpgrades(t *testing.T) {
	r := newRig(t, echo)
	reader, conn := r.upgrade(t, "ann")
	_, err := fmt.Fprintln(conn, "one")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(reader.ReadString('\n')).To(Equal("echo one\n"))
	got := r.last().Header
	r.Expect(got.Values("Sec-Websocket-Protocol")).To(Equal([]string{"v5.channel.k8s.io"}), "without the caller's token")
	r.Expect(got.Get("Impersonate-User")).To(Equal("ann"))
	r.Expect(conn.Close()).To(Succeed())
	r.Eventually(func() []string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.lines
	}, patience).Should(ConsistOf(ContainSubstring(`"code"=101`)))
}

// upgrade opens a session.
func (r *rig) upgrade(t *testing.T, token string) (*bufio.Reader, *tls.Conn) {
	t.Helper()
	conn := r.connect(t)
	_, err := io.WriteString(conn, "GET /clusters/shop/c1/exec HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer "+token+
		"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0\r\n\r\n")
	r.Expect(err).NotTo(HaveOccurred())
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	r.Expect(err).NotTo(HaveOccurred())
	_ = response.Body.Close()
	r.Expect(response.StatusCode).To(Equal(http.StatusSwitchingProtocols))
	return reader, conn
}

// Whoever loses the right, or the account, loses open sessions and watches too. A management
// cluster that does not answer ends nothing.
func TestOpenRequestsAreJudgedAnew(t *testing.T) {
	for name, take := range map[string]func(*rig){
		"right":   func(r *rig) { r.allowed["ann"] = false },
		"account": func(r *rig) { delete(r.users, "ann") },
		"groups":  func(r *rig) { u := r.users["ann"]; u.Groups = []string{"guests"}; r.users["ann"] = u },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, echo)
			reader, conn := r.upgrade(t, "ann")
			r.change(func() { r.broken = true })
			r.pass()
			r.change(func() { r.broken = false })
			r.pass()
			_, err := fmt.Fprintln(conn, "still here")
			r.Expect(err).NotTo(HaveOccurred())
			r.Expect(reader.ReadString('\n')).To(Equal("echo still here\n"))
			r.change(func() { take(r) })
			r.tick()
			_, err = reader.ReadString('\n')
			r.Expect(err).To(HaveOccurred())
			r.Expect(testutil.ToFloat64(r.proxy.metrics.ended)).To(BeEquivalentTo(1))
		})
	}
}

// tick lets the time pass in which the open request is judged once.
func (r *rig) tick() {
	r.Eventually(r.clock.HasWaiters, patience).Should(BeTrue())
	r.clock.Step(judgeInterval)
}

// pass is tick for a caller who keeps the request, and waits until that is decided.
func (r *rig) pass() {
	judged := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.judged
	}
	before := judged()
	r.tick()
	r.Eventually(judged, patience).Should(BeNumerically(">", before))
}

// A watch arrives piece by piece, and ends with its caller.
func TestWatch(t *testing.T) {
	next, ended := make(chan string), make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		defer close(ended)
		for {
			select {
			case event := <-next:
				_, _ = fmt.Fprintln(w, event)
				_ = http.NewResponseController(w).Flush()
			case <-request.Context().Done():
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.front.URL+"/clusters/shop/c1/api/v1/pods?watch=true", http.NoBody)
	r.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer ann")
	go func() { next <- "one" }()
	response, err := r.front.Client().Do(request)
	r.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReader(response.Body)
	r.Expect(lines.ReadString('\n')).To(Equal("one\n"))
	next <- "two"
	r.Expect(lines.ReadString('\n')).To(Equal("two\n"))
	cancel()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the watch goes on")
	}
}

func TestThreat14_OpenRequestsAreCounted(t *testing.T) {
	open := newOpenRequests()
	cluster := types.NamespacedName{Namespace: "shop", Name: "c1"}
	g := NewWithT(t)
	for i := range maxOfCluster {
		g.Expect(open.begin(fmt.Sprint("user-", i%(maxOfCluster/maxOfUser)), cluster)).To(BeTrue(), "%d", i)
	}
	g.Expect(open.begin("user-x", cluster)).To(BeFalse(), "the cluster has too many")
	other := types.NamespacedName{Namespace: "shop", Name: "c2"}
	g.Expect(open.begin("user-0", other)).To(BeFalse(), "the user has too many")
	open.end("user-0", cluster)
	g.Expect(open.begin("user-0", other)).To(BeTrue())
	open.end("user-0", other)
	for i := range maxOfCluster - 1 {
		open.end(fmt.Sprint("user-", (i+1)%(maxOfCluster/maxOfUser)), cluster)
	}
	g.Expect(open.ofUser).To(BeEmpty())
	g.Expect(open.ofCluster).To(BeEmpty())
}
