package listener

import (
	"container/list"
	"net"
	"net/netip"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// state of a connection.
type state int

const (
	// accepted: not counted anywhere.
	accepted state = iota
	// handshaking: its TLS handshake is in progress.
	handshaking
	// unauthenticated: it has used no key of a known host yet.
	unauthenticated
	// authenticated: it has used the key of a known host.
	authenticated
	// closed: it is not counted any more.
	closed
)

// conn is an accepted connection: that below a tls.Conn.
//
// It bounds the handshakes that compute at the same time: thousands of them would leave
// no processor for anything else. A handshake that waits for its peer does not count.
type conn struct {
	net.Conn
	owner    *Connections
	source   netip.Prefix
	accepted time.Time
	// computing has a slot for each computing handshake; nil after the handshake.
	computing chan struct{}

	// The following belongs to owner.

	state state
	// place is the connection's element in its pool.
	place *list.Element
	// silentSince is when the handshake began to wait for its peer; zero if it does not.
	silentSince time.Time
	// deadline closes the connection if it is still unauthenticated then.
	deadline *timer.Entry
	// key is the fingerprint of the client's key; blank during the handshake.
	key string
}

// pace calls handshake, which reads from the connection.
func (c *conn) pace(handshake func() error) error {
	computing := c.computing
	computing <- struct{}{}
	err := handshake()
	c.computing = nil
	<-computing
	return err
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if c.computing != nil {
		<-c.computing
		c.owner.setSilent(c, true)
		defer func() {
			c.owner.setSilent(c, false)
			c.computing <- struct{}{}
		}()
	}
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.owner.end(c)
	return c.Conn.Close()
}
