package server

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// access says who may call a route. The zero value is nobody.
type access int

const (
	// accessKey: anybody with a key, at a limited rate.
	accessKey access = iota + 1
	// accessHost: a host that is known, not shut out and not given up.
	accessHost
	// accessReturning: a host that is known and not shut out, also one that was
	// given up, so that it can be reset.
	accessReturning
)

// route is one operation of the API.
type route struct {
	method, path string
	access       access
	handle       func(http.ResponseWriter, *http.Request, caller) error
}

// caller is who makes a request.
type caller struct {
	// fingerprint of the key that the caller proved to hold.
	fingerprint string
	// host is the caller's, not to be changed; nil for accessKey.
	host *infrav1.ElementalHost
}

func (s *Server) routeTable() []route {
	return []route{
		{http.MethodPost, protocol.PathEnrol, accessKey, s.enrol},
		{http.MethodGet, protocol.PathPlan, accessReturning, s.plan},
		{http.MethodGet, protocol.PathBootstrap, accessHost, s.bootstrap},
		{http.MethodPost, protocol.PathReport, accessReturning, s.report},
		{http.MethodPost, protocol.PathRotate, accessHost, s.rotate},
		{http.MethodGet, protocol.PathAgent, accessHost, s.agentBinary},
		{http.MethodGet, PathOpenAPI, accessKey, s.openAPI},
	}
}

// ServeHTTP implements http.Handler: the chain that every request passes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorded := &statusWriter{ResponseWriter: w}
	w = recorded
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	name, err := s.serve(w, r)
	if err != nil {
		s.answer(w, r, err)
	}
	s.metrics.requests.WithLabelValues(name, codeClass(recorded.status)).Inc()
}

// serve finds the route and the caller. It returns the route's path, for
// metrics, which an unlisted one must not get into.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) (string, error) {
	methods, ok := s.routes[r.URL.Path]
	if !ok {
		return "other", errNotFound()
	}
	found, ok := methods[r.Method]
	if !ok {
		for method := range methods {
			w.Header().Add("Allow", method)
		}
		return r.URL.Path, problem(http.StatusMethodNotAllowed, blank, "The route has no such method")
	}
	who, err := s.admit(r, found)
	if err != nil {
		return found.path, err
	}
	return found.path, found.handle(w, r, who)
}

// admit finds out who calls and whether they may.
func (s *Server) admit(r *http.Request, to route) (caller, error) {
	if to.access == accessKey && !s.limiter.allow(r.RemoteAddr) {
		return caller{}, errTooMany(time.Second)
	}
	fingerprint, err := identity.PeerFingerprint(r.TLS)
	if err != nil {
		return caller{}, errUnknownHost()
	}
	switch to.access {
	case accessKey:
		return caller{fingerprint: fingerprint}, nil
	case accessHost, accessReturning:
		host, err := s.authenticate(r.Context(), fingerprint, to.path != protocol.PathReport)
		if err == nil && host.Spec.Fence != nil && to.access == accessHost {
			err = s.refuse(r.Context(), host, fingerprint, "Fenced", errFenced())
		}
		var refused *problemError
		if errors.As(err, &refused) && !s.limiter.allow(r.RemoteAddr) {
			return caller{}, errTooMany(time.Second)
		}
		return caller{fingerprint: fingerprint, host: host}, err
	default:
		return caller{}, errNotFound()
	}
}

// answer tells the caller about an error. What it doesn't concern is logged.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, err error) {
	var p *problemError
	switch {
	case errors.As(err, &p):
	case errors.Is(err, errGone):
		errors.As(errUnknownHost(), &p)
	case r.Context().Err() != nil:
		// Nobody is there any more, which is why it went wrong.
		errors.As(errBusy(time.Second), &p)
	default:
		ctrl.LoggerFrom(r.Context()).Error(err, "Request went wrong", "route", r.URL.Path)
		p = problem(http.StatusInternalServerError, blank, "The request went wrong here")
		p.retryAfter = 5 * time.Second
	}
	p.write(w)
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap serves http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// codeClass is "2xx" and so on; a caller that went away got none.
func codeClass(status int) string {
	if status == 0 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}
