package tunnel

import (
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// 100 stalled streams of a tunnel over TLS keep no other from its exchanges. The log has what
// they cost: times are measured in turn with a tunnel without such streams, because a busy
// machine slows both.
func TestStalledStreamsDelayNoOther(t *testing.T) {
	const exchanges = 500
	quiet, stopQuiet := exchanger(t, 0)
	defer stopQuiet()
	crowded, stopCrowded := exchanger(t, 100)
	defer stopCrowded()
	var alone, among []time.Duration
	for range exchanges {
		alone, among = append(alone, quiet()), append(among, crowded())
	}
	t.Logf("p99 %s without stalled streams, %s with them", p99(alone), p99(among))
}

// exchanger returns a function that measures a request and its answer on a stream of a tunnel
// over TLS, which has a number of streams that nobody reads at either end.
func exchanger(t *testing.T, stalled int) (exchange func() time.Duration, stop func()) {
	t.Helper()
	session, accepted, stopSession := overTLS(t)
	open := func() (net.Conn, net.Conn) {
		conn, err := session.Dial(t.Context(), apiServer)
		if err != nil {
			t.Fatal(err)
		}
		return conn, <-accepted
	}
	conn, target := open()
	targets := []net.Conn{target}
	var filling sync.WaitGroup
	for range stalled {
		conn, target := open()
		targets = append(targets, target)
		filling.Go(func() { fill(t, conn) })
		filling.Go(func() { fill(t, target) })
	}
	filling.Wait()
	go func() { _, _ = io.Copy(target, target) }()
	buffer := make([]byte, 512)
	exchange = func() time.Duration {
		began := time.Now()
		if _, err := conn.Write(buffer); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, buffer); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	return exchange, func() {
		stopSession()
		for _, target := range targets {
			_ = target.Close()
		}
	}
}

// fill writes until nothing more is taken for a while.
func fill(t *testing.T, to net.Conn) {
	t.Helper()
	chunk := make([]byte, 64<<10)
	for {
		if err := to.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Error(err)
			return
		}
		if _, err := to.Write(chunk); err != nil {
			return
		}
	}
}

func p99(durations []time.Duration) time.Duration {
	slices.Sort(durations)
	return durations[len(durations)*99/100]
}
