package passthrough

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

// maxHello bounds the bytes of a ClientHello with its record headers. Those of common
// clients have less than 2 KiB.
const maxHello = 16 << 10

var (
	errTooLong = errors.New("the ClientHello is too long")
	errReading = errors.New("the connection ended")
	// errHaveHello ends the handshake.
	errHaveHello = errors.New("the ClientHello is complete")
)

// readHello reads a ClientHello. It returns the server name and all bytes that were read,
// which may be more than the ClientHello. crypto/tls parses it: readHello begins a
// handshake that ends without an answer once the ClientHello is complete.
func readHello(ctx context.Context, conn net.Conn) (serverName string, read []byte, err error) {
	from := &recorder{Conn: conn}
	complete := false
	handshake := tls.Server(from, &tls.Config{
		MinVersion: tls.VersionTLS12, // not applied: the handshake ends before
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			complete, serverName = true, hello.ServerName
			return nil, errHaveHello
		},
	})
	err = handshake.HandshakeContext(context.WithoutCancel(ctx)) // who closes conn ends it
	switch {
	case !complete && from.failure != nil:
		return "", nil, refuseHello(from.failure)
	case !complete:
		return "", nil, refuseHello(err)
	case serverName == "":
		return "", nil, &refusal{outcome: noServerName}
	}
	return serverName, from.read, nil
}

// recorder keeps what is read of a connection, and writes nothing to it.
type recorder struct {
	net.Conn
	read []byte
	// failure is the error of the last Read.
	failure error
}

// Read implements net.Conn.
func (r *recorder) Read(p []byte) (int, error) {
	room := maxHello - len(r.read)
	if room == 0 {
		r.failure = errTooLong
		return 0, r.failure
	}
	n, err := r.Conn.Read(p[:min(len(p), room)])
	r.read = append(r.read, p[:n]...)
	if err != nil {
		r.failure = fmt.Errorf("%w: %w", errReading, err)
	}
	return n, err
}

// Write implements net.Conn. It drops the alert that ends the handshake.
func (*recorder) Write(p []byte) (int, error) { return len(p), nil }
