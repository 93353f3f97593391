package passthrough

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// refusedCase is a connection that is not routed, for a reason that the caller must not see.
type refusedCase struct {
	send []byte
	dial func(ctx context.Context) (net.Conn, error)
	want outcome
	// waits: the outcome is known only after so long.
	waits time.Duration
}

func refusedCases() map[string]refusedCase {
	known := clientHello("known.example.com")
	fails := func(err error) func(context.Context) (net.Conn, error) {
		return func(context.Context) (net.Conn, error) { return nil, err }
	}
	cases := map[string]refusedCase{
		"unknown name":         {send: clientHello("unknown.example.com"), dial: fails(errNoRoute), want: "no_route"},
		"forbidden":            {send: known, dial: fails(errForbidden), want: "forbidden"},
		"refused":              {send: known, dial: fails(errRefused), want: "refused"},
		"filtered":             {send: known, dial: fails(errors.Join(io.ErrUnexpectedEOF, errFiltered)), want: "filtered"},
		"absent":               {send: known, dial: fails(errAbsent), want: "absent"},
		"another error":        {send: known, dial: fails(io.ErrUnexpectedEOF), want: dialFailed},
		"nothing sent":         {want: tooSlow, waits: defaultHelloTimeout},
		"half a ClientHello":   {send: known[:len(known)/2], want: tooSlow, waits: defaultHelloTimeout},
		"nothing but a record": {send: known[:recordHeader], want: tooSlow, waits: defaultHelloTimeout},
		"dial without answer": {
			send: known, want: dialTimeout, waits: defaultRefuseAfter,
			dial: func(ctx context.Context) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		},
	}
	for name, bad := range badHellos() {
		cases[name] = refusedCase{send: bad.send, want: bad.want}
	}
	return cases
}

// Every connection that is not routed is closed at the same time and in the same way, and
// nothing of it is logged by default.
func TestRefused(t *testing.T) {
	for name, test := range refusedCases() {
		t.Run(name, func(t *testing.T) {
			dialing := make(chan string, 1)
			r := start(t, routerFunc(func(ctx context.Context, serverName string) (net.Conn, error) {
				dialing <- serverName
				return test.dial(ctx)
			}))
			conn := r.send(t, test.send)
			r.waitForOpen(1, 0)
			switch {
			case test.dial != nil:
				r.Eventually(dialing).WithTimeout(patience).Should(Receive(HaveSuffix("known.example.com")))
			case test.waits == 0:
				r.waitForResults(test.want, 1)
			}
			r.step(defaultHelloTimeout)
			if test.waits < defaultRefuseAfter {
				r.waitForResults(test.want, 1)
			}
			r.step(defaultRefuseAfter - defaultHelloTimeout - 1)
			r.waitForOpen(1, 0)
			r.step(1)
			r.waitForOpen(0, 0)
			r.expectReset(conn)
			r.waitForResults(test.want, 1)
			r.Expect(dialing).To(BeEmpty())
			r.Expect(r.lines.Load()).To(BeEquivalentTo(1), "the line of the start")
		})
	}
}

// A router that has a connection too late has it closed, and the caller sees no difference.
func TestRefused_LateConnection(t *testing.T) {
	dialing, proceed := make(chan struct{}), make(chan struct{})
	near, far := net.Pipe()
	r := start(t, routerFunc(func(context.Context, string) (net.Conn, error) {
		close(dialing)
		<-proceed
		return near, nil
	}))
	conn := r.send(t, clientHello("known.example.com"))
	r.Eventually(dialing).WithTimeout(patience).Should(BeClosed())
	r.step(defaultRefuseAfter)
	r.expectReset(conn)
	close(proceed)
	_, err := far.Read(make([]byte, 1))
	r.Expect(err).To(MatchError(io.EOF))
	r.waitForResults(dialTimeout, 1)
	r.Expect(r.result(routed)).To(BeZero())
}

// A caller that ends its connection before its ClientHello is complete holds no place.
func TestRefused_CallerEnds(t *testing.T) {
	r := start(t, dialTo(""))
	hello := clientHello("known.example.com")
	for n, send := range [][]byte{nil, hello[:1], hello[:len(hello)-1]} {
		conn := r.send(t, send)
		r.Expect(conn.CloseWrite()).To(Succeed())
		r.waitForResults(incomplete, n+1)
		r.expectReset(conn)
	}
	r.waitForOpen(0, 0)
}

// A ClientHello in single bytes and in two records is passed on as it is. Names are in
// lower case for the router, and the time for the ClientHello does not bound what follows.
func TestRouted_Pieces(t *testing.T) {
	hello := clientHello("KNOWN.example.com")
	for name, pieces := range map[string][]byte{"whole": hello, "two records": fragment(hello, len(hello)/2), "records of a byte": fragment(hello, 1)} {
		t.Run(name, func(t *testing.T) {
			to := dialTo(serve(t, echo(pieces)))
			r := start(t, routerFunc(func(ctx context.Context, serverName string) (net.Conn, error) {
				if serverName != "known.example.com" {
					return nil, errNoRoute
				}
				return to.Dial(ctx, serverName)
			}))
			conn := r.dial(t)
			r.Expect(conn.SetNoDelay(true)).To(Succeed())
			for i := range pieces {
				_, err := conn.Write(pieces[i : i+1])
				r.Expect(err).NotTo(HaveOccurred())
			}
			r.expectEcho(conn, "first")
			r.step(10 * defaultRefuseAfter)
			r.waitForOpen(0, 1)
			r.expectEcho(conn, "second")
			r.waitForResults(routed, 1)
		})
	}
}
