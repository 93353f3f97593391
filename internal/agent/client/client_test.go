package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server starts an agent API with a certificate that is valid between two times.
func server(t *testing.T, from, to time.Time, handler http.HandlerFunc) (*httptest.Server, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"manager.example.com", "direct.example.com"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// serving starts a server with a certificate that is valid from an hour ago until in an
// hour.
func serving(t *testing.T, handler http.HandlerFunc) (*httptest.Server, string) {
	t.Helper()
	return server(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), handler)
}

func connect(t *testing.T, change func(*client.Options)) *client.Client {
	t.Helper()
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := identity.ClientCertificate(key)
	if err != nil {
		t.Fatal(err)
	}
	o := client.Options{Certificate: certificate, UserAgent: "test/1"}
	change(&o)
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func reply(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestUsesTLS13AndHTTP2(t *testing.T) {
	var seen atomic.Pointer[http.Request]
	s, bundle := serving(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r)
		w.WriteHeader(http.StatusNoContent)
	})
	c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL + "/base"}, bundle })
	if _, err := c.Plan(t.Context(), "", "boot 1"); err != nil {
		t.Fatal(err)
	}
	plan, err := c.Plan(t.Context(), "r 1", "boot 1")
	if plan != nil || err != nil {
		t.Fatalf("got %v: %v", plan, err)
	}
	r := seen.Load()
	if r.TLS.Version != tls.VersionTLS13 || r.ProtoMajor != 2 || len(r.TLS.PeerCertificates) != 1 {
		t.Errorf("TLS %x, %s, %d certificates", r.TLS.Version, r.Proto, len(r.TLS.PeerCertificates))
	}
	if r.URL.Path != "/base/v1/plan" || r.URL.Query().Get("after") != "r 1" || r.URL.Query().Get("boot") != "boot 1" || r.UserAgent() != "test/1" {
		t.Errorf("asked for %s as %s", r.URL, r.UserAgent())
	}
	if serverTime, _ := c.ServerTime(); time.Since(serverTime).Abs() > time.Minute {
		t.Errorf("the server's time is %s", serverTime)
	}
}

func TestThreat18_TrustsTheBundleOnly(t *testing.T) {
	s, _ := serving(t, reply(http.StatusNoContent, "", ""))
	_, other := serving(t, reply(http.StatusNoContent, "", ""))
	c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, other })
	_, err := c.Plan(t.Context(), "", "boot")
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "trust bundle") {
		t.Errorf("got %v", err)
	}
}

func TestThreat17_RefusesOldTLS(t *testing.T) {
	s, bundle := serving(t, reply(http.StatusNoContent, "", ""))
	s.TLS.MaxVersion = tls.VersionTLS12
	c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, bundle })
	if _, err := c.Plan(t.Context(), "", "boot"); err == nil {
		t.Error("connected by TLS 1.2")
	}
}

// No option disables verification, and every server URL uses TLS.
func TestThreat17_NoInsecureWayIn(t *testing.T) {
	for field := range reflect.TypeFor[client.Options]().Fields() {
		if name := strings.ToLower(field.Name); strings.Contains(name, "insecure") || strings.Contains(name, "skip") {
			t.Errorf("there is an option %s", name)
		}
	}
	_, bundle := serving(t, reply(http.StatusNoContent, "", ""))
	for _, server := range []string{"http://127.0.0.1:1", "127.0.0.1:1", "//127.0.0.1:1"} {
		if _, err := client.New(client.Options{Servers: []string{server}, TrustBundle: bundle}); err == nil {
			t.Errorf("accepted %s as a server URL", server)
		}
	}
	if _, err := client.New(client.Options{Servers: []string{"https://127.0.0.1:1"}}); err == nil {
		t.Error("accepted an empty trust bundle")
	}
}

// The client ignores the CA certificates of the system. crypto/x509 reads them once per
// process, so the test runs in its own process.
func TestThreat18_SystemRootsDoNotCount(t *testing.T) {
	const alone = "ELEMENTAL_TEST_ALONE"
	if os.Getenv(alone) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), alone+"=yes")
		if output, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
			t.Errorf("%v: %s", err, output)
		}
		return
	}
	s, system := serving(t, reply(http.StatusNoContent, "", ""))
	_, other := serving(t, reply(http.StatusNoContent, "", ""))
	file := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(file, []byte(system), 0o600); err != nil {
		t.Fatal(err)
	}
	// crypto/x509 reads this variable.
	t.Setenv("SSL_CERT_FILE", file)
	c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, other })
	if _, err := c.Plan(t.Context(), "", ""); err == nil {
		t.Error("trusted a CA certificate of the system")
	}
}

