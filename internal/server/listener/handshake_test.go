package listener

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

// Handshakes wait for each other to compute, but not for one whose peer is silent.
func TestComputingHandshakesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		computing := make(chan struct{}, 1)
		owner := newConnections(t, 8, 8)
		first, firstPeer := net.Pipe()
		second, secondPeer := net.Pipe()
		defer func() { _, _ = first.Close(), second.Close() }()
		reached, finished := make(chan string, 2), make(chan struct{})
		finish := sync.OnceFunc(func() { close(finished) })
		defer finish()
		var group sync.WaitGroup
		handshake := func(name string, conn net.Conn) {
			group.Go(func() {
				c := owner.newConn(conn, computing)
				_ = c.pace(func() error {
					_, err := c.Read(make([]byte, 1))
					reached <- name
					<-finished
					return err
				})
			})
		}
		handshake("first", first)
		handshake("second", second)
		synctest.Wait() // both are silent
		_, err := secondPeer.Write([]byte("x"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(<-reached).To(Equal("second"), "it must not wait for a silent peer")
		_, err = firstPeer.Write([]byte("x"))
		g.Expect(err).NotTo(HaveOccurred())
		synctest.Wait()
		g.Expect(reached).NotTo(Receive(), "the second one computes")
		finish()
		g.Expect(<-reached).To(Equal("first"))
		group.Wait()
		g.Expect(computing).To(BeEmpty())
	})
}

// A handshake whose peer sends nothing ends, and leaves its place to others.
func TestThreat15_SilentHandshakeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		const timeout = 10 * time.Second
		l := New(Options{
			TLS: &tls.Config{MinVersion: tls.VersionTLS13}, Connections: newConnections(t, 8, 8), HandshakeTimeout: timeout, Logger: logr.Discard(),
		})
		inner, peer := net.Pipe()
		defer func() { _ = peer.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		g.Expect(l.handshake(ctx, l.connections.newConn(inner, l.computing))).To(BeNil())
		g.Expect(time.Since(began)).To(Equal(timeout))
	})
}
