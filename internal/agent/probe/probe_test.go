package probe_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
)

func TestBothAnswer(t *testing.T) {
	r := newRig(t)
	r.start()
	s := r.until("both are known", settled)
	if s.Endpoint.State != probe.Answers || s.APIServer.State != probe.Answers || s.Endpoint.Since.IsZero() {
		t.Errorf("saw %+v", s)
	}
	if want := []string{"10.96.0.1", own, "kubernetes"}; !slices.Equal(s.CertificateNames, want) {
		t.Errorf("the certificate is for %q, not %q", s.CertificateNames, want)
	}
}

func TestWhatCountsAsAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*rig, *server)
		want    probe.State
		message string
	}{
		"anonymous access refused":  {func(_ *rig, s *server) { s.status.Store(http.StatusUnauthorized) }, probe.Answers, ""},
		"anonymous access forbids":  {func(_ *rig, s *server) { s.status.Store(http.StatusForbidden) }, probe.Answers, ""},
		"not ready":                 {func(_ *rig, s *server) { s.status.Store(http.StatusInternalServerError) }, probe.Fails, "/readyz says 500"},
		"a redirect":                {func(_ *rig, s *server) { s.status.Store(http.StatusFound) }, probe.Fails, "/readyz says 302"},
		"nobody listens":            {func(r *rig, _ *server) { r.listen(endpoint+":6443", nil) }, probe.Fails, "192.0.2.1:6443 refused"},
		"a certificate for another": {func(r *rig, _ *server) { r.listen(endpoint+":6443", newServer(r.t, r.ca.issue(own))) }, probe.Fails, "valid for 192.0.2.2, not 192.0.2.1"},
		"somebody else's authority": {
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
			s := r.until("both are known", settled)
			if s.Endpoint.State != test.want || !strings.Contains(s.Endpoint.Message, test.message) {
				t.Errorf("saw %+v", s.Endpoint)
			}
			if test.want != probe.Unknown && s.APIServer.State != probe.Answers {
				t.Errorf("the host's own %+v", s.APIServer)
			}
		})
	}
}

// The time from a death to its being known is what a manager's patience is
// counted from.
func TestADeathIsKnownInTime(t *testing.T) {
	r := newRig(t)
	r.start()
	r.until("both are known", settled)
	died := r.clock.Now()
	r.servers[endpoint+":6443"].holding.Store(true)
	var passed time.Duration
	for probe := range int32(2) {
		passed += r.clock.pause(t)
		passed += r.clock.pass(t, true, func() bool {
			return r.servers[endpoint+":6443"].requests.Load() == probe+2 && r.servers[own+":6443"].requests.Load() == probe+2
		})
	}
	s := r.until("the death is known", func(s probe.Sight) bool { return s.Endpoint.State == probe.Fails })
	if passed > 13*time.Second || s.Endpoint.Since.Sub(died) != 5*time.Second || s.Endpoint.Message != "no answer within 3s" {
		t.Errorf("after %s: since %s after the death: %q", passed, s.Endpoint.Since.Sub(died), s.Endpoint.Message)
	}
	if s.APIServer.State != probe.Answers {
		t.Errorf("the host's own %+v", s.APIServer)
	}
	r.servers[endpoint+":6443"].holding.Store(false)
	r.clock.pause(t)
	r.until("one answer is enough", func(s probe.Sight) bool { return s.Endpoint.State == probe.Answers })
}

func TestTellsChangesOnly(t *testing.T) {
	r := newRig(t)
	r.rand = 1
	r.start()
	r.until("both are known", settled)
	for range 5 {
		if passed := r.clock.pause(t); passed != 4500*time.Millisecond {
			t.Errorf("probed after %s", passed)
		}
	}
	r.servers[endpoint+":6443"].status.Store(http.StatusServiceUnavailable)
	r.clock.pause(t)
	r.clock.pause(t)
	if s := <-r.seen; s.Endpoint.State != probe.Fails {
		t.Errorf("told %+v although nothing had changed", s)
	}
	if s := r.servers[own+":6443"]; s.connections.Load() < s.requests.Load() {
		t.Errorf("%d connections for %d probes: they are kept", s.connections.Load(), s.requests.Load())
	}
}

// A new certificate of the host's own API server is news.
func TestTellsNewNames(t *testing.T) {
	r := newRig(t)
	r.start()
	r.until("both are known", settled)
	r.listen(own+":6443", newServer(t, r.ca.issue("192.0.2.9")))
	r.clock.pause(t)
	r.until("the new name is told", func(s probe.Sight) bool { return slices.Equal(s.CertificateNames, []string{"192.0.2.9"}) })
	r.listen(own+":6443", nil)
	r.clock.pause(t)
	r.clock.pause(t)
	s := r.until("the own server is dead", func(s probe.Sight) bool { return s.APIServer.State == probe.Fails })
	if len(s.CertificateNames) != 1 {
		t.Error("forgot the names")
	}
}

