package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// upgrades is how many tunnels are asked for in a flood.
	upgrades = 300
	// silent is how many tunnels are opened that say nothing.
	silent = 8
	// setUp is longer than the manager waits for a tunnel's first answer.
	setUp = 20 * time.Second
	// carrying is how long a tunnel carries connections that others make to the rogue's cluster.
	carrying = 40 * time.Second
	// tunnelBoot is the boot ID of the host with a tunnel.
	tunnelBoot = "tunnel-boot"
)

// tunnels attacks through a host whose plan asks for a tunnel, and asks for tunnels that nobody wants.
type tunnels struct {
	*rogue

	// host is asked for a tunnel, worker is of the same cluster and isn't.
	host, worker *caller
}

func (r *tunnels) attempts() []attempt {
	return []attempt{
		{"join a cluster that is reached through tunnels", r.join},
		{"open tunnels that nobody asks for", r.openUnwanted},
		{"ask for a tunnel in other ways than agents", r.askWrongly},
		{"send something else than HTTP/2 in a tunnel", r.sendGarbage},
		{"open tunnels and say nothing", r.saySilence},
		{"flood requests for tunnels", r.flood},
		{"answer no dial of a tunnel", func(ctx context.Context, t *tally) error { return r.carry(ctx, t, ignoreDials) }},
		{"stall all streams of a tunnel", func(ctx context.Context, t *tally) error { return r.carry(ctx, t, stallStreams) }},
	}
}

