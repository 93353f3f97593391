package node_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority is a certificate authority of a workload cluster.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue returns a certificate and its key in PEM.
func (a *authority) issue(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// cluster is an API server with at most one Node.
type cluster struct {
	*authority
	server *httptest.Server

	mu         sync.Mutex
	registered bool
	providerID string
	patches    int
	labels     map[string]string
	// missing is how many requests fail before the Node is registered.
	missing int
	users   map[string]bool
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{authority: newAuthority(t), registered: true, users: map[string]bool{}, labels: map[string]string{}}
	cert, key := c.issue(t, "kube-apiserver")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.cert)
	c.server = httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	c.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	c.server.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
	}
	c.server.StartTLS()
	t.Cleanup(c.server.Close)
	return c
}

func (c *cluster) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users[r.TLS.PeerCertificates[0].Subject.CommonName] = true
	if c.missing > 0 {
		c.missing--
	} else if c.registered && r.URL.Path == "/api/v1/nodes/worker-1" {
		c.node(w, r)
		return
	}
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, `{"kind":"Status","message":"nodes \"worker-1\" not found"}`)
}

func (c *cluster) node(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPatch {
		var patch struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct{ ProviderID string }
		}
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || r.Header.Get("Content-Type") != "application/merge-patch+json" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.patches++
		if id := patch.Spec.ProviderID; id != "" {
			if c.providerID != "" && c.providerID != id {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			c.providerID = id
		}
		maps.Copy(c.labels, patch.Metadata.Labels)
	}
	labels, _ := json.Marshal(c.labels)
	_, _ = fmt.Fprintf(w, `{"metadata":{"name":"worker-1","labels":%s},"spec":{"providerID":%q}}`, labels, c.providerID)
}

// kubeconfig writes a kubeconfig with inline credentials, as kubeadm init does.
func (c *cluster) kubeconfig(t *testing.T, user string) string {
	t.Helper()
	cert, key := c.issue(t, user)
	inline := base64.StdEncoding.EncodeToString
	return c.write(t, "certificate-authority-data: "+inline(c.pem), "client-certificate-data: "+inline(cert), "client-key-data: "+inline(key))
}

func (c *cluster) write(t *testing.T, ca, cert, key string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.conf")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: system:node:worker-1@kubernetes
clusters:
- name: kubernetes
  cluster: {%s, server: %s}
contexts:
- name: system:node:worker-1@kubernetes
  context: {cluster: kubernetes, user: system:node:worker-1}
users:
- name: system:node:worker-1
  user: {%s, %s}
`, ca, c.server.URL, cert, key)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// clock advances without waiting.
type clock struct{ passed time.Duration }

func (c *clock) Now() time.Time { return time.Unix(0, 0).Add(c.passed) }

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	c.passed += d
	return ctx.Err()
}

func setter(paths ...string) (*node.Setter, *clock) {
	c := &clock{}
	return &node.Setter{Kubeconfigs: paths, Clock: c, Rand: func() float64 { return 0.9 }}, c
}

func TestSetsProviderID(t *testing.T) {
	c := newCluster(t)
	s, _ := setter("/does/not/exist", c.kubeconfig(t, "system:node:worker-1"))
	for range 2 {
		isSet, err := s.SetProviderID(t.Context(), "elemental://1")
		if err != nil || !isSet || c.providerID != "elemental://1" {
			t.Fatalf("set %t, providerID %q: %v", isSet, c.providerID, err)
		}
	}
	if c.patches != 1 || !c.users["system:node:worker-1"] || len(c.users) != 1 {
		t.Errorf("%d patches by %v", c.patches, c.users)
	}
}

func TestCredentialsInFiles(t *testing.T) {
	c := newCluster(t)
	cert, key := c.issue(t, "system:node:worker-1")
	dir := t.TempDir()
	for name, content := range map[string][]byte{"ca.crt": c.pem, "kubelet-client-current.pem": append(cert, key...)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client := filepath.Join(dir, "kubelet-client-current.pem")
	s, _ := setter(c.write(t, "certificate-authority: "+filepath.Join(dir, "ca.crt"), "client-certificate: "+client, "client-key: "+client))
	if isSet, err := s.SetProviderID(t.Context(), "elemental://1"); err != nil || !isSet {
		t.Fatalf("set %t: %v", isSet, err)
	}
}

func TestWaitsForTheNodeToRegister(t *testing.T) {
	c := newCluster(t)
	c.missing = 5
	s, clock := setter(c.kubeconfig(t, "system:node:worker-1"))
	if isSet, err := s.SetProviderID(t.Context(), "elemental://1"); err != nil || !isSet || clock.passed == 0 {
		t.Fatalf("set %t after %s: %v", isSet, clock.passed, err)
	}
}

func TestDial(t *testing.T) {
	c := newCluster(t)
	s, _ := setter(c.kubeconfig(t, "system:node:worker-1"))
	dialled := false
	s.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled = true
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	if isSet, err := s.SetProviderID(t.Context(), "elemental://1"); err != nil || !isSet || !dialled {
		t.Fatalf("set %t, dialled %t: %v", isSet, dialled, err)
	}
}

func TestGivesUp(t *testing.T) {
	c := newCluster(t)
	c.registered = false
	s, clock := setter(c.kubeconfig(t, "system:node:worker-1"))
	_, err := s.SetProviderID(t.Context(), "elemental://1")
	if err == nil || !strings.Contains(err.Error(), "not found") || clock.passed > node.Deadline || clock.passed < node.Deadline/2 {
		t.Fatalf("gave up after %s: %v", clock.passed, err)
	}
}

func TestAnotherProviderIDIsFinal(t *testing.T) {
	c := newCluster(t)
	c.providerID = "aws://i-1"
	s, clock := setter(c.kubeconfig(t, "system:node:worker-1"))
	_, err := s.SetProviderID(t.Context(), "elemental://1")
	var mismatch *node.MismatchError
	if !errors.As(err, &mismatch) || clock.passed != 0 || c.patches != 0 {
		t.Fatalf("after %s and %d patches: %v", clock.passed, c.patches, err)
	}
}

func TestHostWithoutKubelet(t *testing.T) {
	s, _ := setter("/does/not/exist")
	if isSet, err := s.SetProviderID(t.Context(), "elemental://1"); isSet || err != nil {
		t.Errorf("set %t: %v", isSet, err)
	}
}

func TestWrongServersAndUsers(t *testing.T) {
	c, other := newCluster(t), newCluster(t)
	cert, key := c.issue(t, "system:node:worker-1")
	inline := base64.StdEncoding.EncodeToString
	for name, path := range map[string]string{
		"a server of another authority": c.write(t, "certificate-authority-data: "+inline(other.pem),
			"client-certificate-data: "+inline(cert), "client-key-data: "+inline(key)),
		"a user that is not a node": c.kubeconfig(t, "kubernetes-admin"),
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := setter(path)
			if isSet, err := s.SetProviderID(t.Context(), "elemental://1"); err == nil || isSet {
				t.Errorf("set %t: %v", isSet, err)
			}
			if c.patches != 0 {
				t.Error("patched")
			}
		})
	}
}
