package frontend

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// router finds the handler of a request. http.ServeMux would redirect paths with empty or ".."
// segments, which handlers are to refuse.
type router struct {
	handlers map[string]http.Handler
	// prefixes are the keys, the longest first.
	prefixes []string
	// idle is closed once the router drains and no handler runs.
	idle chan struct{}

	mu       sync.Mutex
	running  int
	draining bool
}

func newRouter(handlers map[string]http.Handler) *router {
	prefixes := slices.SortedFunc(maps.Keys(handlers), func(x, y string) int { return len(y) - len(x) })
	return &router{handlers: handlers, prefixes: prefixes, idle: make(chan struct{})}
}

// ServeHTTP implements http.Handler.
func (r *router) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if !r.begin() {
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the manager stops, another one will serve soon")
		return
	}
	defer r.end()
	path := request.URL.EscapedPath()
	for _, prefix := range r.prefixes {
		if strings.HasPrefix(path, prefix) {
			r.handlers[prefix].ServeHTTP(w, request)
			return
		}
	}
	// Otherwise net/http would read the body, however slowly it comes.
	w.Header().Set("Connection", "close")
	refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the gateway serves paths below "+strings.Join(slices.Sorted(slices.Values(r.prefixes)), " and "))
}

func (r *router) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return false
	}
	r.running++
	return true
}

func (r *router) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	r.closeIfIdle()
}

// drain refuses all further requests.
func (r *router) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
	r.closeIfIdle()
}

func (r *router) closeIfIdle() {
	if r.draining && r.running == 0 {
		close(r.idle)
	}
}

// refuse answers as Kubernetes' API servers do.
func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	// A Status has numbers and strings only, so it can be encoded.
	body, _ := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_, _ = w.Write(body)
}
