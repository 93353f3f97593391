package bare

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/ports"
)

const soon = time.Minute

// start serves until the test ends or end is called, and returns a client.
func start(t *testing.T) (client Client, end func()) {
	t.Helper()
	g := NewWithT(t)
	authority, err := pki.NewAuthority("test", time.Now())
	g.Expect(err).NotTo(HaveOccurred())
	serving, err := authority.Server("bare")
	g.Expect(err).NotTo(HaveOccurred())
	user, err := authority.Client("client")
	g.Expect(err).NotTo(HaveOccurred())
	folder := t.TempDir()
	s := Server{Certificate: filepath.Join(folder, "crt"), Key: filepath.Join(folder, "key")}
	g.Expect(os.WriteFile(s.Certificate, serving.Certificate, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(s.Key, serving.Key, 0o600)).To(Succeed())
	var reserved ports.Set
	t.Cleanup(reserved.Release)
	port, err := reserved.Reserve()
	g.Expect(err).NotTo(HaveOccurred())
	s.Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var once atomic.Bool
	end = func() {
		if once.CompareAndSwap(false, true) {
			cancel()
			g.Expect(<-ended).To(Succeed())
		}
	}
	t.Cleanup(end)
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(authority.Certificate)).To(BeTrue())
	certificate, err := tls.X509KeyPair(user.Certificate, user.Key)
	g.Expect(err).NotTo(HaveOccurred())
	client = Client{URL: "https://" + s.Address, TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}}
	g.Eventually(func() error {
		c, err := client.Connect(t.Context())
		if err == nil {
			c.Close()
		}
		return err
	}).WithTimeout(soon).Should(Succeed())
	return client, end
}

func TestConnections(t *testing.T) {
	g := NewWithT(t)
	client, end := start(t)
	connections := make([]*Connection, 8)
	g.Expect(Each(t.Context(), len(connections), 3, func(ctx context.Context, i int) (err error) {
		connections[i], err = client.Connect(ctx)
		return err
	})).To(Succeed())
	for _, c := range connections {
		g.Expect(c.Err()).NotTo(HaveOccurred(), "it waits, though the context it was made with has ended")
	}
	connections[0].Close()
	g.Expect(connections[0].Err()).NotTo(HaveOccurred(), "it was asked to end")
	end()
	for _, c := range connections[1:] {
		g.Eventually(c.Err).WithTimeout(soon).Should(HaveOccurred())
		c.Close()
	}
	_, err := client.Connect(t.Context())
	g.Expect(err).To(MatchError(HavePrefix("connecting: ")))
}

// Every connection proves a key afresh, by TLS 1.3 and HTTP/2.
func TestTrust(t *testing.T) {
	g := NewWithT(t)
	client, _ := start(t)
	nobody := client
	nobody.TLS = client.TLS.Clone()
	nobody.TLS.Certificates = nil
	_, err := nobody.Connect(t.Context())
	g.Expect(err).To(MatchError(HavePrefix("connecting: ")))

	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	settings := client.TLS.Clone()
	settings.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 2 {
		transport := &http.Transport{Protocols: protocols, TLSClientConfig: settings}
		response, err := (&http.Client{Transport: transport}).Post(client.URL, "text/plain", http.NoBody)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect(response.ProtoMajor).To(Equal(2))
		g.Expect(response.TLS.Version).To(BeEquivalentTo(tls.VersionTLS13))
		g.Expect(response.TLS.DidResume).To(BeFalse())
		transport.CloseIdleConnections()
	}
}

func TestEach(t *testing.T) {
	g := NewWithT(t)
	var now, most atomic.Int32
	seen := make([]atomic.Int32, 100)
	g.Expect(Each(t.Context(), len(seen), 4, func(_ context.Context, i int) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		seen[i].Add(1)
		now.Add(-1)
		return nil
	})).To(Succeed())
	for i := range seen {
		g.Expect(seen[i].Load()).To(BeEquivalentTo(1))
	}
	g.Expect(most.Load()).To(BeNumerically("<=", 4))

	calls, failure := 0, errors.New("no")
	g.Expect(Each(t.Context(), 100, 1, func(context.Context, int) error { calls++; return failure })).To(MatchError(failure))
	g.Expect(calls).To(Equal(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(Each(ctx, 100, 1, func(context.Context, int) error { calls++; return nil })).To(MatchError(context.Canceled))
	g.Expect(calls).To(Equal(1))
}
