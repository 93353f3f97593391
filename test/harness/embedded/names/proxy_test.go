package names_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/names"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func service(namespace, name, external string) client.Object {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if external != "" {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: external}
	}
	return s
}

// echo answers what it hears, and ends when the other side does.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

func start(t *testing.T) *names.Proxy {
	t.Helper()
	p, err := names.Start(names.Options{
		Services: fake.NewClientBuilder().WithObjects(
			service("system", "gateway", ""), service("tenant", "shop", "gateway.system.svc.test"), service("tenant", "web", "www.example.com"),
		).Build(),
		Domain: "test", Processes: map[string]string{"gateway.system.svc.test:16443": echo(t)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// connect asks the proxy for a connection. It returns the answer's status.
func connect(ctx context.Context, g Gomega, p *names.Proxy, to string) (net.Conn, int, string) {
	at, err := url.Parse(p.URL())
	g.Expect(err).NotTo(HaveOccurred())
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return conn, response.StatusCode, ""
	}
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(conn.Close()).To(Succeed())
	return nil, response.StatusCode, string(body)
}

func TestNamesLeadToProcesses(t *testing.T) {
	g := NewWithT(t)
	p := start(t)
	for _, name := range []string{"shop.tenant.svc.test:16443", "gateway.system.svc.test:16443"} {
		conn, status, _ := connect(t.Context(), g, p, name)
		g.Expect(status).To(Equal(http.StatusOK), name)
		_, err := io.WriteString(conn, "hello")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(conn.(*net.TCPConn).CloseWrite()).To(Succeed())
		g.Expect(io.ReadAll(conn)).To(BeEquivalentTo("hello"), "one direction ends on its own")
		g.Expect(conn.Close()).To(Succeed())
	}
}

func TestNamesThatLeadNowhere(t *testing.T) {
	g := NewWithT(t)
	p := start(t)
	for to, says := range map[string]string{
		"shop.tenant.svc.test:6443":       "nothing is behind port 6443 of gateway.system.svc.test",
		"web.tenant.svc.test:16443":       "nothing is behind port 16443 of www.example.com",
		"gone.tenant.svc.test:16443":      "no such host",
		"shop.tenant.svc.elsewhere:16443": "no such host",
		"www.example.com:443":             "no such host",
		"shop.tenant.svc.test":            "missing port",
	} {
		_, status, said := connect(t.Context(), g, p, to)
		g.Expect(status).To(Equal(http.StatusBadGateway), to)
		g.Expect(said).To(ContainSubstring(says), to)
	}
	response, err := http.Get(p.URL())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.StatusCode).To(Equal(http.StatusMethodNotAllowed))
	g.Expect(response.Body.Close()).To(Succeed())
	http.DefaultClient.CloseIdleConnections()
}

// Close leaves no connection, also of those that wait.
func TestClose(t *testing.T) {
	g := NewWithT(t)
	p := start(t)
	conn, status, _ := connect(t.Context(), g, p, "shop.tenant.svc.test:16443")
	g.Expect(status).To(Equal(http.StatusOK))
	p.Close()
	g.Expect(io.ReadAll(conn)).To(BeEmpty())
	g.Expect(conn.Close()).To(Succeed())
}
