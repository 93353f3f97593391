package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// slow is the number of connections of slow readers and writers.
const slow = 40

// requests sends what no agent sends.
type requests struct{ *rogue }

func (r requests) attempts() []attempt {
	return []attempt{
		{"poll without a boot ID after polls with one", r.omitBoot},
		{"return to a former boot", r.returnToBoot},
		{"send huge headers and parameters", r.hugeHeaders},
		{"send huge, deep and foreign bodies", r.hugeBodies},
		{"smuggle requests", r.smuggle},
		{"write slowly and read slowly", r.slowly},
	}
}

func (r requests) omitBoot(ctx context.Context, t *tally) error {
	for _, boot := range []string{"", strings.Repeat("b", 200), ""} {
		t.add(r.main.insist(ctx, request{operation: "plan", query: url.Values{"boot": {boot}}}))
	}
	return nil
}

// returnToBoot plays two machines with one key, with a host that is given up for that.
func (r requests) returnToBoot(ctx context.Context, t *tally) error {
	c, err := r.newCaller(source(3))
	if err != nil {
		return err
	}
	defer c.hangUp()
	t.enrolled(c.call(ctx, request{operation: "enrol", token: r.ManualToken, body: c.modest("first")}))
	t.add(c.poll(ctx, "", "first"))
	t.add(c.poll(ctx, "", "second"))
	const grace = 11 * time.Second
	if t.add(c.poll(ctx, "", "first")).status == http.StatusServiceUnavailable && !pause(ctx, grace) {
		return context.Cause(ctx)
	}
	t.add(c.poll(ctx, "", "first"))
	t.add(c.poll(ctx, "", "second"))
	return nil
}

func (r requests) hugeHeaders(ctx context.Context, t *tally) error {
	long := strings.Repeat("x", 64<<10)
	return r.both(func(c *caller) {
		for _, header := range []http.Header{
			{"Elemental-Home": {long}}, {"Elemental-Home": {long[:1000] + "/" + long[:1000]}}, {"Authorization": {"Bearer " + long[:8<<10]}}, {"Cookie": {long, long, long}},
		} {
			t.add(c.insist(ctx, request{operation: "plan", query: url.Values{"boot": {mainBoot}}, header: header}))
		}
		for _, parameter := range []string{"after", "boot"} {
			t.add(c.insist(ctx, request{operation: "plan", query: url.Values{"boot": {mainBoot}, parameter: {long[:4<<10]}}}))
		}
		t.add(c.insist(ctx, request{operation: "bootstrap", query: url.Values{"operation": {long[:4<<10]}}}))
	})
}

// endless is a JSON text that never ends.
type endless struct{ sent int }

func (e *endless) Read(p []byte) (int, error) {
	const most = 64 << 20
	if e.sent > most {
		return 0, io.EOF
	}
	n := copy(p, `{"hello":{"agentVersion":"`)
	if e.sent > 0 {
		n = copy(p, strings.Repeat("<", len(p)))
	}
	e.sent += n
	return n, nil
}

func (r requests) hugeBodies(ctx context.Context, t *tally) error {
	deep := []byte(`{"inventory":` + strings.Repeat(`{"a":[`, 40<<10) + strings.Repeat(`]}`, 40<<10) + `}`)
	return r.both(func(c *caller) {
		for _, operation := range []string{"enrol", "report"} {
			for _, body := range []any{
				&endless{}, []byte(`{"hello":{"agentVersion":"` + strings.Repeat("<", 300<<10) + `"}}`), deep, []byte(`[]`), []byte(`{} {}`), []byte{0xff, 0xfe, 0}, []byte(nil),
			} {
				t.add(c.insist(ctx, request{operation: operation, body: body}))
			}
			t.add(c.insist(ctx, request{operation: operation, body: []byte(`{}`), header: http.Header{"Content-Type": {"application/xml"}}}))
			t.add(c.insist(ctx, request{operation: operation, body: []byte(`{}`), header: http.Header{"Content-Encoding": {"gzip"}, "Content-Type": {"text/plain"}}}))
		}
	})
}

// smuggle sends requests of HTTP/1.1 that two parsers could understand differently.
func (r requests) smuggle(ctx context.Context, t *tally) error {
	inner := "GET /v1/bootstrap?operation=" + url.QueryEscape(r.Victim.Operation) + " HTTP/1.1\r\nHost: x\r\nElemental-Home: " + r.Victim.Namespace + "/" + r.Victim.Name + "\r\n\r\n"
	for _, text := range []string{
		"POST /v1/report HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"POST /v1/report HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 400\r\n\r\n" + inner,
		"GET /v1/plan HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" + inner,
		"GET http://" + r.Victim.Address + "/v1/plan HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n" + inner,
		"CONNECT " + r.Victim.Address + ":443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + inner,
	} {
		conn, err := r.main.handshake(ctx, "")
		if err != nil {
			t.count("closed")
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, text)
		answers := bufio.NewReader(io.LimitReader(conn, maxAnswer))
		for {
			response, err := http.ReadResponse(answers, nil)
			if err != nil {
				break
			}
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			r.search(response.Header, body)
			t.add(answer{status: response.StatusCode, body: body})
		}
		t.count("closed")
		_ = conn.Close()
	}
	return nil
}

// slowly sends headers and bodies a byte a second, and does not read answers. It counts how many connections the manager
// has closed by itself in time.
func (r requests) slowly(ctx context.Context, t *tally) error {
	var group sync.WaitGroup
	for i := range slow {
		c, err := r.newCaller(source(10 + i))
		if err != nil {
			return err
		}
		group.Go(func() {
			conn, err := c.handshake(ctx, "")
			if err != nil {
				t.count("closed")
				return
			}
			defer func() { _ = conn.Close() }()
			text := "POST /v1/enrol HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
			if i%2 == 0 {
				text = text[:len(text)-2] + "X-Slow: "
			}
			t.count(trickle(ctx, conn, text))
		})
	}
	group.Wait()
	return nil
}

// trickle sends a text and then a byte a second. It returns "closed" when the peer closes the connection, or "open".
func trickle(ctx context.Context, conn net.Conn, text string) string {
	const limit = 50
	if _, err := io.WriteString(conn, text); err != nil {
		return "closed"
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, conn)
	}()
	for range limit {
		if _, err := fmt.Fprint(conn, "x"); err != nil {
			return "closed"
		}
		select {
		case <-ended:
			return "closed"
		case <-ctx.Done():
			return "open"
		case <-time.After(time.Second):
		}
	}
	return "open"
}