func TestServersInTurn(t *testing.T) {
	var first, second atomic.Int32
	busy, bundle1 := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		first.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	works, bundle2 := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		second.Add(1)
		w.WriteHeader(http.StatusNoContent)
	})
	c := connect(t, func(o *client.Options) {
		o.Servers, o.TrustBundle = []string{"https://127.0.0.1:1", busy.URL, works.URL}, bundle1+bundle2
	})
	for range 3 {
		if _, err := c.Plan(t.Context(), "", "boot"); err != nil {
			t.Fatal(err)
		}
	}
	if first.Load() != 1 || second.Load() != 3 {
		t.Errorf("asked %d and %d times; want the working server first", first.Load(), second.Load())
	}
}

func TestProblems(t *testing.T) {
	const media = "application/problem+json"
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		check   func(error) bool
	}{
		"unknown host": {
			reply(403, media, `{"type":"urn:elemental:unknown-host","title":"Unknown","status":403}`),
			func(err error) bool {
				return client.IsProblem(err, protocol.ProblemUnknownHost) && client.IsProblemEverywhere(err, protocol.ProblemUnknownHost)
			},
		},
		"not a problem document": {
			reply(500, "text/html", "<html>"),
			func(err error) bool { return strings.Contains(err.Error(), "Internal Server Error") },
		},
		"control characters": {
			reply(403, media, `{"type":"x","title":"a\u001b[31m\nb","status":403}`),
			func(err error) bool { return !strings.ContainsAny(err.Error(), "\x1b\n") },
		},
		"retry after": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
			},
			func(err error) bool { return client.RetryAfter(err) == 7*time.Second },
		},
		"retry after a year": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "31536000")
				w.WriteHeader(http.StatusTooManyRequests)
			},
			func(err error) bool { return client.RetryAfter(err) == 10*time.Minute },
		},
		"redirect": {
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://example.org/", http.StatusFound)
			},
			func(err error) bool { return strings.Contains(err.Error(), "302") },
		},
		"not JSON": {
			reply(200, "application/json", "{"),
			func(err error) bool { return strings.Contains(err.Error(), "decoding") },
		},
		"endless answer": {
			reply(200, "application/json", strings.Repeat("x", 1<<20+1)),
			func(err error) bool { return strings.Contains(err.Error(), "more than") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, bundle := serving(t, test.handler)
			c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, bundle })
			if _, err := c.Plan(t.Context(), "", "boot"); err == nil || !test.check(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestUnknownEverywhere(t *testing.T) {
	unknown, bundle := serving(t, reply(403, "application/problem+json", `{"type":"urn:elemental:unknown-host"}`))
	c := connect(t, func(o *client.Options) {
		o.Servers, o.TrustBundle = []string{"https://127.0.0.1:1", unknown.URL}, bundle
	})
	_, err := c.Plan(t.Context(), "", "boot")
	if !client.IsProblem(err, protocol.ProblemUnknownHost) || client.IsProblemEverywhere(err, protocol.ProblemUnknownHost) {
		t.Errorf("an unreachable server counts as a server that does not know the host: %v", err)
	}
}

func TestThreat27_TokenTravelsInItsHeaderOnly(t *testing.T) {
	var got atomic.Value
	s, bundle := serving(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(r.Header.Get("Authorization") + " " + r.URL.String() + " " + string(body))
		w.WriteHeader(http.StatusForbidden)
	})
	c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, bundle })
	_, err := c.Enrol(t.Context(), "hush-hush", protocol.EnrolRequest{})
	if err == nil || strings.Contains(err.Error(), "hush-hush") {
		t.Errorf("got %v", err)
	}
	if text, _ := got.Load().(string); !strings.HasPrefix(text, "Bearer hush-hush ") || strings.Count(text, "hush-hush") != 1 {
		t.Errorf("sent %q", text)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	arrived := make(chan struct{})
	s, bundle := serving(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, bundle })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := c.Plan(ctx, "", "boot"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
