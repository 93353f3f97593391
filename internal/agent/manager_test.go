package agent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const token = "a-registration-token"

// manager speaks the server's side of protocol, for one host.
type manager struct {
	server *httptest.Server
	bundle string

	mu sync.Mutex
	// key is the fingerprint on record, "" when no host is known; next was
	// offered by the holder of key, former was replaced by it.
	key, next, former string
	generation        int64
	// boot polled last, the retired ones before it. locked says why the host is.
	boot       string
	retired    map[string]bool
	locked     string
	plan       protocol.Plan
	changed    chan struct{}
	data       []byte
	now        func() time.Time
	enrolments int
	fetches    int
	polls      int
	serving    int
	// epoch counts the processes on the host that were hung up on.
	epoch       int
	rotations   int
	reports     []protocol.Report
	operations  map[string]protocol.OperationReport
	cleanliness *protocol.Cleanliness
	enrolled    []protocol.EnrolRequest
	tokens      []string
	// pending hosts are enrolled without being approved.
	pending bool
	// forgot are operations that the host's claim no longer names.
	forgot map[string]bool
	// refuse is asked before anything else; a problem is sent instead.
	refuse func(path string) *protocol.Problem
	// lose makes the server do what it is asked and the answer get lost.
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

// set changes what the manager knows or wants, and wakes those who wait.
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
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
			t.Fatalf("waited in vain until %s; %s", what, m.describe())
		}
	}
}

func (m *manager) describe() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("operations %+v, %d polls, %d enrolments, %d rotations, locked %q",
		m.operations, m.polls, m.enrolments, m.rotations, m.locked)
}

// hangUp is what the end of the host's process does to its connections.
func (m *manager) hangUp(t *testing.T) {
	t.Helper()
	m.set(func(m *manager) { m.epoch++ })
	m.server.CloseClientConnections()
	m.await(t, "the requests of a process that is gone are over", func(m *manager) bool { return m.serving == 0 })
}

// ended is a condition: the manager heard of an operation's end.
func ended(id string, state protocol.OperationState) func(*manager) bool {
	return func(m *manager) bool { return m.operations[id].State == state }
}

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
	refuse, lose := m.refuse, m.lose
	m.mu.Unlock()
	if refuse != nil {
		if p := refuse(r.URL.Path); p != nil {
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

// authenticate has the manager's rules of two-phase rotation: the first use of
// the next key makes it the key; any use of the former one locks the host, and
// so does a poll of a boot that another has followed.
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

func (m *manager) handle(w http.ResponseWriter, r *http.Request, key string, known bool) {
	m.mu.Lock()
	locked := m.locked
	m.mu.Unlock()
	switch {
	case locked != "":
		problem(w, protocol.Problem{Type: protocol.ProblemLocked, Title: locked, Status: http.StatusForbidden})
	case r.URL.Path == protocol.PathEnrol:
		m.enrol(w, r, key, known)
	case !known:
		problem(w, protocol.Problem{Type: protocol.ProblemUnknownHost, Title: "Unknown host", Status: http.StatusForbidden})
	case r.URL.Path == protocol.PathPlan:
		m.poll(w, r)
	case r.URL.Path == protocol.PathBootstrap:
		m.bootstrap(w, r)
	case r.URL.Path == protocol.PathReport:
		m.report(w, r)
	case r.URL.Path == protocol.PathRotate:
		m.rotate(w, r, key)
	default:
		problem(w, protocol.Problem{Status: http.StatusNotFound})
	}
}

func (m *manager) enrol(w http.ResponseWriter, r *http.Request, key string, known bool) {
	var request protocol.EnrolRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, protocol.Problem{Status: http.StatusBadRequest})
		return
	}
	if !known && request.Previous == nil && r.Header.Get("Authorization") != "Bearer "+token {
		problem(w, protocol.Problem{Type: protocol.ProblemTokenRefused, Title: "Token refused", Status: http.StatusForbidden})
		return
	}
	m.set(func(m *manager) {
		if !known {
			m.key, m.next, m.former, m.generation = key, "", "", 1
		}
		m.enrolled = append(m.enrolled, request)
		m.tokens = append(m.tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		m.enrolments++
	})
	send(w, protocol.EnrolResponse{
		HostID: "id-1", Namespace: "fleet", Name: "host-1", Approved: !m.isPending(), Generation: 1, ServerTime: m.time(),
	})
}

func (m *manager) isPending() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pending
}

