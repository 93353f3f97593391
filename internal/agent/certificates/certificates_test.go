package certificates_test

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/certificates"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
)

// year is how long certificates of package pki last.
const year = 365 * 24 * time.Hour

func write(t *testing.T, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, "/etc/kubernetes", name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func certificate(t *testing.T, ends time.Time) pki.Pair {
	t.Helper()
	authority, err := pki.NewAuthority("ca", ends.Add(-year))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Client("u")
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func kubeconfig(pair pki.Pair) string {
	encode := base64.StdEncoding.EncodeToString
	return "kind: Config\nusers:\n- name: u\n  user:\n    client-certificate-data: " + encode(pair.Certificate) +
		"\n    client-key-data: " + encode(pair.Key) + "\n"
}

func TestRead(t *testing.T) {
	t.Parallel()
	root, now := t.TempDir(), time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	earlier, later := certificate(t, now), certificate(t, now.Add(time.Hour))
	write(t, root, "pki/apiserver.crt", string(later.Certificate)+string(earlier.Certificate))
	if got := certificates.Read(root); got != nil {
		t.Errorf("a worker reports %v", got)
	}
	write(t, root, "manifests/kube-apiserver.yaml", "kind: Pod\n")
	write(t, root, "pki/ca.crt", string(later.Certificate))
	write(t, root, "admin.conf", kubeconfig(later))
	for name, damaged := range map[string]string{
		"scheduler.conf": "no kubeconfig", "controller-manager.conf": "users:\n- user:\n    client-certificate-data: '%'\n",
		"pki/etcd/peer.crt": "", "pki/etcd/server.crt": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"pki/front-proxy-client.crt": string(later.Key), "pki/other.crt": string(earlier.Certificate),
	} {
		write(t, root, name, damaged)
	}
	want := []protocol.CertificateFacts{
		{Name: "admin.conf", NotAfter: now.Add(time.Hour)}, {Name: "pki/apiserver.crt", NotAfter: now}, {Name: "pki/ca.crt", NotAfter: now.Add(time.Hour)},
	}
	got := certificates.Read(root)
	if !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if ends := certificates.Ends(got[2:]); !ends.IsZero() {
		t.Errorf("an authority counts among the certificates that can be renewed: %s", ends)
	}
	if ends := certificates.Ends(got); !ends.Equal(now) {
		t.Errorf("the first one ends at %s", ends)
	}
}
