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

// A plain HTTP request gets a readable answer.
func TestListenerAnswersPlainHTTP(t *testing.T) {
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

// Silent connections do not delay the end of the server.
func TestListenerEndsHandshakes(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.MaxHandshakes, o.HandshakeTimeout = 3, time.Hour })
	g.Expect(h.agent().plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
	var ends []<-chan error
	for i := range 5 { // two more than the limit
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
