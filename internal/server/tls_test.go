package server_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
)

// handshake connects with a server name.
func (h *harness) handshake(name string) (*x509.Certificate, error) {
	key, err := identity.NewKey()
	h.must(err)
	cert, err := identity.ClientCertificate(key)
	h.must(err)
	conn, err := tls.Dial("tcp", h.url[len("https://"):], &tls.Config{
		ServerName: name, RootCAs: h.roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, Time: h.clock.Now,
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0], nil
}

func TestThreat17_ConnectionsThatAreRefused(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	other, err := identity.ClientCertificate(ed)
	g.Expect(err).NotTo(HaveOccurred())
	key, err := identity.NewKey()
	g.Expect(err).NotTo(HaveOccurred())
	good, err := identity.ClientCertificate(key)
	g.Expect(err).NotTo(HaveOccurred())
	stolen := good
	otherKey, err := identity.NewKey()
	g.Expect(err).NotTo(HaveOccurred())
	stolen.PrivateKey = otherKey

	for name, config := range map[string]*tls.Config{
		"another kind of key":        {RootCAs: h.roots, Certificates: []tls.Certificate{other}},
		"old TLS":                    {RootCAs: h.roots, Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS12},
		"certificate of another key": {RootCAs: h.roots, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stolen, nil }},
	} {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
		resp, err := c.Get(h.url + protocol.PathPlan)
		if err == nil {
			_ = resp.Body.Close()
		}
		g.Expect(err).To(HaveOccurred(), name)
	}
	g.Expect(h.metric("elemental_agent_api_requests_total")).To(BeZero())
}

func TestCertificateIsRenewedWithoutRestart(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	first, err := h.handshake("127.0.0.1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first.IPAddresses).To(HaveLen(1))
	g.Expect(first.NotBefore).To(BeTemporally("<", h.clock.Now().AddDate(-1, 0, 0)), "the clock of a host may be years behind")
	h.step(authority.LeafLifetime / 2)
	second, err := h.handshake("127.0.0.1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second.SerialNumber).To(Equal(first.SerialNumber))
	h.step(authority.LeafLifetime / 4)
	third, err := h.handshake("127.0.0.1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(third.SerialNumber).NotTo(Equal(first.SerialNumber))
}
