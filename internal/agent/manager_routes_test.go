package agent_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

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
	case r.URL.Path == protocol.PathTunnel:
		m.tunnel(w, r)
	case r.URL.Path == protocol.PathLog:
		m.hostLog(w, r)
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
	m.set(func(m *manager) { m.polls, m.taken, m.polledFrom = m.polls+1, r.URL.Query().Get("after"), r.RemoteAddr })
	for {
		m.mu.Lock()
		plan, changed := m.plan, m.changed
		known := true
		if key, err := identity.PeerFingerprint(r.TLS); err != nil || key != m.key {
			known = false
		}
		locked := m.locked
		plan.ReportEndpoint, m.asks = m.asks, false
		m.mu.Unlock()
		if locked != "" {
			problem(w, protocol.Problem{Type: protocol.ProblemLocked, Title: locked, Status: http.StatusForbidden})
			return
		}
		if !known {
			problem(w, protocol.Problem{Type: protocol.ProblemUnknownHost, Title: "Unknown host", Status: http.StatusForbidden})
			return
		}
		if plan.ReportEndpoint || plan.Revision != r.URL.Query().Get("after") {
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

// count reads a number under the lock.
func (m *manager) count(number *int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *number
}

// known returns the fingerprint of the recorded key.
func (m *manager) known() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key
}

func (m *manager) heard(id string) protocol.OperationState { return m.outcome(id).State }

// outcome returns the latest report of an operation.
func (m *manager) outcome(id string) protocol.OperationReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.operations[id]
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
			m.set(func(m *manager) { m.unwanted++ })
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
	m.mu.Lock()
	hold := m.holdReport
	m.mu.Unlock()
	if hold != nil {
		hold()
	}
	w.WriteHeader(http.StatusNoContent)
}

func (m *manager) hostLog(w http.ResponseWriter, r *http.Request) {
	var log protocol.HostLog
	if err := json.NewDecoder(r.Body).Decode(&log); err != nil {
		problem(w, protocol.Problem{Status: http.StatusBadRequest})
		return
	}
	m.set(func(m *manager) {
		if m.hostLogs == nil {
			m.hostLogs = map[string][]protocol.HostLog{}
		}
		id := r.URL.Query().Get("request")
		m.hostLogs[id] = append(m.hostLogs[id], log)
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
