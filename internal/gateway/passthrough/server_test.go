package passthrough

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// One source may have three quarters of all connections, and all together no more than
// the limit.
func TestLimits_All(t *testing.T) {
	hello := clientHello("known.example.com")
	r := start(t, dialTo(serve(t, echo(hello))), func(o *Options) { o.MaxConnections = 4 })
	var open []net.Conn
	for n := range 3 {
		open = append(open, r.send(t, hello, "127.0.0.1"))
		r.waitForOpen(0, n+1)
	}
	r.expectNoPlace(t, "127.0.0.1")
	r.waitForResults(tooMany, 1)
	open = append(open, r.send(t, hello, "127.0.0.2"))
	r.waitForOpen(0, 4)
	r.expectNoPlace(t, "127.0.0.3")
	r.waitForResults(tooMany, 2)
	for _, conn := range open {
		r.expectEcho(conn, "still served")
	}
	r.Expect(open[0].Close()).To(Succeed())
	r.waitForOpen(0, 3)
	r.expectEcho(r.send(t, hello, "127.0.0.3"), "has the place")
}

// One source may have half of the connections that are not routed. A source that has none
// takes a place of the one that has the most, and they hold no place of routed ones.
func TestLimits_Unrouted(t *testing.T) {
	hello := clientHello("known.example.com")
	r := start(t, dialTo(serve(t, echo(hello))), func(o *Options) { o.MaxUnrouted = 4 })
	r.expectEcho(r.send(t, hello, "127.0.0.1"), "routed")
	silent := []*net.TCPConn{}
	for n, from := range []string{"127.0.0.1", "127.0.0.1", "127.0.0.2"} {
		silent = append(silent, r.dial(t, from))
		r.waitForOpen(n+1, 1)
	}
	r.expectNoPlace(t, "127.0.0.1")
	r.waitForResults(tooMany, 1)
	r.dial(t, "127.0.0.3")
	r.waitForOpen(4, 1)

	r.expectEcho(r.send(t, hello, "127.0.0.4"), "routed") // in place of the oldest
	r.expectReset(silent[0])
	r.waitForResults(displaced, 1)
	r.waitForOpen(3, 2)

	r.dial(t, "127.0.0.5")
	r.waitForOpen(4, 2)
	r.expectNoPlace(t, "127.0.0.6") // all have one
	r.waitForResults(tooMany, 2)
	r.waitForResults(routed, 2)
}

// failingListener fails before it accepts connections.
type failingListener struct {
	net.Listener
	failures atomic.Int32
	err      error
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.failures.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", l.err)}
	}
	return l.Listener.Accept()
}

// While too many files are open, the server tries again, ever less often.
func TestAccept_TooManyFiles(t *testing.T) {
	hello := clientHello("known.example.com")
	failing := &failingListener{err: syscall.EMFILE}
	failing.failures.Store(10)
	r := start(t, dialTo(serve(t, echo(hello))), func(o *Options) {
		failing.Listener, o.Listener = o.Listener, failing
	})
	conn := r.send(t, hello)
	pause := 5 * time.Millisecond
	for n := range 10 {
		r.Eventually(r.clock.HasWaiters).WithTimeout(patience).Should(BeTrue())
		r.Expect(failing.failures.Load()).To(BeEquivalentTo(9 - n))
		r.clock.Step(pause - 1)
		r.Expect(r.clock.HasWaiters()).To(BeTrue())
		r.clock.Step(1)
		pause = min(2*pause, time.Second)
	}
	r.expectEcho(conn, "served after all")
}

// A listener that fails for good ends the server, and its connections.
func TestAccept_Fails(t *testing.T) {
	failing := &failingListener{err: syscall.EBADF}
	failing.failures.Store(1)
	r := start(t, dialTo(""), func(o *Options) { failing.Listener, o.Listener = o.Listener, failing })
	r.Eventually(r.stopped).WithTimeout(patience).Should(Receive(MatchError(syscall.EBADF)))
}

// A server that stops accepts nothing, ends what is not routed and lets others go on until
// they end by themselves.
func TestDrain(t *testing.T) {
	hello := clientHello("known.example.com")
	r := start(t, dialTo(serve(t, echo(hello))))
	conn := r.send(t, hello)
	r.expectEcho(conn, "before")
	silent := r.dial(t)
	r.waitForOpen(1, 1)
	r.stop()
	r.expectReset(silent)
	r.waitForOpen(0, 1)
	r.waitForResults(draining, 1)
	_, err := r.options.Listener.Accept()
	r.Expect(err).To(MatchError(net.ErrClosed))
	r.expectEcho(conn, "after")
	r.Expect(conn.Close()).To(Succeed())
	r.Eventually(r.stopped).WithTimeout(patience).Should(Receive(BeNil()))
}

// The grace time bounds how long connections go on.
func TestDrain_Grace(t *testing.T) {
	hello := clientHello("known.example.com")
	r := start(t, dialTo(serve(t, echo(hello))))
	conn := r.send(t, hello)
	r.expectEcho(conn, "before")
	r.stop()
	r.Eventually(r.timers.Len).WithTimeout(patience).Should(Equal(1))
	r.step(defaultDrainTimeout - 1)
	r.expectEcho(conn, "after")
	r.Expect(r.stopped).NotTo(Receive())
	r.step(1)
	_, err := conn.Read(make([]byte, 1))
	r.Expect(err).To(MatchError(io.EOF))
	r.Eventually(r.stopped).WithTimeout(patience).Should(Receive(BeNil()))
}

// Without a listener of its caller, a server listens on an address itself. Here the address
// is in use.
func TestAddress(t *testing.T) {
	var other net.Listener
	r := start(t, dialTo(""), func(o *Options) {
		other = o.Listener
		o.Address, o.Listener = other.Addr().String(), nil
	})
	r.Eventually(r.stopped).WithTimeout(patience).Should(Receive(MatchError(syscall.EADDRINUSE)))
	r.Expect(other.Close()).To(Succeed())
}

func TestNew_Invalid(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"refusal before the end of the ClientHello": func(o *Options) { o.HelloTimeout, o.RefuseAfter = 2*time.Second, time.Second },
		"an outcome that exists":                    func(o *Options) { o.DialErrors = map[string]error{"routed": io.EOF} },
		"an outcome without a name":                 func(o *Options) { o.DialErrors = map[string]error{"": io.EOF} },
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Router: dialTo(""), Metrics: prometheus.NewRegistry(), Clock: clock.RealClock{}}
			_, err := New(o)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			o.Metrics = prometheus.NewRegistry()
			change(&o)
			_, err = New(o)
			NewWithT(t).Expect(err).To(HaveOccurred())
		})
	}
	t.Run("metrics of another server", func(t *testing.T) {
		o := Options{Router: dialTo(""), Metrics: prometheus.NewRegistry(), Clock: clock.RealClock{}}
		_, err := New(o)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		_, err = New(o)
		_, is := errors.AsType[prometheus.AlreadyRegisteredError](err)
		NewWithT(t).Expect(is).To(BeTrue())
	})
}
