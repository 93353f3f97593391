package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/review"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/leaks"
)

const patience = time.Minute

// rig is a proxy with one workload cluster, shop/c1, and users who authenticate with their name
// as a token.
type rig struct {
	*WithT
	front, child *httptest.Server
	clock        *clocktesting.FakeClock
	proxy        *Proxy

	mu sync.Mutex
	// users are known by their tokens. allowed may access clusters. broken: the management
	// cluster can't be asked.
	users   map[string]user.DefaultInfo
	allowed map[string]bool
	broken  bool
	// judged counts judgements of callers who were not refused.
	judged int
	// isGone: nothing accepts connections to the child's API server.
	isGone bool
	// connectError is what Clusters returns.
	connectError error
	// received are the requests that the child's API server got.
	received []*http.Request
	lines    []string
}

func newRig(t *testing.T, child http.HandlerFunc) *rig {
	t.Helper()
	t.Cleanup(func() { leaks.Check(t) })
	r := &rig{
		WithT: NewWithT(t), clock: clocktesting.NewFakeClock(time.Now()),
		users: map[string]user.DefaultInfo{
			"ann": {Name: "ann", Groups: []string{"ops", "system:authenticated"}},
			"eve": {Name: "eve"},
			"bot": {Name: "system:serviceaccount:ci:bot"},
			"sys": {Name: "system:admin", Groups: []string{"system:masters"}},
		},
		allowed: map[string]bool{"ann": true, "system:serviceaccount:ci:bot": true, "system:admin": true},
	}
	r.child = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		r.received = append(r.received, request.Clone(context.WithoutCancel(request.Context())))
		r.mu.Unlock()
		child(w, request)
	}))
	r.child.EnableHTTP2 = true
	r.child.StartTLS()
	t.Cleanup(r.child.Close)
	proxy, err := New(Options{
		Authenticator: authenticator.RequestFunc(r.authenticate), Authorizer: authorizer.AuthorizerFunc(r.authorize),
		Clusters: r, Clock: r.clock, Metrics: prometheus.NewRegistry(),
		Audit: funcr.New(func(_, line string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.lines = append(r.lines, line)
		}, funcr.Options{}),
	})
	r.Expect(err).NotTo(HaveOccurred())
	r.proxy = proxy
	r.front = httptest.NewUnstartedServer(proxy)
	r.front.EnableHTTP2 = true
	r.front.StartTLS()
	t.Cleanup(r.front.Close)
	return r
}

func (r *rig) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *rig) authenticate(request *http.Request) (*authenticator.Response, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		r.judged++
		return nil, false, review.ErrUnavailable
	}
	token := strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")
	request.Header.Del("Authorization") // as real authenticators do
	info, ok := r.users[token]
	return &authenticator.Response{User: &info}, ok, nil
}

func (r *rig) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what := fmt.Sprint(a.GetVerb(), " ", a.GetAPIGroup(), " ", a.GetResource(), "/", a.GetSubresource(), " ", a.GetNamespace(), "/", a.GetName())
	if r.allowed[a.GetUser().GetName()] && what == "create cluster.x-k8s.io clusters/proxy shop/c1" {
		r.judged++
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// Connect implements Clusters.
func (r *rig) Connect(_ context.Context, cluster types.NamespacedName, as Identity) (Connection, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connectError != nil {
		return Connection{}, r.connectError
	}
	if cluster.String() != "shop/c1" || as.User == "" {
		return Connection{}, ErrNoCluster
	}
	return Connection{Requests: r.transport(true), Upgrades: r.transport(false), Host: "kubernetes.default.svc", Token: "token-of-the-proxy"}, nil
}

// transport connects to the child, whatever the address is.
func (r *rig) transport(http2 bool) *http.Transport {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	roots := r.child.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	return &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			r.mu.Lock()
			isGone := r.isGone
			r.mu.Unlock()
			if isGone {
				return nil, errors.New("nothing listens")
			}
			return (&net.Dialer{}).DialContext(ctx, network, r.child.Listener.Addr().String())
		},
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS13}, // httptest's name
		DisableKeepAlives: true,
		Protocols:         protocols,
	}
}

// answer is an answer whose body was read.
type answer struct {
	code   int
	header http.Header
	body   string
}

// request sends a request as a user.
func (r *rig) request(method, path, token string, header ...string) answer {
	request, err := http.NewRequestWithContext(context.Background(), method, r.front.URL+path, http.NoBody)
	r.Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header[header[i]] = append(request.Header[header[i]], header[i+1])
	}
	response, err := r.front.Client().Do(request)
	r.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	r.Expect(err).NotTo(HaveOccurred())
	return answer{response.StatusCode, response.Header, string(body)}
}

// last returns the last request that the child got.
func (r *rig) last() *http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Expect(r.received).NotTo(BeEmpty())
	return r.received[len(r.received)-1]
}

// echo upgrades to a protocol that sends lines back.
func echo(w http.ResponseWriter, request *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", request.Header.Get("Upgrade"))
	lines := bufio.NewScanner(buffered)
	for lines.Scan() {
		_, _ = fmt.Fprintln(conn, "echo", lines.Text())
	}
}
