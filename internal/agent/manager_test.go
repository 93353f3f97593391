package agent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

const token = "a-registration-token"

// manager is a fake manager for one host.
type manager struct {
	server *httptest.Server
	bundle string

	mu sync.Mutex
	// key is the recorded fingerprint, empty for no host. next is the key that the
	// host offered in a rotation, former the key before the last rotation.
	key, next, former string
	generation        int64
	// boot is the boot ID of the latest poll; retired has the earlier boot IDs.
	// locked is the reason of a lock, empty for a host that is not locked.
	boot    string
	retired map[string]bool
	locked  string
	plan    protocol.Plan
	// asks: the next poll is answered with the question for a report of the endpoint.
	asks       bool
	changed    chan struct{}
	data       []byte
	now        func() time.Time
	enrolments int
	fetches    int
	polls      int
	// polledFrom is the address that the latest poll came from.
	polledFrom string
	// taken is the plan revision of the latest poll.
	taken   string
	serving int
	// epoch counts the agent processes whose connections hangUp closed.
	epoch       int
	rotations   int
	reports     []protocol.Report
	operations  map[string]protocol.OperationReport
	cleanliness *protocol.Cleanliness
	enrolled    []protocol.EnrolRequest
	// hostLogs are the answers to requests for logs, by their IDs.
	hostLogs map[string][]protocol.HostLog
	tokens   []string
	// pending hosts are enrolled without being approved.
	pending bool
	// forgot are operations that the host's claim no longer names; unwanted counts the
	// reports that were refused for them.
	forgot   map[string]bool
	unwanted int
	// refuse, if set, runs before any handler; the manager sends its problem.
	refuse func(path string) *protocol.Problem
	// retryAfter, if set, is the Retry-After header of refusals, in seconds.
	retryAfter string
	// holdReport, if set, runs after a report was recorded, before it is answered.
	holdReport func()
	// tunnels are the host's sessions, the newest last.
	tunnels []*tunnel.Session
	// lose selects the requests that the manager handles without an answer.
	lose func(path string) bool
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{
		plan: protocol.Plan{Revision: "0"}, changed: make(chan struct{}), now: time.Now,
		operations: map[string]protocol.OperationReport{}, retired: map[string]bool{}, data: []byte("#cloud-config\n"),
	}
	certificate, bundle := serverCertificate(t, time.Now().Add(-time.Hour), time.Now().Add(365*24*time.Hour))
	m.bundle = bundle
	m.server = httptest.NewUnstartedServer(http.HandlerFunc(m.serve))
	m.server.EnableHTTP2 = true
	m.server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, epochKey{}, m.count(&m.epoch))
	}
	m.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	m.server.TLS = &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{certificate},
	}
	m.server.StartTLS()
	t.Cleanup(func() {
		m.server.CloseClientConnections()
		m.server.Close()
	})
	return m
}

// serverCertificate makes a root and a certificate for the loopback address.
func serverCertificate(t *testing.T, from, to time.Time) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(bundle)
}

// set changes the manager and wakes every await.
func (m *manager) set(change func(*manager)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
	close(m.changed)
	m.changed = make(chan struct{})
}

// want gives the host a plan.
func (m *manager) want(op *protocol.Operation, desired protocol.Desired) {
	m.set(func(m *manager) {
		revision, _ := strconv.Atoi(m.plan.Revision)
		m.plan = protocol.Plan{Revision: strconv.Itoa(revision + 1), Operation: op, Desired: desired}
	})
}

// await blocks until a condition holds.
func (m *manager) await(t *testing.T, what string, condition func(*manager) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		m.mu.Lock()
		met, changed := condition(m), m.changed
		m.mu.Unlock()
		if met {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("timed out waiting until %s; %s", what, m.describe())
		}
	}
}

func (m *manager) describe() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("operations %+v, %d polls, %d enrolments, %d rotations, locked %q",
		m.operations, m.polls, m.enrolments, m.rotations, m.locked)
}

// hangUp closes the connections of an agent process that has ended.
func (m *manager) hangUp(t *testing.T) {
	t.Helper()
	m.set(func(m *manager) { m.epoch++ })
	m.server.CloseClientConnections()
	m.await(t, "no request of the former process is open", func(m *manager) bool { return m.serving == 0 })
}

// ended is a condition: the manager received this state of the operation.
func ended(id string, state protocol.OperationState) func(*manager) bool {
	return func(m *manager) bool { return m.operations[id].State == state }
}

// taken is a condition: the host has accepted the plan.
func taken(m *manager) bool { return m.taken == m.plan.Revision }

// epochKey leads to the epoch of a connection.
type epochKey struct{}

func (m *manager) serve(w http.ResponseWriter, r *http.Request) {
	m.set(func(m *manager) { m.serving++ })
	defer m.set(func(m *manager) { m.serving-- })
	if epoch, known := r.Context().Value(epochKey{}).(int); known && epoch != m.count(&m.epoch) {
		panic(http.ErrAbortHandler)
	}
	key, err := identity.PeerFingerprint(r.TLS)
	if err != nil {
		problem(w, protocol.Problem{Status: http.StatusUnauthorized})
		return
	}
	m.mu.Lock()
	refuse, retryAfter, lose := m.refuse, m.retryAfter, m.lose
	m.mu.Unlock()
	if refuse != nil {
		if p := refuse(r.URL.Path); p != nil {
			if retryAfter != "" {
				w.Header().Set("Retry-After", retryAfter)
			}
			problem(w, *p)
			return
		}
	}
	known := m.authenticate(key, r.URL.Query().Get("boot"))
	if lose != nil && lose(r.URL.Path) {
		m.handle(httptest.NewRecorder(), r, key, known)
		panic(http.ErrAbortHandler)
	}
	m.handle(w, r, key, known)
}

// authenticate applies the manager's rules of two-phase rotation. The first use of
// the next key promotes it. A use of the former key locks the host, and so does a
// poll with a retired boot ID.
func (m *manager) authenticate(key, boot string) (known bool) {
	m.set(func(m *manager) {
		switch {
		case key == m.next:
			m.key, m.next, m.former = m.next, "", m.key
			m.generation++
		case key == m.former:
			m.locked = "the former key was used"
		}
		known = key == m.key && key != ""
		if !known || boot == "" || boot == m.boot {
			return
		}
		if m.retired[boot] {
			m.locked = "boot " + boot + " came back"
		}
		m.retired[m.boot], m.boot = true, boot
	})
	return known
}
