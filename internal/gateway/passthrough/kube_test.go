package passthrough

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const apiServerName = "shop-endpoint.default.svc"

// authority is the CA of a cluster.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = template, newKey(t)
	a.cert = a.sign(t, template, a.key)
	a.pool.AddCert(a.cert)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// leaf issues a certificate for servers and clients.
func (a *authority) leaf(t *testing.T, user, group string, dnsNames ...string) tls.Certificate {
	t.Helper()
	key := newKey(t)
	cert := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: user, Organization: []string{group}}, DNSNames: dnsNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// cluster is an API server that wants client certificates, behind a Server.
type cluster struct {
	*rig
	ca *authority
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	ca := newAuthority(t)
	api := httptest.NewUnstartedServer(apiHandler())
	api.EnableHTTP2 = true
	api.TLS = &tls.Config{
		Certificates: []tls.Certificate{ca.leaf(t, "kube-apiserver", "", apiServerName)},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: ca.pool,
	}
	api.StartTLS()
	t.Cleanup(api.Close)
	to := dialTo(api.Listener.Addr().String())
	return &cluster{ca: ca, rig: start(t, routerFunc(func(ctx context.Context, serverName string) (net.Conn, error) {
		if serverName != apiServerName {
			return nil, errNoRoute
		}
		return to.Dial(ctx, serverName)
	}))}
}

// apiHandler says who calls by which protocol, sends events on request, and echoes after
// an upgrade.
func apiHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/whoami", func(w http.ResponseWriter, req *http.Request) {
		subject := req.TLS.PeerCertificates[0].Subject
		_, _ = fmt.Fprintf(w, "%s of %s by %s", subject.CommonName, subject.Organization[0], req.Proto)
	})
	mux.HandleFunc("/watch", func(w http.ResponseWriter, req *http.Request) {
		events := bufio.NewScanner(req.Body)
		for events.Scan() {
			_, _ = fmt.Fprintln(w, "event", events.Text())
			_ = http.NewResponseController(w).Flush()
		}
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	})
	return mux
}

func (c *cluster) tls(t *testing.T, user string) *tls.Config {
	t.Helper()
	return &tls.Config{
		ServerName: apiServerName, RootCAs: c.ca.pool, Certificates: []tls.Certificate{c.ca.leaf(t, user, "system:masters")},
	}
}

func (c *cluster) client(t *testing.T, user string, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig: c.tls(t, user), ForceAttemptHTTP2: http2,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", c.address)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// Caller and API server authenticate each other, by HTTP/1.1 and HTTP/2.
func TestAPIServer_ClientCertificates(t *testing.T) {
	c := newCluster(t)
	for protocol, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		for _, user := range []string{"kubernetes-admin", "capi-controller"} {
			answer, err := c.client(t, user, http2).Get("https://" + apiServerName + "/whoami")
			c.Expect(err).NotTo(HaveOccurred())
			body, err := io.ReadAll(answer.Body)
			c.Expect(err).NotTo(HaveOccurred())
			c.Expect(answer.Body.Close()).To(Succeed())
			c.Expect(string(body)).To(Equal(user + " of system:masters by " + protocol))
		}
	}
	c.waitForResults(routed, 4)
	c.Expect(c.result(notTLS)).To(BeZero())
}

// A watch of HTTP/2 goes on after all timeouts, and its data passes in both directions.
func TestAPIServer_Watch(t *testing.T) {
	c := newCluster(t)
	events, send := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+apiServerName+"/watch", events)
	c.Expect(err).NotTo(HaveOccurred())
	go func() { _, _ = io.WriteString(send, "0\n") }()
	answer, err := c.client(t, "watcher", true).Do(request)
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(answer.ProtoMajor).To(Equal(2))
	got := bufio.NewScanner(answer.Body)
	for i := range 5 {
		c.Expect(got.Scan()).To(BeTrue())
		c.Expect(got.Text()).To(Equal(fmt.Sprint("event ", i)))
		c.step(time.Hour)
		_, err = fmt.Fprintln(send, i+1)
		c.Expect(err).NotTo(HaveOccurred())
	}
	c.Expect(send.Close()).To(Succeed())
	c.Expect(answer.Body.Close()).To(Succeed())
}

// A port-forward upgrades its connection to WebSocket.
func TestAPIServer_Upgrade(t *testing.T) {
	c := newCluster(t)
	config := c.tls(t, "kcp")
	config.NextProtos = []string{"http/1.1"}
	conn := tls.Client(c.dial(t), config)
	request := "GET /upgrade HTTP/1.1\r\nHost: " + apiServerName + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	_, err := io.WriteString(conn, request)
	c.Expect(err).NotTo(HaveOccurred())
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, nil)
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(answer.StatusCode).To(Equal(http.StatusSwitchingProtocols))
	c.Expect(answer.Body.Close()).To(Succeed()) // it has none
	for i := range 100 {
		frame := fmt.Sprintf("\x82\x04%04d", i)
		_, err = io.WriteString(conn, frame)
		c.Expect(err).NotTo(HaveOccurred())
		back := make([]byte, len(frame))
		_, err = io.ReadFull(reader, back)
		c.Expect(err).NotTo(HaveOccurred())
		c.Expect(string(back)).To(Equal(frame))
	}
	c.Expect(conn.Close()).To(Succeed())
	c.waitForOpen(0, 0)
}

// An API server of another cluster is not taken for this one: the end of TLS is not here.
func TestAPIServer_OtherAuthority(t *testing.T) {
	c := newCluster(t)
	config := c.tls(t, "kubernetes-admin")
	config.RootCAs = newAuthority(t).pool
	conn := c.dial(t)
	c.Expect(tls.Client(conn, config).HandshakeContext(t.Context())).To(BeAssignableToTypeOf(&tls.CertificateVerificationError{}))
	c.Expect(conn.Close()).To(Succeed())
	c.waitForOpen(0, 0)
}
