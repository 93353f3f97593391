package frontend_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/frontend"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/leaks"
)

const patience = time.Minute

func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }

// fixed is a certificate that never changes.
type fixed struct{ tls.Certificate }

func (f fixed) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &f.Certificate, nil }

func (fixed) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// rig is a running Server.
type rig struct {
	*WithT
	t        *testing.T
	address  string
	clock    *clocktesting.FakeClock
	registry *prometheus.Registry
	certs    *httptest.Server
	stop     context.CancelFunc
	ended    chan error
}

func newRig(t *testing.T, handlers map[string]http.Handler, changes ...func(*frontend.Options)) *rig {
	t.Helper()
	r := &rig{
		WithT: NewWithT(t), t: t, clock: clocktesting.NewFakeClock(time.Now()), registry: prometheus.NewRegistry(),
		certs: httptest.NewTLSServer(http.NotFoundHandler()), ended: make(chan error, 1),
	}
	t.Cleanup(r.certs.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	r.Expect(err).NotTo(HaveOccurred())
	r.address = listener.Addr().String()
	o := frontend.Options{Handlers: handlers, Certificate: fixed{r.certs.TLS.Certificates[0]}, Metrics: r.registry, Clock: r.clock, Listener: listener}
	for _, change := range changes {
		change(&o)
	}
	server, err := frontend.New(o)
	r.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-r.ended:
			r.Expect(err).NotTo(HaveOccurred())
		case <-time.After(patience):
			t.Error("the server does not end")
		}
	})
	return r
}

// roots has the CA of the server's certificate, which is for example.com and 127.0.0.1.
func (r *rig) roots() *x509.CertPool {
	return r.certs.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
}

// client returns a client of one connection, which the end of the test closes.
func (r *rig) client(http2 bool) *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	transport := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{RootCAs: r.roots(), MinVersion: tls.VersionTLS12}}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (r *rig) get(c *http.Client, path string) (int, string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+r.address+path, http.NoBody)
	r.Expect(err).NotTo(HaveOccurred())
	response, err := c.Do(request)
	r.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	r.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, response.Proto + " " + string(body)
}

func echo(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s", name, r.URL.EscapedPath())
	})
}

// Handlers get paths as the caller wrote them, so that they can refuse tricks.
func TestHandlers(t *testing.T) {
	r := newRig(t, map[string]http.Handler{"/clusters/": echo("clusters"), "/kubeconfigs/": echo("kubeconfigs")})
	for proto, c := range map[string]*http.Client{"HTTP/1.1": r.client(false), "HTTP/2.0": r.client(true)} {
		for path, want := range map[string]string{
			"/clusters/a/b/api":         "clusters /clusters/a/b/api",
			"/clusters/a/../b//c%2e%2e": "clusters /clusters/a/../b//c%2e%2e",
			"/kubeconfigs/a/b":          "kubeconfigs /kubeconfigs/a/b",
		} {
			code, body := r.get(c, path)
			r.Expect(code).To(Equal(http.StatusOK))
			r.Expect(body).To(Equal(proto + " " + want))
		}
		for _, path := range []string{"/", "/clusters", "//clusters/a/b", "/%63lusters/a/b", "/api", "/x/../clusters/a/b"} {
			code, body := r.get(c, path)
			r.Expect(code).To(Equal(http.StatusNotFound), path)
			r.Expect(body).To(And(ContainSubstring(`"kind":"Status"`), ContainSubstring("/clusters/ and /kubeconfigs/")))
		}
	}
}

// The server does not read a header that is too long to its end, and the reset of a TCP
// connection might overtake its answer: so the connection is in memory.
func TestHeadersAreBounded(t *testing.T) {
	near, far := net.Pipe()
	r := newRig(t, map[string]http.Handler{"/": echo("x")}, func(o *frontend.Options) {
		_ = o.Listener.Close()
		o.Listener = &single{conn: far, closed: make(chan struct{})}
	})
	conn := tls.Client(near, &tls.Config{RootCAs: r.roots(), ServerName: "example.com", MinVersion: tls.VersionTLS12})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 100<<10)+"\r\n\r\n")
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	r.Expect(err).NotTo(HaveOccurred())
	_ = response.Body.Close()
	r.Expect(response.StatusCode).To(Equal(http.StatusRequestHeaderFieldsTooLarge))
	_ = conn.Close()
	<-sent
}

