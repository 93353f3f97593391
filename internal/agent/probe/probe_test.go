package probe_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
)

func TestBothServersAnswer(t *testing.T) {
	r := newRig(t)
	r.start()
	s := r.await("both states are conclusive", conclusive)
	if s.Endpoint.Result != probe.Answers || s.APIServer.Result != probe.Answers || s.Endpoint.Since.IsZero() {
		t.Errorf("got %+v", s)
	}
	if want := []string{"10.96.0.1", local, "kubernetes"}; !slices.Equal(s.CertificateNames, want) {
		t.Errorf("the certificate's names are %q, want %q", s.CertificateNames, want)
	}
}

func TestEndpointResults(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*rig, *server)
		want    probe.Result
		message string
	}{
		"anonymous access refused":  {func(_ *rig, s *server) { s.status.Store(http.StatusUnauthorized) }, probe.Answers, ""},
		"anonymous access forbids":  {func(_ *rig, s *server) { s.status.Store(http.StatusForbidden) }, probe.Answers, ""},
		"not ready":                 {func(_ *rig, s *server) { s.status.Store(http.StatusInternalServerError) }, probe.Fails, "/readyz says 500"},
		"a redirect":                {func(_ *rig, s *server) { s.status.Store(http.StatusFound) }, probe.Fails, "/readyz says 302"},
		"no listener":               {func(r *rig, _ *server) { r.listen(endpoint+":6443", nil) }, probe.Fails, "192.0.2.1:6443 refused"},
		"a certificate for another": {func(r *rig, _ *server) { r.listen(endpoint+":6443", newServer(r.t, r.ca.issue(local))) }, probe.Fails, "valid for 192.0.2.2, not 192.0.2.1"},
		"another authority": {
			func(r *rig, _ *server) { r.listen(endpoint+":6443", newServer(r.t, newAuthority(r.t).issue(endpoint))) }, probe.Fails, "certificate",
		},
		"no authority": {func(r *rig, _ *server) { r.write("/etc/kubernetes/pki/ca.crt", "none") }, probe.Unknown, "there is no certificate in /etc/kubernetes/pki/ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			test.prepare(r, r.servers[endpoint+":6443"])
			r.start()
			if test.want != probe.Answers {
				r.clock.pause(t)
			}
			s := r.await("both states are conclusive", conclusive)
			if s.Endpoint.Result != test.want || !strings.Contains(s.Endpoint.Message, test.message) {
				t.Errorf("got %+v", s.Endpoint)
			}
			if test.want != probe.Unknown && s.APIServer.Result != probe.Answers {
				t.Errorf("the host's API server: %+v", s.APIServer)
			}
		})
	}
}

// The manager adds its own delays to the time in which a host detects that the
// endpoint is dead.
func TestDetectsADeathInTime(t *testing.T) {
	r := newRig(t)
	r.start()
	r.await("both states are conclusive", conclusive)
	died := r.clock.Now()
	r.servers[endpoint+":6443"].hangs.Store(true)
	var passed time.Duration
	for probe := range int32(2) {
		passed += r.clock.pause(t)
		// A server may receive a request before the client waits for its timeout.
		// The only Wait is that of the endpoint's probe if both have started.
		passed += r.clock.pass(t, true, func() bool {
			return r.servers[endpoint+":6443"].requests.Load() == probe+2 && r.servers[local+":6443"].requests.Load() == probe+2 &&
				r.clock.timeouts == 2*(probe+2)
		})
	}
	s := r.await("the endpoint fails", func(s probe.State) bool { return s.Endpoint.Result == probe.Fails })
	if passed > 13*time.Second || s.Endpoint.Since.Sub(died) != 5*time.Second || s.Endpoint.Message != "no answer within 3s" {
		t.Errorf("after %s: since %s after the death: %q", passed, s.Endpoint.Since.Sub(died), s.Endpoint.Message)
	}
	if s.APIServer.Result != probe.Answers {
		t.Errorf("the host's API server: %+v", s.APIServer)
	}
	r.servers[endpoint+":6443"].hangs.Store(false)
	r.clock.pause(t)
	r.await("the endpoint answers again", func(s probe.State) bool { return s.Endpoint.Result == probe.Answers })
}

// lingering is a connection to a server that hangs. It is not closed before the server has
// answered the end of the TLS connection.
type lingering struct {
	net.Conn
	server *server
	// requests is how many the server had received before.
	requests int32

	ended  atomic.Bool
	answer chan struct{}
}

