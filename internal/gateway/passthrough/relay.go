package passthrough

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// waitingBuffer is what a direction without traffic holds. Most events of a watch fit.
	waitingBuffer = 4 << 10
	// copyBuffer is what a direction holds while its source has more than waitingBuffer.
	copyBuffer = 32 << 10
)

// halfCloser is a connection whose writing end can be closed.
type halfCloser interface {
	CloseWrite() error
}

// relay copies between the two ends of routed connections.
type relay struct {
	buffers sync.Pool
	metrics *metrics
}

func newRelay(m *metrics) *relay {
	return &relay{metrics: m, buffers: sync.Pool{New: func() any { return new([copyBuffer]byte) }}}
}

// start copies in both directions, by two functions that run must run at the same time.
// The hello is sent to the cluster first. The end of one direction is passed on if both
// connections can be closed for writing only. Otherwise, and after an error, it is the end
// of both. done is called at the end, with nil or the first error.
func (r *relay) start(client, cluster net.Conn, hello []byte, run func(func()), done func(error)) {
	_, clientCan := client.(halfCloser)
	_, clusterCan := cluster.(halfCloser)
	var one atomic.Bool // one direction has ended
	var once sync.Once
	end := func(dst net.Conn, err error) {
		if half, ok := dst.(halfCloser); err == nil && ok && clientCan && clusterCan {
			if err = half.CloseWrite(); err == nil && one.CompareAndSwap(false, true) {
				return
			}
		}
		once.Do(func() { done(err) })
	}
	run(func() {
		n, err := cluster.Write(hello)
		r.metrics.toCluster.Add(float64(n))
		if err == nil {
			err = r.copy(cluster, client, r.metrics.toCluster)
		}
		end(cluster, err)
	})
	run(func() { end(client, r.copy(client, cluster, r.metrics.fromCluster)) })
}

// copy copies until src ends. It waits with a small buffer, because most connections are
// idle: with one of io.Copy, 10,000 of them would hold 640 MiB.
func (r *relay) copy(dst io.Writer, src io.Reader, count prometheus.Counter) error {
	waiting := make([]byte, waitingBuffer)
	for {
		full, err := forward(dst, src, waiting, count)
		if full && err == nil {
			buffer := r.buffers.Get().(*[copyBuffer]byte) // the pool holds these only
			for full && err == nil {
				full, err = forward(dst, src, buffer[:], count)
			}
			r.buffers.Put(buffer)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// forward reads once and writes what it has read. It reports whether that filled the
// buffer.
func forward(dst io.Writer, src io.Reader, buffer []byte, count prometheus.Counter) (full bool, err error) {
	n, err := src.Read(buffer)
	if n > 0 {
		written, failed := dst.Write(buffer[:n])
		count.Add(float64(written))
		if failed != nil {
			return false, failed
		}
	}
	return n == len(buffer), err
}