// single is a listener that accepts one connection.
type single struct {
	conn   net.Conn
	once   sync.Once
	closed chan struct{}
}

func (s *single) Accept() (net.Conn, error) {
	if conn := s.conn; conn != nil {
		s.conn = nil
		return conn, nil
	}
	<-s.closed
	return nil, net.ErrClosed
}

func (s *single) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (*single) Addr() net.Addr { return &net.TCPAddr{} }

// Connections beyond the limit of their source are closed at once. A closed one makes room.
func TestConnectionsAreBounded(t *testing.T) {
	r := newRig(t, map[string]http.Handler{"/": echo("x")}, func(o *frontend.Options) { o.MaxConnections = 4 })
	var open []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", r.address)
		r.Expect(err).NotTo(HaveOccurred())
		open = append(open, conn)
	}
	connections := func() int {
		n, err := testutil.GatherAndCount(r.registry, "elemental_gateway_frontend_connections")
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(n).To(Equal(1))
		families, err := r.registry.Gather()
		r.Expect(err).NotTo(HaveOccurred())
		for _, family := range families {
			if family.GetName() == "elemental_gateway_frontend_connections" {
				return int(family.GetMetric()[0].GetGauge().GetValue())
			}
		}
		return -1
	}
	r.Eventually(connections).WithTimeout(patience).Should(Equal(3))
	refused, err := net.Dial("tcp", r.address)
	r.Expect(err).NotTo(HaveOccurred())
	_, err = refused.Read(make([]byte, 1))
	r.Expect(err).To(HaveOccurred())
	r.Expect(refused.Close()).To(Succeed())
	for _, conn := range open {
		r.Expect(conn.Close()).To(Succeed())
	}
	r.Eventually(connections).WithTimeout(patience).Should(BeZero())
	code, _ := r.get(r.client(true), "/")
	r.Expect(code).To(Equal(http.StatusOK))
}

// held is a handler whose requests go on until their context ends. Requests with an upgrade
// hijack their connection.
func held(began, done chan<- string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			}
		} else {
			_ = http.NewResponseController(w).Flush()
		}
		began <- r.URL.Path
		<-r.Context().Done()
		done <- r.URL.Path
	})
}

// A server that stops finishes what it can, then ends watches and sessions.
func TestDrain(t *testing.T) {
	began, done := make(chan string, 2), make(chan string, 2)
	r := newRig(t, map[string]http.Handler{"/": held(began, done)})
	watch, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.address+"/watch", http.NoBody)
	r.Expect(err).NotTo(HaveOccurred())
	watching := r.client(true)
	response, err := watching.Do(watch)
	r.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	session, err := tls.Dial("tcp", r.address, &tls.Config{RootCAs: r.roots(), MinVersion: tls.VersionTLS13})
	r.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = session.Close() }()
	_, err = io.WriteString(session, "GET /session HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	r.Expect(err).NotTo(HaveOccurred())
	answer, err := bufio.NewReader(session).ReadString('\n')
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(answer).To(ContainSubstring("101"))
	r.Expect([]string{<-began, <-began}).To(ConsistOf("/watch", "/session"))

	r.stop()
	r.Eventually(r.clock.HasWaiters).WithTimeout(patience).Should(BeTrue())
	r.Expect(done).To(BeEmpty(), "there is time left")
	r.clock.Step(5 * time.Second)
	r.Expect([]string{<-done, <-done}).To(ConsistOf("/watch", "/session"))
	// The answer ends; whether it was complete depends on its handler.
	_, _ = io.ReadAll(response.Body)
}