// Write writes the end of the TLS connection last, after the request.
func (c *lingering) Write(p []byte) (int, error) {
	c.ended.Store(c.server.requests.Load() > c.requests)
	return c.Conn.Write(p)
}

func (c *lingering) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.ended.Load() {
		select {
		case c.answer <- struct{}{}:
		default:
		}
	}
	return n, err
}

func (c *lingering) Close() error {
	if c.ended.Load() {
		<-c.answer
	}
	return c.Conn.Close()
}

// An answer that comes after the timeout is none. A server sees the end of the TLS connection
// before the connection is closed, and may answer it.
func TestAnswerAfterTheTimeout(t *testing.T) {
	r := newRig(t)
	at := r.servers[endpoint+":6443"]
	r.wrap = func(c net.Conn) net.Conn {
		if !at.hangs.Load() || c.RemoteAddr().String() != at.Listener.Addr().String() {
			return c
		}
		return &lingering{Conn: c, server: at, requests: at.requests.Load(), answer: make(chan struct{}, 1)}
	}
	r.start()
	r.await("both states are conclusive", conclusive)
	at.hangs.Store(true)
	for probe := range int32(20) {
		r.clock.pause(t)
		r.clock.pass(t, true, func() bool {
			return at.requests.Load() == probe+2 && r.servers[local+":6443"].requests.Load() == probe+2 && r.clock.timeouts == 2*(probe+2)
		})
	}
	r.await("the endpoint fails", func(s probe.State) bool { return s.Endpoint.Result == probe.Fails })
	r.clock.pause(t)
	if len(r.states) > 0 {
		t.Errorf("it answers: %+v", <-r.states)
	}
}

func TestReportsOnlyChanges(t *testing.T) {
	r := newRig(t)
	r.rand = 1
	r.start()
	r.await("both states are conclusive", conclusive)
	for range 5 {
		if passed := r.clock.pause(t); passed != 4500*time.Millisecond {
			t.Errorf("probed after %s", passed)
		}
	}
	r.servers[endpoint+":6443"].status.Store(http.StatusServiceUnavailable)
	r.clock.pause(t)
	r.clock.pause(t)
	if s := <-r.states; s.Endpoint.Result != probe.Fails {
		t.Errorf("got %+v although nothing had changed", s)
	}
	if s := r.servers[local+":6443"]; s.connections.Load() < s.requests.Load() {
		t.Errorf("%d connections for %d probes: connections are reused", s.connections.Load(), s.requests.Load())
	}
}

// A new certificate of the host's API server is a change.
func TestReportsNewNames(t *testing.T) {
	r := newRig(t)
	r.start()
	r.await("both states are conclusive", conclusive)
	r.listen(local+":6443", newServer(t, r.ca.issue("192.0.2.9")))
	r.clock.pause(t)
	r.await("the new name is reported", func(s probe.State) bool { return slices.Equal(s.CertificateNames, []string{"192.0.2.9"}) })
	r.listen(local+":6443", nil)
	r.clock.pause(t)
	r.clock.pause(t)
	s := r.await("the host's API server fails", func(s probe.State) bool { return s.APIServer.Result == probe.Fails })
	if len(s.CertificateNames) != 1 {
		t.Error("the names are gone")
	}
}

func TestLimitsNames(t *testing.T) {
	r := newRig(t)
	names := []string{strings.Repeat("a", 254), "192.0.2.9"}
	for i := range 100 {
		names = append(names, fmt.Sprintf("a%d.test", i))
	}
	r.listen(local+":6443", newServer(t, r.ca.issue(names...)))
	r.start()
	s := r.await("both states are conclusive", conclusive)
	if len(s.CertificateNames) != 64 || !slices.Contains(s.CertificateNames, "192.0.2.9") || !slices.IsSorted(s.CertificateNames) {
		t.Errorf("%d names: %q", len(s.CertificateNames), s.CertificateNames)
	}
}

// A cancelled probe reports nothing, not even if it is the second that fails.
func TestStopsImmediately(t *testing.T) {
	r := newRig(t)
	for _, s := range r.servers {
		s.status.Store(http.StatusInternalServerError)
	}
	stop := r.start()
	r.await("the certificate's names are known", func(s probe.State) bool { return len(s.CertificateNames) > 0 })
	r.clock.pass(t, false, func() bool {
		for _, s := range r.servers {
			s.hangs.Store(true)
		}
		return true
	})
	r.clock.waitFor(t, func() bool {
		return r.servers[endpoint+":6443"].requests.Load() == 2 && r.servers[local+":6443"].requests.Load() == 2
	})
	stop()
	if len(r.states) != 0 {
		t.Errorf("got %+v", <-r.states)
	}
}

