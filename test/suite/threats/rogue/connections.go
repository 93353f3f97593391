package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// held is how many connections are held open at a time, from sources addresses.
	held    = 2000
	sources = 20
	// floods is how many requests for unknown routes are sent.
	floods = 2000
	// polls is how many polls of one key are open at a time.
	polls = 60
)

func (r *rogue) connectionAttempts() []attempt {
	return []attempt{
		{"forge headers of the PROXY protocol", r.forgeProxyHeaders},
		{"hold silent handshakes", func(ctx context.Context, t *tally) error {
			return r.hold(ctx, t, func(ctx context.Context, c *caller) (net.Conn, error) {
				return c.dialer().DialContext(ctx, "tcp", r.server.Host)
			})
		}},
		{"hold connections without a known key", func(ctx context.Context, t *tally) error {
			return r.hold(ctx, t, func(ctx context.Context, c *caller) (net.Conn, error) { return c.handshake(ctx, "") })
		}},
		{"flood routes that do not exist", r.floodRoutes},
		{"open many polls with one key", r.openPolls},
	}
}

// hold opens connections and keeps them. Meanwhile a newcomer with another address calls: the count of "newcomer STATUS" is
// what it is answered. "open" counts the connections that were opened, "held" those that are still open then.
func (r *rogue) hold(ctx context.Context, t *tally, open func(context.Context, *caller) (net.Conn, error)) error {
	var mu sync.Mutex
	var conns []net.Conn
	if err := each(ctx, held, 4*atOnce, func(ctx context.Context, i int) error {
		c, err := r.newCaller(source(100 + i%sources))
		if err != nil {
			return err
		}
		if conn, ok := t.opened(open(ctx, c)); ok {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, conn)
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range 5 {
		newcomer, err := r.newCaller(source(200 + i))
		if err != nil {
			return err
		}
		t.count("newcomer " + newcomer.call(ctx, request{method: http.MethodGet, path: documentPath}).String())
		newcomer.hangUp()
	}
	var group sync.WaitGroup
	for _, conn := range conns {
		group.Go(func() {
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, err := io.ReadAll(conn)
			if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
				t.count("held")
			} else {
				t.count("closed")
			}
			_ = conn.Close()
		})
	}
	group.Wait()
	return nil
}

// floodRoutes requests unknown routes from many addresses, over connections that are reused if the manager lets them be.
func (r *rogue) floodRoutes(ctx context.Context, t *tally) error {
	var callers []*caller
	defer func() {
		for _, c := range callers {
			c.hangUp()
		}
	}()
	for i := range sources {
		c, err := r.newCaller(source(300 + i))
		if err != nil {
			return err
		}
		callers = append(callers, c)
	}
	return each(ctx, floods, atOnce, func(ctx context.Context, i int) error {
		t.add(callers[i%sources].call(ctx, request{method: http.MethodGet, path: "/favicon.ico"}))
		return nil
	})
}

// openPolls opens polls that wait, over several connections.
func (r *rogue) openPolls(ctx context.Context, t *tally) error {
	var plan struct{ Revision string }
	if err := decode(r.main.insist(ctx, request{operation: "plan", query: map[string][]string{"boot": {mainBoot}}}), &plan); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var group sync.WaitGroup
	for range polls {
		group.Go(func() { t.add(r.main.poll(ctx, plan.Revision, mainBoot)) })
	}
	group.Wait()
	return nil
}
