package upload_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// A storage may take minutes for its answer after the last byte of a snapshot: it has to make the
// object durable, and a slow line still carries what the kernel has taken.
func TestSlowAnswer(t *testing.T) {
	s := newStorage(t)
	source, _ := snapshotOf(t, 100_000)
	want := wanted(newIdentity(t))
	synctest.Test(t, func(t *testing.T) {
		u := s.uploader(source)
		u.Dial = func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer func() { _ = server.Close() }()
				conn := tls.Server(server, &tls.Config{Certificates: s.TLS.Certificates})
				request, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
				_, _ = io.Copy(io.Discard, request.Body)
				time.Sleep(4 * time.Minute)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}()
			return client, nil
		}
		_, err := u.Upload(t.Context(), want)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	})
}
