//go:build embedded

package main_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

const (
	// visits is the time between two visits of an honest user.
	visits = 100 * time.Millisecond
	// visitTimeout bounds a visit.
	visitTimeout = 10 * time.Second
	// intruders is how many connections the hostile tenant keeps making to its own cluster: more than a tunnel has streams.
	intruders = 300
)

// endpointName is the name of the endpoint of a cluster of type Tunnel.
func endpointName(namespace, cluster string) string {
	return fmt.Sprintf("%s-endpoint.%s.svc.cluster.local", cluster, namespace)
}

// apiServer starts a server with TLS, and returns its address.
func (w *world) apiServer() string {
	w.t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(out, "ok") }))
	w.t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// visit connects to a cluster through the gateway, from an address, and requests something.
func (w *world) visit(ctx context.Context, from net.IP, name string) error {
	ctx, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}).DialContext(ctx, network, w.gateway)
		},
		// The test's server has another name.
		TLSClientConfig: &tls.Config{ServerName: name, InsecureSkipVerify: true},
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+name, http.NoBody)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.ReadAll(response.Body)
	return err
}

// visitor visits a cluster again and again.
type visitor struct {
	stop func()

	mu    sync.Mutex
	took  []time.Duration
	fails []error
}

// visitAgain visits a cluster until stop is called.
func (w *world) visitAgain(name string) *visitor {
	v := &visitor{}
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	v.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	w.t.Cleanup(v.stop)
	running.Go(func() {
		tick := time.NewTicker(visits)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			began := time.Now()
			err := w.visit(ctx, net.IPv4(127, 0, 0, 1), name)
			if ctx.Err() != nil {
				return
			}
			v.mu.Lock()
			if err != nil {
				v.fails = append(v.fails, err)
			} else {
				v.took = append(v.took, time.Since(began))
			}
			v.mu.Unlock()
		}
	})
	return v
}

// intrude keeps making connections to the hostile tenant's cluster, and holds each as long as the gateway lets it. It
// returns how many were tried so far.
func (w *world) intrude(name string) (tried *atomic.Int64, stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	tried = &atomic.Int64{}
	for i := range intruders {
		running.Go(func() {
			for ctx.Err() == nil {
				tried.Add(1)
				_ = w.visit(ctx, net.IPv4(127, 252, 0, byte(1+i%200)), name)
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	w.t.Cleanup(stop)
	return tried, stop
}

// checkTunnels checks that nobody lost a connection to another tenant's cluster, and that the manager holds no more than
// it may of hostile tunnels.
func (w *world) checkTunnels(results map[string]result, v *visitor, h *honest, before, after uint64) {
	w.t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	w.t.Logf("%d visits of another tenant's cluster beside the rogue: p50 %s, p99 %s, longest %s; the manager has %d MiB, before %d MiB",
		len(v.took), measure.Quantile(v.took, 0.5), measure.Quantile(v.took, 0.99), measure.Quantile(v.took, 1), after>>20, before>>20)
	w.Expect(v.fails).To(BeEmpty(), "of %d visits", len(v.took)+len(v.fails))
	w.Expect(h.opened.Load()).To(BeEquivalentTo(1), "the honest host's tunnel has lasted")
	for _, attempt := range []string{"answer no dial of a tunnel", "stall all streams of a tunnel"} {
		w.Expect(results[attempt].Answers["dials"]).To(BeNumerically(">", 0), attempt)
		w.Expect(results[attempt].Answers["at once"]).To(BeNumerically("<=", maxStreams), attempt)
	}
	w.Expect(results["open tunnels and say nothing"].Answers["closed"]).To(Equal(results["open tunnels and say nothing"].Answers["101"]))
	w.Expect(after).To(BeNumerically("<", before+maxGrowth))
}
