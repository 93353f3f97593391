package probe_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock advances only when a test calls pass or pause.
type clock struct {
	mu      sync.Mutex
	now     time.Time
	waiters map[chan struct{}]wait
	// timeouts counts the Waits for a probe's timeout since the start.
	timeouts int32
	changed  chan struct{}
}

type wait struct {
	until time.Time
	long  time.Duration
}

func newClock() *clock {
	return &clock{now: time.Now(), waiters: map[chan struct{}]wait{}, changed: make(chan struct{}, 1)}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	over := make(chan struct{})
	c.waiters[over] = wait{c.now.Add(d), d}
	if d == timeout {
		c.timeouts++
	}
	c.mu.Unlock()
	c.notify()
	defer c.notify()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiters, over)
		c.mu.Unlock()
		return ctx.Err()
	}
}

// notify wakes waitFor.
func (c *clock) notify() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// timeout is that of a probe; waits of another length are between probes.
const timeout = 3 * time.Second

// pass blocks until there is exactly one Wait, either for a probe's timeout or
// between probes, and ready returns true. Then it ends the Wait and returns by how
// much the clock advanced. It calls ready with the clock locked.
func (c *clock) pass(t *testing.T, isTimeout bool, ready func() bool) time.Duration {
	t.Helper()
	var passed time.Duration
	c.waitFor(t, func() (ok bool) {
		passed, ok = c.tryPass(isTimeout, ready)
		return ok
	})
	return passed
}

// waitFor blocks until a condition is true. It checks it after each notify.
func (c *clock) waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for !condition() {
		select {
		case <-c.changed:
		case <-limit:
			t.Fatal("timed out waiting for the prober")
		}
	}
}

func (c *clock) tryPass(isTimeout bool, ready func() bool) (passed time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiters) != 1 {
		return 0, false
	}
	for over, w := range c.waiters {
		if (w.long == timeout) == isTimeout && ready() {
			passed, ok = w.until.Sub(c.now), true
			c.now = w.until
			close(over)
			delete(c.waiters, over)
		}
	}
	return passed, ok
}

// pause advances the clock to the next probes.
func (c *clock) pause(t *testing.T) time.Duration {
	t.Helper()
	return c.pass(t, false, func() bool { return true })
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func (a *authority) issue(names ...string) tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

// server is an API server.
type server struct {
	*httptest.Server

	status      atomic.Int32
	connections atomic.Int32
	requests    atomic.Int32
	// received is called for each request before the response.
	received func()
	// hangs makes requests block until the client cancels them.
	hangs atomic.Bool
}

func newServer(t *testing.T, certificate tls.Certificate) *server {
	t.Helper()
	s := &server{received: func() {}}
	s.status.Store(http.StatusOK)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		s.received()
		if s.hangs.Load() {
			<-r.Context().Done()
			return
		}
		status := int(s.status.Load())
		if r.URL.Path != "/readyz" || r.Method != http.MethodGet {
			status = http.StatusTeapot
		}
		w.Header().Set("Location", "https://elsewhere.test/readyz")
		w.WriteHeader(status)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// Addresses of the cluster; they exist only in rig.dial.
const (
	endpoint = "192.0.2.1"
	local    = "192.0.2.2"
)

// rig is a control-plane host that probes.
type rig struct {
	t     *testing.T
	root  string
	ca    *authority
	clock *clock
	local []string
	rand  float64

	mu sync.Mutex
	// servers are the API servers by host:port.
	servers map[string]*server
	dialled []string
	states  chan probe.State
	// wrap, if set, wraps the connections.
	wrap func(net.Conn) net.Conn
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		t: t, root: t.TempDir(), ca: newAuthority(t), clock: newClock(), local: []string{local}, servers: map[string]*server{},
		states: make(chan probe.State, 100),
	}
	r.write("/etc/kubernetes/pki/ca.crt", string(r.ca.pem))
	r.servers[endpoint+":6443"] = newServer(t, r.ca.issue(endpoint))
	r.servers[local+":6443"] = newServer(t, r.ca.issue(local, "kubernetes", "10.96.0.1"))
	for _, s := range r.servers {
		s.received = r.clock.notify
	}
	return r
}

func (r *rig) write(name, content string) {
	r.t.Helper()
	path := filepath.Join(r.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dialled = append(r.dialled, address)
	server := r.servers[address]
	r.mu.Unlock()
	if server == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New(address + " refused")}
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	if err == nil && r.wrap != nil {
		c = r.wrap(c)
	}
	return c, err
}

func (r *rig) listen(address string, s *server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers[address] = s
}

func (r *rig) hasDialled(address string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.dialled, address)
}

// start probes until the test ends or stop is called.
func (r *rig) start() (stop func()) {
	prober := probe.New(probe.Options{
		Root: r.root, LocalAddresses: func() []string { return r.local }, Clock: r.clock, Rand: func() float64 { return r.rand }, Dial: r.dial,
	})
	ctx, cancel := context.WithCancel(r.t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		prober.Probe(ctx, probe.Target{Host: endpoint, Port: 6443, ServerPort: 6443}, func(s probe.State) { r.states <- s })
	}()
	stop = func() {
		cancel()
		<-over
	}
	r.t.Cleanup(stop)
	return stop
}

// await returns the first state for which isWanted returns true.
func (r *rig) await(what string, isWanted func(probe.State) bool) probe.State {
	r.t.Helper()
	for {
		select {
		case s := <-r.states:
			if isWanted(s) {
				return s
			}
		case <-time.After(time.Minute):
			r.t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// conclusive reports whether the state of both servers is conclusive.
func conclusive(s probe.State) bool { return s.Endpoint.Conclusive && s.APIServer.Conclusive }
