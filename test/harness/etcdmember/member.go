// Package etcdmember runs a member of etcd for tests, with the files that kubeadm leaves of
// one. It needs etcd in the folder that KUBEBUILDER_ASSETS names.
package etcdmember

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
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
	// Peer is the URL that it tells other members.
	Peer    string
	server  pki.Pair
	program string
	// running is shared by all copies of the Host.
	running *running
}

// running is the process of the member.
type running struct {
	// stop ends the process and waits for its end.
	stop func()
}

// Name is the member's name.
const Name = "here"

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
	h.Endpoint, h.Peer, h.program, h.running = urls[0], urls[1], filepath.Join(programs, "etcd"), &running{stop: func() {}}
	if h.server, err = authority.Peer("etcd"); err != nil {
		t.Fatal(err)
	}
	client, err := authority.Client("kube-etcd-healthcheck-client")
	if err != nil {
		t.Fatal(err)
	}
	certificates := h.certificates()
	for name, data := range map[string][]byte{
		"ca.crt": authority.Certificate, "server.crt": h.server.Certificate, "server.key": h.server.Key,
		"healthcheck-client.crt": client.Certificate, "healthcheck-client.key": client.Key,
	} {
		write(t, filepath.Join(certificates, name), data)
	}
	h.writeManifest(t)
	t.Cleanup(h.Stop)
	h.Start(t)
	return h
}

func (h Host) certificates() string { return filepath.Join(h.Root, "etc/kubernetes/pki/etcd") }

func (h Host) writeManifest(t *testing.T) {
	t.Helper()
	write(t, filepath.Join(h.Root, "etc/kubernetes/manifests/etcd.yaml"), fmt.Appendf(nil, `apiVersion: v1
kind: Pod
spec:
  containers:
  - image: registry.k8s.io/etcd:3.6.8-0
    command:
    - etcd
    - --name=%s
    - --data-dir=%s
    - --initial-advertise-peer-urls=%s
    - --listen-client-urls=https://192.0.2.1:2379,%s
`, Name, Data, h.Peer, h.Endpoint))
}

// Stop ends the member, which can be started again. It does nothing if the member does not run.
func (h Host) Stop() { h.running.stop() }

// Start starts the member and waits until it is healthy.
func (h Host) Start(t *testing.T) {
	t.Helper()
	log, err := os.Create(filepath.Join(h.Root, "etcd.log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, h.program, "--name="+Name, "--data-dir="+filepath.Join(h.Root, Data), "--unsafe-no-fsync",
		"--listen-client-urls="+h.Endpoint, "--advertise-client-urls="+h.Endpoint, "--listen-peer-urls="+h.Peer,
		"--initial-advertise-peer-urls="+h.Peer, "--initial-cluster="+Name+"="+h.Peer, "--client-cert-auth",
		"--trusted-ca-file="+filepath.Join(h.certificates(), "ca.crt"), "--cert-file="+filepath.Join(h.certificates(), "server.crt"),
		"--key-file="+filepath.Join(h.certificates(), "server.key"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
		_ = log.Close()
	}()
	h.running.stop = func() {
		cancel()
		<-ended
	}
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
	h.call(t, "kv/put", map[string]any{"key": encode(key), "value": encode(value)})
}

// Has reports whether the member has a key.
func (h Host) Has(t *testing.T, key string) bool {
	t.Helper()
	return bytes.Contains(h.call(t, "kv/range", map[string]any{"key": encode(key)}), []byte(`"kvs"`))
}

// LoseMajority adds a member that does not exist. After that neither has a majority, and the member
// serves nothing that needs one.
func (h Host) LoseMajority(t *testing.T) {
	t.Helper()
	h.call(t, "cluster/member/add", map[string]any{"peerURLs": []string{"http://127.0.0.1:1"}})
}

// AddLearner adds a second member, which does not exist and has no vote: the first one serves on.
func (h Host) AddLearner(t *testing.T) {
	t.Helper()
	h.call(t, "cluster/member/add", map[string]any{"peerURLs": []string{"http://127.0.0.1:1"}, "isLearner": true})
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// call calls a method of the member's JSON gateway.
func (h Host) call(t *testing.T, method string, body map[string]any) []byte {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.Endpoint+"/v3/"+method, bytes.NewReader(encoded))
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
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("got %d: %s, %v", response.StatusCode, text, err)
	}
	return text
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
