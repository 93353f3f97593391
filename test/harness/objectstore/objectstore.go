// Package objectstore runs a server with the API of Amazon S3 for tests. It checks signatures.
package objectstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/ports"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// module is this repository, in which test/tools pins the server.
const module = "github.com/capi-elemental/cluster-api-provider-elemental"

// Credentials of the server, and its bucket.
const (
	AccessKey = "test-access"
	SecretKey = "test-secret-key"
	Bucket    = "snapshots"
)

// Store is a running server.
type Store struct {
	// Endpoint is its URL.
	Endpoint string
	// Authority has the certificate of its authority, PEM.
	Authority string
	// Folder has the objects of the bucket as files.
	Folder string
}

// New builds the server unless it is cached, and runs it until the test ends.
func New(tb testing.TB) Store {
	tb.Helper()
	return Listen(tb, "127.0.0.1")
}

// Listen is New with the address that the server listens at.
func Listen(tb testing.TB, address string) Store {
	tb.Helper()
	var reserved ports.Set
	tb.Cleanup(reserved.Release)
	port, err := reserved.Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	folder := tb.TempDir()
	authority, err := pki.NewAuthority("store-ca", time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	pair, err := authority.Server("store", address)
	if err != nil {
		tb.Fatal(err)
	}
	listen := net.JoinHostPort(address, strconv.Itoa(port))
	s := Store{
		Endpoint: "https://" + listen, Authority: string(authority.Certificate), Folder: filepath.Join(folder, "data", Bucket),
	}
	certificate, key, metadata := filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"), filepath.Join(folder, "metadata")
	for _, dir := range []string{s.Folder, metadata} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	for path, data := range map[string][]byte{certificate: pair.Certificate, key: pair.Key} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	s.run(tb, "--port", listen, "--cert", certificate, "--key", key, "--access", AccessKey, "--secret", SecretKey,
		"posix", "--sidecar", metadata, filepath.Dir(s.Folder))
	return s
}

// run starts the server and waits until it answers.
func (s Store) run(tb testing.TB, args ...string) {
	tb.Helper()
	log, err := os.Create(filepath.Join(tb.TempDir(), "log"))
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program(tb), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	tb.Cleanup(func() {
		cancel()
		<-ended
		_ = log.Close()
	})
	for {
		request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, s.Endpoint, http.NoBody)
		if err != nil {
			tb.Fatal(err)
		}
		response, err := s.Client(tb).Do(request)
		if err == nil {
			_ = response.Body.Close()
			return
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			tb.Fatalf("the server ended:\n%s", text)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Client returns a client that trusts the server.
func (s Store) Client(tb testing.TB) *http.Client {
	tb.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(s.Authority)) {
		tb.Fatal("the authority is not PEM")
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
}

// Put sends an object with these headers.
func (s Store) Put(tb testing.TB, url string, header map[string]string, content string) error {
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodPut, url, strings.NewReader(content))
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	for key, value := range header {
		request.Header.Set(key, value)
	}
	response, err := s.Client(tb).Do(request)
	if err != nil {
		return fmt.Errorf("sending an object: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %s", response.Status)
	}
	return nil
}

// program returns the path of the server.
func program(tb testing.TB) string {
	tb.Helper()
	checkout, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		tb.Fatalf("finding the checkout: %v", err)
	}
	tools, err := toolset.Select("versitygw")
	if err != nil {
		tb.Fatal(err)
	}
	cache, err := toolset.CacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	builder := toolset.Builder{Modules: filepath.Join(strings.TrimSpace(string(checkout)), "test", "tools"), Cache: cache, Progress: os.Stderr}
	folder, err := builder.Folder(tb.Context(), tools...)
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(folder, "versitygw")
}