func TestNamesAreBounded(t *testing.T) {
	r := newRig(t)
	names := []string{strings.Repeat("a", 254), "192.0.2.9"}
	for i := range 100 {
		names = append(names, fmt.Sprintf("a%d.test", i))
	}
	r.listen(own+":6443", newServer(t, r.ca.issue(names...)))
	r.start()
	s := r.until("both are known", settled)
	if len(s.CertificateNames) != 64 || !slices.Contains(s.CertificateNames, "192.0.2.9") || !slices.IsSorted(s.CertificateNames) {
		t.Errorf("%d names: %q", len(s.CertificateNames), s.CertificateNames)
	}
}

// A probe that is ended because nobody wants it any more says nothing, not even
// as the second that fails.
func TestStopsAtOnce(t *testing.T) {
	r := newRig(t)
	for _, s := range r.servers {
		s.status.Store(http.StatusInternalServerError)
	}
	stop := r.start()
	r.until("the certificate was seen", func(s probe.Sight) bool { return len(s.CertificateNames) > 0 })
	r.clock.pass(t, false, func() bool {
		for _, s := range r.servers {
			s.holding.Store(true)
		}
		return true
	})
	r.clock.waitFor(t, func() bool {
		return r.servers[endpoint+":6443"].requests.Load() == 2 && r.servers[own+":6443"].requests.Load() == 2
	})
	stop()
	if len(r.seen) != 0 {
		t.Errorf("told %+v", <-r.seen)
	}
}

// The environment is read once in a process, so this needs one of its own.
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
	if s := r.until("both are known", settled); s.Endpoint.State != probe.Answers || r.hasDialled(proxy) {
		t.Errorf("saw %+v, dialled %q", s, r.dialled)
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

func TestWhereTheOwnServerIs(t *testing.T) {
	const kubeadm = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	for name, test := range map[string]struct {
		files map[string]string
		own   []string
		want  string
	}{
		"advertised":       {map[string]string{kubeadm: fmt.Sprintf(manifest, "192.0.2.7", "6444")}, []string{own, "192.0.2.7"}, "192.0.2.7:6444"},
		"IPv6":             {map[string]string{kubeadm: fmt.Sprintf(manifest, "FD00:0::7", "6443")}, []string{own, "fd00::7"}, "[fd00::7]:6443"},
		"address replaced": {map[string]string{kubeadm: fmt.Sprintf(manifest, "192.0.2.7", "6444")}, []string{own}, own + ":6444"},
		"addresses not known": {
			map[string]string{kubeadm: fmt.Sprintf(manifest, "192.0.2.7", "6444")}, nil, "192.0.2.7:6444",
		},
		"RKE2": {map[string]string{"/var/lib/rancher/rke2/agent/pod-manifests/kube-apiserver.yaml": fmt.Sprintf(manifest, "192.0.2.7", "6445")}, []string{"192.0.2.7"}, "192.0.2.7:6445"},
		"k3s":  {nil, []string{own, "192.0.2.7"}, own + ":6443"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for path, content := range test.files {
				r.write(path, content)
			}
			r.own = test.own
			r.listen(test.want, newServer(t, r.ca.issue(own)))
			r.start()
			if s := r.until("both are known", settled); s.APIServer.State != probe.Answers || !r.hasDialled(test.want) {
				t.Errorf("saw %+v, dialled %q", s.APIServer, r.dialled)
			}
		})
	}
	for name, prepare := range map[string]func(*rig){
		"no address":         func(r *rig) { r.own = nil },
		"malformed manifest": func(r *rig) { r.write(kubeadm, "\t") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			prepare(r)
			r.start()
			r.clock.pause(t)
			if s := r.until("both are known", settled); s.APIServer.State != probe.Unknown || s.APIServer.Message == "" {
				t.Errorf("saw %+v", s.APIServer)
			}
		})
	}
}

// The authorities of k3s and RKE2 are elsewhere.
func TestAuthorities(t *testing.T) {
	for _, path := range []string{"/var/lib/rancher/k3s/server/tls/server-ca.crt", "/var/lib/rancher/rke2/server/tls/server-ca.crt"} {
		r := newRig(t)
		if err := os.RemoveAll(filepath.Join(r.root, "etc")); err != nil {
			t.Fatal(err)
		}
		r.write(path, string(r.ca.pem))
		r.start()
		if s := r.until("both are known", settled); s.Endpoint.State != probe.Answers {
			t.Errorf("%s: %+v", path, s.Endpoint)
		}
	}
}

// Somebody who answers in the place of the host's own API server is found out.
func TestOwnServerIsVerified(t *testing.T) {
	r := newRig(t)
	r.listen(own+":6443", newServer(t, newAuthority(t).issue(own)))
	r.start()
	r.clock.pause(t)
	s := r.until("both are known", settled)
	if s.APIServer.State != probe.Fails || s.CertificateNames != nil {
		t.Errorf("saw %+v", s)
	}
}
