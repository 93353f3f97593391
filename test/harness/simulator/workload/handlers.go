package workload

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/objects"
)

// infoPath is the path of cluster-info, which nodes read before they trust the cluster.
const infoPath = "/api/v1/namespaces/" + metav1.NamespacePublic + "/configmaps/" + objects.InfoName

// serveEtcd returns the handler of the etcd member at an address.
func (c *cluster) serveEtcd(at netip.AddrPort) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.members.work(at.Addr()) {
			http.Error(w, "etcd has no leader", http.StatusServiceUnavailable)
			return
		}
		c.all.etcd.ServeHTTP(w, r)
	})
}

// serveAPI returns the handler of the API server at an address: health checks, authentication and port forwarding in
// front of the in-memory API server.
func (c *cluster) serveAPI(at netip.AddrPort) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		// An API server without etcd does not stay up.
		case !c.members.work(at.Addr()):
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: request timed out")
			return
		case r.URL.Path == "/readyz" || r.URL.Path == "/livez" || r.URL.Path == "/healthz":
			_, _ = w.Write([]byte("ok"))
			return
		case !c.isAllowed(r):
			refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
			return
		}
		// The in-memory handler uses the request's Host as the target of port forwarding and to find the objects.
		r.Host = at.String()
		if pod, forward := forwarded(r.URL.Path); forward {
			target, ok := c.members.target(pod)
			if !ok {
				refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "pods \""+pod+"\" not found")
				return
			}
			r.Host = target.String()
		}
		c.all.api.ServeHTTP(w, r)
	})
}

// isAllowed reports whether a request is authenticated, or is one that kubeadm allows without
// credentials.
func (c *cluster) isAllowed(r *http.Request) bool {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return true
	}
	if r.Method == http.MethodGet && r.URL.Path == infoPath {
		return true
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	id, secret, dotted := strings.Cut(token, ".")
	if !ok || !dotted || id == "" || secret == "" {
		return false
	}
	known := &corev1.Secret{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: objects.TokenPrefix + id}
	if err := c.store.Get(r.Context(), key, known); err != nil {
		return false
	}
	until, err := time.Parse(time.RFC3339, string(known.Data["expiration"]))
	return string(known.Data["token-secret"]) == secret && err == nil && c.all.o.Clock.Now().Before(until)
}

// forwarded returns the Pod to which a request forwards a port.
func forwarded(path string) (pod string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/api/v1/namespaces/"+metav1.NamespaceSystem+"/pods/")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "/portforward")
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Message: message, Reason: reason, Code: code,
	})
}
