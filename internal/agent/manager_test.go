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
	// key is the fingerprint on record, "" when no host is known.
	key         string
	generation  int64
	plan        protocol.Plan
	changed     chan struct{}
	data        []byte
	now         func() time.Time
	enrolments  int
	fetches     int
	polls       int
	rotations   int
	reports     []protocol.Report
	operations  map[string]protocol.OperationReport
	cleanliness *protocol.Cleanliness
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
		operations: map[string]protocol.OperationReport{}, data: []byte("#cloud-config\n"),
	}
	certificate, bundle := serverCertificate(t, time.Now().Add(-time.Hour), time.Now().Add(365*24*time.Hour))
	m.bundle = bundle
	m.server = httptest.NewUnstartedServer(http.HandlerFunc(m.serve))
	m.server.EnableHTTP2 = true
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
	return fmt.Sprintf("operations %+v, %d polls, %d enrolments", m.operations, m.polls, m.enrolments)
}

// ended is a condition: the manager heard of an operation's end.
func ended(id string, state protocol.OperationState) func(*manager) bool {
	return func(m *manager) bool { return m.operations[id].State == state }
}

func (m *manager) serve(w http.ResponseWriter, r *http.Request) {
	key, err := identity.PeerFingerprint(r.TLS)
	if err != nil {
		problem(w, protocol.Problem{Status: http.StatusUnauthorized})
		return
	}
	m.mu.Lock()
	refuse, known, lose := m.refuse, m.key == key, m.lose
	m.mu.Unlock()
	if refuse != nil {
		if p := refuse(r.URL.Path); p != nil {
			problem(w, *p)
			return
		}
	}
	if lose != nil && lose(r.URL.Path) {
		m.handle(httptest.NewRecorder(), r, key, known)
		panic(http.ErrAbortHandler)
	}
	m.handle(w, r, key, known)
}

func (m *manager) handle(w http.ResponseWriter, r *http.Request, key string, known bool) {
	switch {
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
	if !known && r.Header.Get("Authorization") != "Bearer "+token {
		problem(w, protocol.Problem{Type: protocol.ProblemTokenRefused, Title: "Token refused", Status: http.StatusForbidden})
		return
	}
	m.set(func(m *manager) {
		m.key = key
		m.enrolments++
	})
	send(w, protocol.EnrolResponse{HostID: "id-1", Namespace: "fleet", Name: "host-1", Approved: true, ServerTime: m.time()})
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
		m.mu.Unlock()
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
	m.mu.Lock()
	generation := m.generation
	m.mu.Unlock()
	if err != nil || request.Generation != generation {
		problem(w, protocol.Problem{Type: protocol.ProblemStaleGeneration, Status: http.StatusConflict})
		return
	}
	m.set(func(m *manager) {
		m.key = next
		m.generation++
		m.rotations++
	})
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
