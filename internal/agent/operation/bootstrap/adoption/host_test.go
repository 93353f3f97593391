package adoption_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap/adoption"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
)

const (
	kubeletConfig  = "etc/kubernetes/kubelet.conf"
	adminConfig    = "etc/kubernetes/admin.conf"
	serverManifest = "etc/kubernetes/manifests/kube-apiserver.yaml"
	etcdManifest   = "etc/kubernetes/manifests/etcd.yaml"
)

// host is the host of a Node, with the API server of its cluster.
type host struct {
	t         *testing.T
	root      string
	authority *pki.Authority
	server    *httptest.Server
	// wanted is what the plan says of the Node.
	wanted protocol.Adoption
	// dial is that of the Checker.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// newHost returns the host of the Node node-1, which runs v1.36.2.
func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, root: t.TempDir(), authority: newAuthority(t)}
	served, err := h.authority.Server("kube-apiserver", "::1", "api.example.com")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(served.Certificate, served.Key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(h.authority.Certificate)
	h.server = httptest.NewUnstartedServer(http.HandlerFunc(h.serve))
	h.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.server.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	}
	h.server.StartTLS()
	t.Cleanup(h.server.Close)
	h.writeConfig(kubeletConfig, h.server.URL, "system:node:node-1")
	h.wanted = protocol.Adoption{NodeName: "node-1", AuthorityHash: hashOf(t, h.authority), Endpoint: h.address(), Version: "v1.36.2"}
	return h
}

func (h *host) address() string { return strings.TrimPrefix(h.server.URL, "https://") }

// local is the API server by another name than the endpoint's.
func (h *host) local() string { return strings.Replace(h.server.URL, "127.0.0.1", "localhost", 1) }

func (h *host) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		h.t.Errorf("%s %s", r.Method, r.URL)
	}
	if user := r.TLS.PeerCertificates[0].Subject.CommonName; user != "system:node:node-1" || r.URL.Path != "/api/v1/nodes/node-1" {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","message":"not found"}`)
		return
	}
	_, _ = io.WriteString(w, `{"metadata":{"name":"node-1"},"status":{"nodeInfo":{"kubeletVersion":"v1.36.2"}}}`)
}

// answer replaces the API server's answers.
func (h *host) answer(code int) {
	h.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
}

func newAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	authority, err := pki.NewAuthority("kubernetes", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// hashOf returns the hash as kubeadm prints it.
func hashOf(t *testing.T, authority *pki.Authority) string {
	t.Helper()
	block, _ := pem.Decode(authority.Certificate)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKIXPublicKey(certificate.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(key))
}

// writeConfig writes a kubeconfig. others are further authorities that it trusts.
func (h *host) writeConfig(path, server, user string, others ...*pki.Authority) {
	h.t.Helper()
	client, err := h.authority.Client(user, "system:nodes")
	if err != nil {
		h.t.Fatal(err)
	}
	var authorities []byte
	for _, other := range others {
		authorities = append(authorities, other.Certificate...)
	}
	encode := base64.StdEncoding.EncodeToString
	h.write(path, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: it
clusters:
- name: kubernetes
  cluster: {server: %q, certificate-authority-data: %s}
contexts:
- name: it
  context: {cluster: kubernetes, user: it}
users:
- name: it
  user: {client-certificate-data: %s, client-key-data: %s}
`, server, encode(append(authorities, h.authority.Certificate...)), encode(client.Certificate), encode(client.Key)))
}

func (h *host) write(path, text string) {
	h.t.Helper()
	path = filepath.Join(h.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) remove(path string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.root, path)); err != nil {
		h.t.Fatal(err)
	}
}

// files returns all files of the host with their content.
func (h *host) files() map[string]string {
	h.t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(h.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found[path] = string(data)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return found
}

// check runs the Checker, which must change no file.
func (h *host) check() error {
	h.t.Helper()
	before := h.files()
	err := adoption.Checker{Root: h.root, Dial: h.dial}.Check(h.t.Context(), h.wanted)
	if !maps.Equal(before, h.files()) {
		h.t.Error("the check has changed files of the host")
	}
	return err
}
