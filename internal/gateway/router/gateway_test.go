package router_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/endpointname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/passthrough"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/router"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

const patience = time.Minute

// sessions are the tunnels of hosts, by name.
type sessions map[string]*tunnel.Session

func (s sessions) Dial(ctx context.Context, host types.NamespacedName, target string) (net.Conn, error) {
	if session := s[host.Name]; session != nil {
		return session.Dial(ctx, target)
	}
	return nil, tunnel.ErrAbsent
}

func (s sessions) Streams(host types.NamespacedName) int {
	if session := s[host.Name]; session != nil {
		return session.Streams()
	}
	return 0
}

// connect makes a tunnel that leads to an address. It ends with the test.
func connect(t *testing.T, address string) *tunnel.Session {
	t.Helper()
	manager, agent := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = tunnel.Serve(context.WithoutCancel(t.Context()), agent, func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		})
	}()
	session, err := tunnel.NewSession(t.Context(), manager)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close(nil)
		<-served
	})
	return session
}

// listen starts the passthrough for a router, and returns its address.
func listen(t *testing.T, routes *router.Router) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := passthrough.New(passthrough.Options{
		Router: routes, DialErrors: router.DialErrors(), Metrics: prometheus.NewRegistry(), Clock: clock.RealClock{},
		Listener: listener, DrainTimeout: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return listener.Addr().String()
}

// A client that knows nothing but the endpoint's name and the cluster's CA reaches the API
// server behind a tunnel, and another one at once when the first ends.
func TestClientThroughGateway(t *testing.T) {
	r := newRig(t)
	tunnels := sessions{}
	roots := x509.NewCertPool()
	streaming := make(chan string, 10)
	apiServer := func(name string) {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			_, _ = io.WriteString(w, name)
			if request.URL.Path == "/watch" {
				_ = http.NewResponseController(w).Flush()
				<-request.Context().Done()
				streaming <- name
			}
		}))
		server.StartTLS()
		t.Cleanup(server.Close)
		roots.AddCert(server.Certificate())
		tunnels[name] = connect(t, server.Listener.Addr().String())
	}
	first := r.host("a")
	r.host("b")
	apiServer("a")
	apiServer("b")
	// The certificate of httptest is for example.com.
	names := endpointname.Names{ClusterDomain: "cluster.local", EndpointDomain: "example.com"}
	_, infra := clusterObjects()
	change(r, infra, func(c *infrav1.ElementalCluster) { c.Spec.ControlPlaneEndpoint.Host = names.Of("sites", "edge") })
	routes := router.New(router.Options{Cache: r.client, Tunnels: tunnels, Names: names})
	r.Expect(routes.Watch(t.Context(), r.handlers)).To(Succeed())
	address := listen(t, routes)

	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots})
			return err
		}},
	}
	t.Cleanup(transport.CloseIdleConnections)
	get := func(path string) (io.ReadCloser, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+names.Of("sites", "edge")+path, http.NoBody)
		r.Expect(err).NotTo(HaveOccurred())
		response, err := transport.RoundTrip(request)
		r.Expect(err).NotTo(HaveOccurred())
		served := make([]byte, 1)
		_, err = io.ReadFull(response.Body, served)
		r.Expect(err).NotTo(HaveOccurred())
		return response.Body, string(served)
	}
	watch, served := get("/watch")
	r.Expect(served).To(Equal("a"))
	change(r, first, unready)
	_, err := watch.Read(make([]byte, 1))
	r.Expect(err).To(HaveOccurred(), "a client must not wait for an API server that is not ready")
	r.Expect(errors.Is(err, context.Canceled)).To(BeFalse())
	r.Expect(watch.Close()).To(Succeed())
	r.Eventually(streaming).WithTimeout(patience).Should(Receive(Equal("a")), "the API server gets to know")

	watch, served = get("/watch")
	r.Expect(served).To(Equal("b"))
	tunnels["b"].Close(errors.New("test"))
	_, err = watch.Read(make([]byte, 1))
	r.Expect(err).To(HaveOccurred())
	r.Expect(watch.Close()).To(Succeed())
	once, served := get("/")
	r.Expect(served).To(Equal("a"), "better an API server that is not ready than none")
	r.Expect(once.Close()).To(Succeed())
}
