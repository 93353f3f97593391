package nodeupgrade_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
)

// api is what the agent reaches over the network: API servers, etcd and the kubelet.
type api struct {
	*machine

	authority *pki.Authority
	server    *httptest.Server
	kubelet   *httptest.Server
	// version is that of the API servers of other hosts.
	version string
	// nodeVersion is what the Node says of its kubelet.
	nodeVersion   string
	unschedulable bool
	// cordons counts changes of unschedulable.
	cordons int
	pods    []pod
	// evictions are the names of the Pods, in order.
	evictions []string
	// down are the API servers of other hosts that are not ready, and foreign those whose
	// certificates are not the cluster's.
	down    []string
	foreign []string
	// falters is one that is not ready once, after it was; blank for none.
	falters string
	asked   int
	// stranger has a certificate of another authority.
	stranger *httptest.Server
}

// pod is a Pod on the Node.
type pod struct {
	name        string
	daemonSet   bool
	mirror      bool
	image       string
	refusals    int
	neverLeaves bool
}

func newAPI(t *testing.T, m *machine) *api {
	t.Helper()
	authority, err := pki.NewAuthority("kubernetes", time.Now())
	m.must(err)
	a := &api{machine: m, authority: authority, version: newVersion, nodeVersion: oldVersion}
	a.server = a.start(authority)
	a.kubelet = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if m.kubeletVersion() == "" {
			panic(http.ErrAbortHandler)
		}
	}))
	a.kubelet.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(a.kubelet.Close)
	return a
}

// start starts a server with a certificate of an authority.
func (a *api) start(authority *pki.Authority) *httptest.Server {
	pair, err := authority.Server("server", "kubernetes", address)
	a.must(err)
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	a.must(err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	server.EnableHTTP2, server.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	server.StartTLS()
	a.t.Cleanup(server.Close)
	return server
}

// isDown reports whether the API server of another host is not ready.
func (a *api) isDown(peer string) bool { return slices.Contains(a.down, peer) }

func (a *api) dial(ctx context.Context, network, address string) (net.Conn, error) {
	target := a.server.Listener.Addr().String()
	if slices.Contains(a.foreign, address) {
		target = a.stranger.Listener.Addr().String()
	}
	if strings.HasSuffix(address, ":10248") {
		target = a.kubelet.Listener.Addr().String()
	}
	return (&net.Dialer{}).DialContext(ctx, network, target)
}

// serve serves the API server and etcd. One that does not run ends the connection.
func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.Host, ":2379") {
		if a.image("etcd") == "" {
			panic(http.ErrAbortHandler)
		}
		a.etcd(w, r)
		return
	}
	if r.Host == peerA || r.Host == peerB {
		a.servePeer(w, r)
		return
	}
	if a.serverVersion() == "" {
		panic(http.ErrAbortHandler)
	}
	if version := a.kubeletVersion(); version != "" {
		a.nodeVersion = version
	}
	switch path := r.URL.Path; {
	case path == "/readyz":
	case path == "/version":
		a.answer(w, map[string]any{"gitVersion": a.serverVersion()})
	case path == "/api/v1/nodes/"+nodeName && r.Method == http.MethodPatch:
		a.patch(w, r)
	case path == "/api/v1/nodes/"+nodeName:
		a.answer(w, a.node(nodeName, a.kubeletVersion() != ""))
	case path == "/api/v1/nodes":
		// As the Node authorizer of Kubernetes does it.
		w.WriteHeader(http.StatusForbidden)
	case path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName="+nodeName:
		a.answer(w, map[string]any{"items": a.podObjects()})
	case strings.HasSuffix(path, "/eviction") && r.Method == http.MethodPost:
		a.evict(w, strings.Split(path, "/")[6])
	default:
		http.NotFound(w, r)
	}
}

// servePeer serves the API server of another host.
func (a *api) servePeer(w http.ResponseWriter, r *http.Request) {
	isFaltering := r.Host == a.falters
	if isFaltering {
		a.asked++
	}
	if a.isDown(r.Host) || isFaltering && a.asked == 2 || r.URL.Path != "/readyz" {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (a *api) answer(w http.ResponseWriter, object any) {
	_ = json.NewEncoder(w).Encode(object) // the client notices
}

func (a *api) node(name string, ready bool) map[string]any {
	status := "False"
	if ready {
		status = "True"
	}
	return map[string]any{
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"unschedulable": name == nodeName && a.unschedulable},
		"status": map[string]any{
			"conditions": []any{map[string]any{"type": "Ready", "status": status}}, "nodeInfo": map[string]any{"kubeletVersion": a.nodeVersion},
		},
	}
}

func (a *api) patch(w http.ResponseWriter, r *http.Request) {
	var patch struct {
		Spec struct{ Unschedulable *bool }
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || patch.Spec.Unschedulable == nil {
		http.Error(w, "no patch of unschedulable", http.StatusBadRequest)
		return
	}
	if *patch.Spec.Unschedulable != a.unschedulable {
		a.cordons++
	}
	a.unschedulable = *patch.Spec.Unschedulable
	a.answer(w, a.node(nodeName, true))
}

func (a *api) podObjects() []any {
	all := a.pods
	for _, component := range components() {
		if image := a.image(component); image != "" && a.role != "Worker" {
			all = append(all, pod{name: component + "-" + nodeName, mirror: true, image: image})
		}
	}
	objects := []any{}
	for _, p := range all {
		metadata := map[string]any{"name": p.name, "namespace": "default", "uid": "uid-" + p.name}
		if p.mirror {
			metadata["annotations"] = map[string]any{"kubernetes.io/config.mirror": "x"}
		}
		if p.daemonSet {
			metadata["ownerReferences"] = []any{map[string]any{"kind": "DaemonSet", "controller": true}}
		}
		objects = append(objects, map[string]any{
			"metadata": metadata, "spec": map[string]any{"containers": []any{map[string]any{"image": p.image}}},
			"status": map[string]any{"phase": "Running", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
		})
	}
	return objects
}

func (a *api) evict(w http.ResponseWriter, name string) {
	a.evictions = append(a.evictions, name)
	for i := range a.pods {
		p := &a.pods[i]
		switch {
		case p.name != name:
		case p.refusals > 0:
			p.refusals--
			w.WriteHeader(http.StatusTooManyRequests)
			a.answer(w, map[string]any{"message": "Cannot evict pod as it would violate the pod's disruption budget."})
			return
		case p.neverLeaves:
			w.WriteHeader(http.StatusCreated)
			return
		default:
			a.pods = append(a.pods[:i:i], a.pods[i+1:]...)
			w.WriteHeader(http.StatusCreated)
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
}

// etcd answers for its health, and sends a small database in two messages.
func (a *api) etcd(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health":
		a.answer(w, map[string]any{"health": "true"})
		return
	case "/version":
		_, tag, _ := strings.Cut(a.image("etcd"), ":")
		a.answer(w, map[string]any{"etcdserver": strings.TrimSuffix(tag, "-0")})
		return
	}
	database := []byte(strings.Repeat("etcd", 128))
	sum := sha256.Sum256(database)
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	for _, blob := range [][]byte{database, sum[:]} {
		message := append(binary.AppendUvarint([]byte{3<<3 | 2}, uint64(len(blob))), blob...)
		_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)) // the client notices
	}
	w.Header().Set("Grpc-Status", "0")
}
