// Package etcdmember runs a member of etcd for tests, with the files that kubeadm leaves of
// one. It needs etcd in the folder that KUBEBUILDER_ASSETS names.
package etcdmember

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/ports"
)

// Host has what kubeadm leaves of etcd below Root, and the member itself.
type Host struct {
	// Root stands for "/".
	Root string
	// Endpoint is the URL of the member.
	Endpoint string
	server   pki.Pair
}

// Data is the folder of the member's data, as its manifest has it.
const Data = "/var/lib/etcd-here"

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// New starts a member that demands client certificates.
func New(t *testing.T) Host {
	t.Helper()
	programs := os.Getenv("KUBEBUILDER_ASSETS")
	if programs == "" {
		t.Fatal("KUBEBUILDER_ASSETS does not name a folder with etcd; make test sets it")
	}
	var reserved ports.Set
	t.Cleanup(reserved.Release)
	authority, err := pki.NewAuthority("etcd-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	h := Host{Root: t.TempDir()}
	var urls [2]string
	for i, scheme := range []string{"https", "http"} {
		port, err := reserved.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		urls[i] = fmt.Sprintf("%s://127.0.0.1:%d", scheme, port)
	}
	h.Endpoint = urls[0]
	if h.server, err = authority.Peer("etcd"); err != nil {
		t.Fatal(err)
	}
	client, err := authority.Client("kube-etcd-healthcheck-client")
	if err != nil {
		t.Fatal(err)
	}
	certificates := filepath.Join(h.Root, "etc/kubernetes/pki/etcd")
	for name, data := range map[string][]byte{
		"ca.crt": authority.Certificate, "server.crt": h.server.Certificate, "server.key": h.server.Key,
		"healthcheck-client.crt": client.Certificate, "healthcheck-client.key": client.Key,
	} {
		write(t, filepath.Join(certificates, name), data)
	}
	h.writeManifest(t, h.Endpoint)
	h.start(t, filepath.Join(programs, "etcd"), urls[1], certificates)
	return h
}

func (h Host) writeManifest(t *testing.T, endpoint string) {
	t.Helper()
	write(t, filepath.Join(h.Root, "etc/kubernetes/manifests/etcd.yaml"), fmt.Appendf(nil, `apiVersion: v1
kind: Pod
spec:
  containers:
  - command:
    - etcd
    - --data-dir=%s
    - --listen-client-urls=https://192.0.2.1:2379,%s
`, Data, endpoint))
}

func (h Host) start(t *testing.T, program, peer, certificates string) {
	t.Helper()
	log, err := os.Create(filepath.Join(h.Root, "etcd.log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--data-dir="+filepath.Join(h.Root, Data), "--unsafe-no-fsync",
		"--listen-client-urls="+h.Endpoint, "--advertise-client-urls="+h.Endpoint, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer, "--client-cert-auth",
		"--trusted-ca-file="+filepath.Join(certificates, "ca.crt"), "--cert-file="+filepath.Join(certificates, "server.crt"),
		"--key-file="+filepath.Join(certificates, "server.key"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = log.Close()
	})
	for etcd.Health(t.Context(), h.Member(t).Options) != nil {
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("etcd ended:\n%s", text)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Member is the member as the agent finds it.
func (h Host) Member(t *testing.T) etcd.Member {
	t.Helper()
	member, found, err := etcd.Local(h.Root)
	if err != nil || !found {
		t.Fatalf("got %v, %v", found, err)
	}
	return member
}

// Put stores a value by the member's JSON gateway.
func (h Host) Put(t *testing.T, key, value string) {
	t.Helper()
	encode := base64.StdEncoding.EncodeToString
	body := fmt.Sprintf(`{"key":%q,"value":%q}`, encode([]byte(key)), encode([]byte(value)))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.Endpoint+"/v3/kv/put", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: h.Member(t).TLS}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Fatalf("got %d: %s", response.StatusCode, text)
	}
}

// ServerTLS is the configuration of a server that stands in for the member.
func (h Host) ServerTLS(t *testing.T) *tls.Config {
	t.Helper()
	pair, err := tls.X509KeyPair(h.server.Certificate, h.server.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
}

// URL is the URL of the member.
func (h Host) URL(t *testing.T) *url.URL {
	t.Helper()
	parsed, err := url.Parse(h.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
