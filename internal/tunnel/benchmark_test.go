package tunnel

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// Each benchmark has a counterpart without the tunnel: TLS over the same loopback.

func BenchmarkThroughput(b *testing.B) {
	for _, streams := range []int{1, 8} {
		for _, direction := range []string{"down", "up"} {
			b.Run(fmt.Sprintf("tunnel/%s/%d", direction, streams), func(b *testing.B) {
				session, accepted, stop := overTLS(b)
				defer stop()
				measure(b, streams, direction == "up", func() (net.Conn, net.Conn) {
					conn, err := session.Dial(b.Context(), apiServer)
					if err != nil {
						b.Fatal(err)
					}
					return conn, <-accepted
				})
			})
			b.Run(fmt.Sprintf("direct/%s/%d", direction, streams), func(b *testing.B) {
				measure(b, streams, direction == "up", func() (net.Conn, net.Conn) { return direct(b) })
			})
		}
	}
}

// direct returns both ends of a TLS connection after its handshake.
func direct(b *testing.B) (net.Conn, net.Conn) {
	b.Helper()
	manager, agent := encrypted(b)
	done := make(chan error, 1)
	go func() { done <- agent.Handshake() }()
	if err := manager.Handshake(); err != nil {
		b.Fatal(err)
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return manager, agent
}

// measure sends chunks over several streams at once.
func measure(b *testing.B, streams int, up bool, open func() (net.Conn, net.Conn)) {
	b.Helper()
	const chunk = 64 << 10
	type pair struct{ from, to net.Conn }
	pairs := make([]pair, streams)
	defer func() {
		for _, p := range pairs {
			_, _ = p.from.Close(), p.to.Close()
		}
	}()
	for i := range pairs {
		conn, target := open()
		pairs[i] = pair{target, conn}
		if up {
			pairs[i] = pair{conn, target}
		}
	}
	b.SetBytes(chunk)
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for i, p := range pairs {
		share := b.N / streams
		if i < b.N%streams {
			share++
		}
		all.Go(func() {
			buffer := make([]byte, chunk)
			for range share {
				if _, err := p.from.Write(buffer); err != nil {
					b.Error(err)
					return
				}
			}
		})
		all.Go(func() {
			if _, err := io.CopyN(io.Discard, p.to, int64(share)*chunk); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
}

func BenchmarkLatency(b *testing.B) {
	b.Run("tunnel", func(b *testing.B) {
		session, accepted, stop := overTLS(b)
		defer stop()
		conn, err := session.Dial(b.Context(), apiServer)
		if err != nil {
			b.Fatal(err)
		}
		pingPong(b, conn, <-accepted)
	})
	b.Run("direct", func(b *testing.B) {
		manager, agent := direct(b)
		pingPong(b, manager, agent)
	})
}

// pingPong reports the median of a round trip of 64 bytes.
func pingPong(b *testing.B, conn, target net.Conn) {
	b.Helper()
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		_, _ = io.Copy(target, target)
	}()
	defer func() {
		_, _ = conn.Close(), target.Close()
		<-echoed
	}()
	message := make([]byte, 64)
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		if _, err := conn.Write(message); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, message); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

// BenchmarkIdle reports the memory of both sides of an idle tunnel, and of an idle
// stream, without sockets: beside a TLS connection alone.
func BenchmarkIdle(b *testing.B) {
	b.Run("tls", func(b *testing.B) {
		idle(b, func() func() {
			manager, agent := direct(b)
			return func() { _, _ = manager.Close(), agent.Close() }
		})
	})
	b.Run("tunnel", func(b *testing.B) {
		idle(b, func() func() {
			_, _, stop := overTLS(b)
			return stop
		})
	})
	b.Run("manager", func(b *testing.B) {
		idle(b, func() func() {
			manager, agent := encrypted(b)
			child := make(chan struct{})
			go func() {
				defer close(child)
				answerOnce(agent)
			}()
			session, err := NewSession(b.Context(), manager)
			if err != nil {
				b.Fatal(err)
			}
			return func() {
				session.Close(nil)
				<-child
			}
		})
	})
	b.Run("stream", func(b *testing.B) {
		session, accepted, stop := overTLS(b)
		defer stop()
		idle(b, func() func() {
			conn, err := session.Dial(b.Context(), apiServer)
			if err != nil {
				b.Fatal(err)
			}
			target := <-accepted
			return func() { _, _ = conn.Close(), target.Close() }
		})
	})
}

// answerOnce is an agent that takes little memory: it answers the first question.
func answerOnce(agent net.Conn) {
	preface, head := make([]byte, 24), make([]byte, frameHeaderLength)
	if _, err := io.ReadFull(agent, preface); err != nil {
		return
	}
	settings := []byte{0, 0, 6, typeSettings, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, maxStreams + 1}
	_, _ = agent.Write(append(settings, 0, 0, 0, typeSettings, 1, 0, 0, 0, 0))
	for {
		if _, err := io.ReadFull(agent, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, agent, int64(head[1])<<8|int64(head[2])); err != nil {
			return
		}
		if head[3] == 1 { // HEADERS: the answer 204
			_, _ = agent.Write([]byte{0, 0, 1, 1, 5, 0, 0, 0, 1, 0x89})
		}
	}
}

// idle reports the bytes of heap and stacks of each of 100 things.
func idle(b *testing.B, open func() (stop func())) {
	b.Helper()
	const count = 100
	for b.Loop() {
		var stops []func()
		before := inUse()
		for range count {
			stops = append(stops, open())
		}
		b.ReportMetric(float64(inUse()-before)/count, "B/idle")
		for _, stop := range stops {
			stop()
		}
	}
}

func inUse() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
