package fleet

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// pipes is a listener in memory, so that time passes as fast as it can.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// A connection that has fallen silent is found out by both sides on their own, with nothing but the agent's and the
// manager's questions, and the host makes another.
func TestSilenceIsFoundOut(t *testing.T) {
	trusted := httptest.NewUnstartedServer(nil)
	trusted.EnableHTTP2 = true
	trusted.StartTLS()
	defer trusted.Close()
	certificates, bundle := trusted.TLS.Certificates, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.Certificate().Raw}))
	valid := trusted.Certificate().NotBefore.Add(time.Minute)
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		n := someNetwork(t, Faults{})
		missed := make(chan time.Time, 1)
		listener := make(pipes, 1)
		manager := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				<-r.Context().Done()
				missed <- time.Now()
			}
			w.WriteHeader(http.StatusNoContent)
		}))
		_ = manager.Listener.Close()
		manager.Listener, manager.EnableHTTP2, manager.TLS = listener, true, trusted.TLS.Clone()
		manager.TLS.Certificates = certificates
		manager.Config.HTTP2 = &http.HTTP2Config{SendPingTimeout: server.DefaultPingAfter, PingTimeout: server.DefaultPingTimeout}
		manager.StartTLS()
		key, err := identity.NewKey()
		g.Expect(err).NotTo(HaveOccurred())
		own, err := identity.ClientCertificate(key)
		g.Expect(err).NotTo(HaveOccurred())
		var dialled []*conn
		agent, err := client.New(client.Options{
			Servers: []string{"https://127.0.0.1:1"}, TrustBundle: bundle, Certificate: own, Now: func() time.Time { return valid },
			Dial: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				listener <- far
				dialled = append(dialled, newConn(near, n, false, true))
				return dialled[len(dialled)-1], nil
			},
		})
		g.Expect(err).NotTo(HaveOccurred())
		answered := make(chan error, 1)
		go func() {
			_, err := agent.Plan(t.Context(), "", "boot")
			answered <- err
		}()
		synctest.Wait()
		g.Expect(answered).To(BeEmpty())
		g.Expect(dialled).To(HaveLen(1))
		began := time.Now()
		dialled[0].fallSilent()

		g.Expect((<-missed).Sub(began)).To(Equal(server.DefaultPingAfter + server.DefaultPingTimeout))
		synctest.Wait()
		g.Expect(answered).To(BeEmpty(), "what the manager did about it does not arrive")
		g.Expect(<-answered).To(MatchError(ContainSubstring("connection lost")))
		g.Expect(time.Since(began)).To(Equal(215 * time.Second))
		g.Expect(agent.Report(t.Context(), protocol.Report{})).To(Succeed())
		g.Expect(dialled).To(HaveLen(2))
		agent.Close()
		close(listener)
		manager.Close()
	})
}

// The manager has to find out by itself that a host has died: what the host left is kept for longer than that takes.
func TestDeathIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		n := someNetwork(t, Faults{})
		near, far := net.Pipe()
		newConn(near, n, false, true).end(false)
		told := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			_, _ = far.Read(make([]byte, 1))
			told <- time.Since(began)
		}()
		g.Expect(<-told).To(BeNumerically(">", server.DefaultPingAfter+server.DefaultPingTimeout))
	})
}