// join enrols a control-plane host and a worker that can have tunnels.
func (r *tunnels) join(ctx context.Context, t *tally) error {
	for i, c := range []**caller{&r.host, &r.worker} {
		var err error
		if *c, err = r.newCaller(source(6 + i)); err != nil {
			return err
		}
		(*c).further = []string{"Tunnel", "LocalEndpoint"}
		if err := (*c).join(ctx, t, tunnelBoot); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for pause(ctx, time.Second) {
		for _, c := range []*caller{r.host, r.worker} {
			var plan struct{ Desired struct{ Tunnel bool } }
			if err := decode(c.insist(ctx, request{operation: "plan", query: url.Values{"boot": {tunnelBoot}}}), &plan); err != nil {
				return err
			}
			if plan.Desired.Tunnel && c == r.worker {
				r.host, r.worker = r.worker, r.host
			}
			if plan.Desired.Tunnel {
				return nil
			}
		}
	}
	return errors.New("no plan asks for a tunnel")
}

// upgrade is the text of a request for a tunnel.
func (r *tunnels) upgrade(boot string, header ...string) (string, error) {
	o, err := r.document.operation("tunnel")
	return "GET " + o.path + "?boot=" + url.QueryEscape(boot) + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: elemental-tunnel/1\r\n" +
		strings.Join(append(header, ""), "\r\n") + "\r\n", err
}

// opened is a connection after the answer to a request.
type opened struct {
	*tls.Conn

	from *bufio.Reader
}

func (o opened) Read(p []byte) (int, error) { return o.from.Read(p) }

// ask sends a text over a connection of its own. The connection is nil unless it was upgraded.
func (c *caller) ask(ctx context.Context, text string) (*opened, answer) {
	conn, err := c.handshake(ctx, "")
	if err != nil {
		return nil, answer{err: err}
	}
	from := bufio.NewReader(conn)
	_ = conn.SetDeadline(time.Now().Add(patience))
	var response *http.Response
	if _, err = io.WriteString(conn, text); err == nil {
		response, err = http.ReadResponse(from, nil)
	}
	if err != nil {
		_ = conn.Close()
		return nil, answer{err: err}
	}
	got := answer{status: response.StatusCode, header: response.Header}
	if got.status == http.StatusSwitchingProtocols {
		_ = conn.SetDeadline(time.Time{})
		return &opened{conn, from}, got
	}
	got.body, _ = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	_ = response.Body.Close()
	_ = conn.Close()
	c.rogue.search(got.header, got.body)
	return nil, got
}

// persist is ask that repeats a request while its rate is refused.
func (c *caller) persist(ctx context.Context, text string) (*opened, answer) {
	const times = 30
	for range times {
		conn, got := c.ask(ctx, text)
		if got.status != http.StatusTooManyRequests || !pause(ctx, got.retryAfter()) {
			return conn, got
		}
	}
	return c.ask(ctx, text)
}

// openUnwanted asks for tunnels as hosts that should have none, by their own names and by the victim's.
func (r *tunnels) openUnwanted(ctx context.Context, t *tally) error {
	stranger, err := r.newCaller(source(2))
	if err != nil {
		return err
	}
	pending, err := r.newCaller(source(8))
	if err != nil {
		return err
	}
	t.enrolled(pending.call(ctx, request{operation: "enrol", token: r.ManualToken, body: pending.modest(tunnelBoot)}))
	locked, err := r.newCaller(source(9))
	if err != nil {
		return err
	}
	t.enrolled(locked.call(ctx, request{operation: "enrol", token: r.ManualToken, body: locked.modest(tunnelBoot)}))
	const grace = 11 * time.Second
	for _, boot := range []string{tunnelBoot, "other", tunnelBoot} {
		// Two machines with one key.
		if t.add(locked.poll(ctx, "", boot)).status == http.StatusServiceUnavailable && pause(ctx, grace) {
			t.add(locked.poll(ctx, "", boot))
		}
	}
	fencedKey, err := x509.ParseECPrivateKey(r.FencedKey)
	if err != nil {
		return fmt.Errorf("reading the key of a fenced host: %w", err)
	}
	fenced, err := r.callerWith(fencedKey, source(10))
	if err != nil {
		return err
	}
	t.add(pending.poll(ctx, "", tunnelBoot))
	t.add(fenced.poll(ctx, "", tunnelBoot))
	for _, c := range []*caller{r.main, r.worker, stranger, pending, locked, fenced} {
		boot := tunnelBoot
		if c == r.main {
			boot = mainBoot
		}
		for _, header := range [][]string{nil, {"Elemental-Home: " + r.Victim.Namespace + "/" + r.Victim.Name}} {
			text, err := r.upgrade(boot, header...)
			if err != nil {
				return err
			}
			conn, got := c.persist(ctx, text)
			t.add(got)
			if conn != nil {
				_ = conn.Close()
			}
		}
		c.hangUp()
	}
	return nil
}

// askWrongly asks as the host that may have a tunnel.
func (r *tunnels) askWrongly(ctx context.Context, t *tally) error {
	right, err := r.upgrade(tunnelBoot)
	if err != nil {
		return err
	}
	for _, change := range [][2]string{
		{"Connection: Upgrade", "Connection: keep-alive"}, {"Upgrade: elemental", "Upgrade: websocket, x-elemental"}, {"Upgrade: elemental-tunnel/1\r\n", ""},
		{"GET", "POST"}, {"GET", "CONNECT"}, {"boot=" + tunnelBoot, "boot="}, {"boot=" + tunnelBoot, "boot=" + strings.Repeat("b", 200)},
		{"boot=" + tunnelBoot, "boot=another"}, {"\r\n\r\n", "\r\nContent-Length: 3\r\n\r\nabc"}, {"\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"\r\n\r\n", "\r\n\r\nSM\r\n\r\n"},
	} {
		conn, got := r.host.persist(ctx, strings.Replace(right, change[0], change[1], 1))
		t.add(got)
		if conn != nil {
			_ = conn.Close()
		}
	}
	// By HTTP/2, in which there are no upgrades.
	t.add(r.host.insist(ctx, request{operation: "tunnel", query: url.Values{"boot": {tunnelBoot}}}))
	return nil
}

// sendGarbage upgrades and then speaks no HTTP/2, or one that would cost the manager much.
func (r *tunnels) sendGarbage(ctx context.Context, t *tally) error {
	for _, garbage := range []string{
		"GET /v1/plan HTTP/1.1\r\nHost: x\r\n\r\n",
		"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\xff\xff\xff", // frames of 16 MiB
		"\x00\x00\x00\x63\x00\x00\x00\x00\x00",                         // a frame of no known type
		"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\xff\xff" + strings.Repeat("\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\xff\xff", 50), // windows without bounds
		strings.Repeat("\x00\x00\x00\x04\x00\x00\x00\x00\x00", 100000),                                                                      // settings without end
		strings.Repeat("\xff", 1<<20),
	} {
		if err := r.end(ctx, t, func(conn *opened) { _, _ = io.WriteString(conn, garbage) }); err != nil {
			return err
		}
	}
	return nil
}

// end opens a tunnel, does something to it, and counts whether the manager ends it.
func (r *tunnels) end(ctx context.Context, t *tally, do func(*opened)) error {
	text, err := r.upgrade(tunnelBoot)
	if err != nil {
		return err
	}
	conn, got := r.host.persist(ctx, text)
	t.add(got)
	if conn == nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(setUp))
	do(conn)
	t.count(ending(conn))
	return nil
}

// ending reads until the manager closes the connection: "closed", or "open" if it doesn't before the deadline.
func ending(conn io.Reader) string {
	_, err := io.Copy(io.Discard, conn)
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "open"
	}
	return "closed"
}

// saySilence opens tunnels that answer nothing.
func (r *tunnels) saySilence(ctx context.Context, t *tally) error {
	return each(ctx, silent, silent, func(ctx context.Context, _ int) error { return r.end(ctx, t, func(*opened) {}) })
}

// flood asks for many tunnels at once, with all of its keys.
func (r *tunnels) flood(ctx context.Context, t *tally) error {
	text, err := r.upgrade(tunnelBoot)
	if err != nil {
		return err
	}
	callers := []*caller{r.host, r.worker, r.main}
	var mu sync.Mutex
	var all []*opened
	err = each(ctx, upgrades, atOnce, func(ctx context.Context, i int) error {
		conn, got := callers[i%len(callers)].ask(ctx, text)
		t.add(got)
		if conn != nil {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, conn)
		}
		return nil
	})
	for _, conn := range all {
		_ = conn.Close()
	}
	if err != nil {
		return fmt.Errorf("asking for tunnels: %w", err)
	}
	return nil
}