func (m *manager) poll(w http.ResponseWriter, r *http.Request) {
	m.set(func(m *manager) { m.polls++ })
	for {
		m.mu.Lock()
		plan, changed := m.plan, m.changed
		known := true
		if key, err := identity.PeerFingerprint(r.TLS); err != nil || key != m.key {
			known = false
		}
		locked := m.locked
		m.mu.Unlock()
		if locked != "" {
			problem(w, protocol.Problem{Type: protocol.ProblemLocked, Title: locked, Status: http.StatusForbidden})
			return
		}
		if !known {
			problem(w, protocol.Problem{Type: protocol.ProblemUnknownHost, Title: "Unknown host", Status: http.StatusForbidden})
			return
		}
		if plan.Revision != r.URL.Query().Get("after") {
			plan.ServerTime = m.time()
			send(w, plan)
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (m *manager) bootstrap(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	op, data := m.plan.Operation, m.data
	m.mu.Unlock()
	if op == nil || op.ID != r.URL.Query().Get("operation") || m.heard(op.ID).Final() {
		problem(w, protocol.Problem{Type: protocol.ProblemNoOperation, Title: "No such operation", Status: http.StatusNotFound})
		return
	}
	m.set(func(m *manager) { m.fetches++ })
	w.Header().Set(protocol.HeaderBootstrapFormat, protocol.FormatCloudConfig)
	_, _ = w.Write(data)
}

func (m *manager) time() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now()
}

// count reads a number that the server may change meanwhile.
func (m *manager) count(number *int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *number
}

// known is the key on record.
func (m *manager) known() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key
}

func (m *manager) heard(id string) protocol.OperationState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.operations[id].State
}

func (m *manager) report(w http.ResponseWriter, r *http.Request) {
	var report protocol.Report
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
		problem(w, protocol.Problem{Status: http.StatusBadRequest})
		return
	}
	for _, op := range report.Operations {
		m.mu.Lock()
		forgot := m.forgot[op.ID]
		m.mu.Unlock()
		if forgot {
			problem(w, protocol.Problem{Type: protocol.ProblemNoOperation, Title: "No such operation", Status: http.StatusConflict})
			return
		}
	}
	m.set(func(m *manager) {
		m.reports = append(m.reports, report)
		for _, op := range report.Operations {
			m.operations[op.ID] = op
		}
		if report.Cleanliness != nil {
			m.cleanliness = report.Cleanliness
		}
	})
	w.WriteHeader(http.StatusNoContent)
}

func (m *manager) rotate(w http.ResponseWriter, r *http.Request, key string) {
	var request protocol.RotateRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, protocol.Problem{Status: http.StatusBadRequest})
		return
	}
	next, err := identity.VerifyRotation(request.PublicKey, request.Signature, key)
	if err != nil {
		problem(w, protocol.Problem{Status: http.StatusBadRequest})
		return
	}
	refused := false
	m.set(func(m *manager) {
		switch {
		case request.Generation != m.generation:
			m.locked = "a wrong generation"
		case m.next != "" && m.next != next:
			m.locked = "a second next key"
		default:
			m.next = next
			m.rotations++
		}
		refused = m.locked != ""
	})
	if refused {
		problem(w, protocol.Problem{Type: protocol.ProblemLocked, Title: "Locked", Status: http.StatusForbidden})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func send(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func problem(w http.ResponseWriter, p protocol.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}
