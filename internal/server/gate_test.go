package server_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// Who takes the API for one without TLS is told.
func TestGateAnswersPlainHTTP(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	conn := h.silent("127.0.0.1")
	_, err := io.WriteString(conn, "GET "+protocol.PathPlan+" HTTP/1.1\r\nHost: x\r\n\r\n")
	g.Expect(err).NotTo(HaveOccurred())
	got, err := io.ReadAll(conn)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(got)).To(HavePrefix("HTTP/1.0 400 Bad Request\r\n"))
	g.Expect(string(got)).To(ContainSubstring("HTTPS"))
}

// The API's end is not held up by those who have not said anything yet.
func TestGateEndsHandshakes(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.MaxHandshakes, o.HandshakeTimeout = 3, time.Hour })
	g.Expect(h.agent().plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
	var ends []<-chan error
	for i := range 5 { // two more than take their turn
		conn, end := h.silent(fmt.Sprintf("127.0.0.%d", i+2)), make(chan error, 1)
		ends = append(ends, end)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			end <- err
		}()
	}
	begun := time.Now()
	h.stop()
	g.Expect(time.Since(begun)).To(BeNumerically("<", eventually))
	for _, end := range ends {
		g.Eventually(end, eventually).Should(Receive(HaveOccurred()))
	}
}
