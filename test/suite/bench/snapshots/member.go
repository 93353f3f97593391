package snapshots

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
)

// layOut makes root look like a host on which kubeadm has set up the member of etcd.
func layOut(root string, store embedded.Store) error {
	certificates := filepath.Join(root, "etc/kubernetes/pki/etcd")
	manifests := filepath.Join(root, "etc/kubernetes/manifests")
	for _, folder := range []string{certificates, manifests, filepath.Join(root, "var/lib")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("making a folder: %w", err)
		}
	}
	for name, target := range map[string]string{
		filepath.Join(certificates, "ca.crt"): store.Authority, filepath.Join(certificates, "healthcheck-client.crt"): store.Certificate,
		filepath.Join(certificates, "healthcheck-client.key"): store.Key, filepath.Join(root, "var/lib/etcd"): store.Data,
	} {
		if err := os.Symlink(target, name); err != nil {
			return fmt.Errorf("linking a file of kubeadm: %w", err)
		}
	}
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Pod
spec:
  containers:
  - image: registry.k8s.io/etcd
    command: [etcd, --name=bench, --data-dir=/var/lib/etcd, --listen-client-urls=%s]
`, store.URL)
	if err := os.WriteFile(filepath.Join(manifests, "etcd.yaml"), []byte(manifest), 0o600); err != nil {
		return fmt.Errorf("writing the manifest of etcd: %w", err)
	}
	return nil
}

// fill stores size bytes in etcd, in values of a megabyte.
func fill(ctx context.Context, store embedded.Store, size int64) error {
	authority, err := os.ReadFile(store.Authority)
	if err != nil {
		return fmt.Errorf("reading the authority of etcd: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(store.Certificate, store.Key)
	if err != nil {
		return fmt.Errorf("reading the certificate of a client of etcd: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	const value = 1 << 20
	for i := range size / value {
		// []byte is base64 in JSON, as etcd's gateway has keys and values.
		body, err := json.Marshal(map[string][]byte{"key": fmt.Appendf(nil, "/bench/%d", i), "value": noise(value)})
		if err != nil {
			return fmt.Errorf("encoding a value: %w", err)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, store.URL+"/v3/kv/put", bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("storing a value: %w", err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return fmt.Errorf("storing a value: %w", err)
		}
		answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		_ = response.Body.Close()
		if err != nil {
			return fmt.Errorf("storing a value: %w", err)
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("storing a value: %s: %s", response.Status, answer)
		}
	}
	return nil
}