// Go reads the environment once per process, so the test starts another one.
func TestUsesNoProxy(t *testing.T) {
	const proxy = "192.0.2.200:3128"
	if os.Getenv("HTTPS_PROXY") != "http://"+proxy {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUsesNoProxy$")
		child.Env = append(os.Environ(), "HTTPS_PROXY=http://"+proxy, "https_proxy=http://"+proxy, "NO_PROXY=", "no_proxy=")
		if output, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
		return
	}
	r := newRig(t)
	r.start()
	if s := r.await("both states are conclusive", conclusive); s.Endpoint.Result != probe.Answers || r.hasDialled(proxy) {
		t.Errorf("got %+v, dialled %q", s, r.dialled)
	}
}

const manifest = `apiVersion: v1
kind: Pod
spec:
  containers:
  - command:
    - kube-apiserver
    - --advertise-address=%s
    - --secure-port=%s
    image: registry.k8s.io/kube-apiserver:v1.36.3
`

func TestAPIServerAddress(t *testing.T) {
	const kubeadm = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	for name, test := range map[string]struct {
		files map[string]string
		local []string
		want  string
	}{
		"advertised":       {map[string]string{kubeadm: fmt.Sprintf(manifest, "192.0.2.7", "6444")}, []string{local, "192.0.2.7"}, "192.0.2.7:6444"},
		"IPv6":             {map[string]string{kubeadm: fmt.Sprintf(manifest, "FD00:0::7", "6443")}, []string{local, "fd00::7"}, "[fd00::7]:6443"},
		"address replaced": {map[string]string{kubeadm: fmt.Sprintf(manifest, "192.0.2.7", "6444")}, []string{local}, local + ":6444"},
		"unknown addresses": {
			map[string]string{kubeadm: fmt.Sprintf(manifest, "192.0.2.7", "6444")}, nil, "192.0.2.7:6444",
		},
		"RKE2": {map[string]string{"/var/lib/rancher/rke2/agent/pod-manifests/kube-apiserver.yaml": fmt.Sprintf(manifest, "192.0.2.7", "6445")}, []string{"192.0.2.7"}, "192.0.2.7:6445"},
		"k3s":  {nil, []string{local, "192.0.2.7"}, local + ":6443"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for path, content := range test.files {
				r.write(path, content)
			}
			r.local = test.local
			r.listen(test.want, newServer(t, r.ca.issue(local)))
			r.start()
			s := r.await("both states are conclusive", conclusive)
			if s.APIServer.Result != probe.Answers || !r.hasDialled(test.want) || s.Address != test.want {
				t.Errorf("got %+v at %q, dialled %q", s.APIServer, s.Address, r.dialled)
			}
		})
	}
	for name, prepare := range map[string]func(*rig){
		"no address":         func(r *rig) { r.local = nil },
		"malformed manifest": func(r *rig) { r.write(kubeadm, "\t") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			prepare(r)
			r.start()
			r.clock.pause(t)
			if s := r.await("both states are conclusive", conclusive); s.APIServer.Result != probe.Unknown || s.APIServer.Message == "" {
				t.Errorf("got %+v", s.APIServer)
			}
		})
	}
}

// k3s and RKE2 have other authorities than kubeadm.
func TestAuthorities(t *testing.T) {
	for _, path := range []string{"/var/lib/rancher/k3s/server/tls/server-ca.crt", "/var/lib/rancher/rke2/server/tls/server-ca.crt"} {
		r := newRig(t)
		if err := os.RemoveAll(filepath.Join(r.root, "etc")); err != nil {
			t.Fatal(err)
		}
		r.write(path, string(r.ca.pem))
		r.start()
		if s := r.await("both states are conclusive", conclusive); s.Endpoint.Result != probe.Answers {
			t.Errorf("%s: %+v", path, s.Endpoint)
		}
	}
}

// A server with another authority is not the host's API server.
func TestVerifiesAPIServer(t *testing.T) {
	r := newRig(t)
	r.listen(local+":6443", newServer(t, newAuthority(t).issue(local)))
	r.start()
	r.clock.pause(t)
	s := r.await("both states are conclusive", conclusive)
	if s.APIServer.Result != probe.Fails || s.CertificateNames != nil {
		t.Errorf("got %+v", s)
	}
}
