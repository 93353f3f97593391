package checkpoint_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/checkpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
)

const (
	manifest = "kind: Pod\nspec:\n  containers:\n  - image: etcd:1\n"
	etcdPath = "/etc/kubernetes/manifests/etcd.yaml"
	certPath = "/etc/kubernetes/pki/apiserver.crt"
	keyPath  = "/etc/kubernetes/pki/apiserver.key"
	config   = "/var/lib/kubelet/config.yaml"
	flags    = "/var/lib/kubelet/kubeadm-flags.env"
	program  = "/usr/bin/kubelet"
)

func write(t *testing.T, root, path, content string) {
	t.Helper()
	name := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}

func newHost(t *testing.T) (checkpoint.Store, pki.Pair) {
	t.Helper()
	authority, err := pki.NewAuthority("kubernetes", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var pairs [2]pki.Pair
	for i := range pairs {
		if pairs[i], err = authority.Server("kube-apiserver"); err != nil {
			t.Fatal(err)
		}
	}
	root := t.TempDir()
	for path, content := range map[string]string{
		etcdPath: manifest, certPath: string(pairs[0].Certificate), keyPath: string(pairs[0].Key), config: "kind: K\n", flags: "A=1\n",
		program: "old", "/etc/kubernetes/tmp/kubeadm-backup-etcd/db": "large",
	} {
		write(t, root, path, content)
	}
	return checkpoint.Store{Root: root, Folder: filepath.Join(t.TempDir(), "state/checkpoints"), System: durable.OS{}}, pairs[1]
}

// Damaged files come back, with what belongs to them. Others stay as kubeadm wrote them.
func TestRepair(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path, content string
		restored      []string
	}{
		"nothing":                  {path: program, content: "new"},
		"a new manifest":           {path: etcdPath, content: manifest + "status: {}\n"},
		"an empty manifest":        {path: etcdPath, restored: []string{etcdPath}},
		"a manifest of zeros":      {path: etcdPath, content: string(make([]byte, 100)), restored: []string{etcdPath}},
		"a manifest of no Pod":     {path: etcdPath, content: "kind: Pod\nspec:\n", restored: []string{etcdPath}},
		"a key of another":         {path: keyPath, content: "other", restored: []string{keyPath}},
		"a certificate of another": {path: certPath, content: "other", restored: []string{certPath}},
		"an empty configuration":   {path: config, restored: []string{config}},
		"empty flags":              {path: flags, restored: []string{flags}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := newHost(t)
			kept, err := s.Take(t.Context(), "one", []string{program}, nil)
			if err != nil {
				t.Fatal(err)
			}
			content := test.content
			switch {
			case content == "other" && test.path == keyPath:
				content = string(other.Key)
			case content == "other":
				content = string(other.Certificate)
			}
			write(t, s.Root, test.path, content)
			restored, err := kept.Repair()
			if err != nil || !slices.Equal(restored, test.restored) {
				t.Errorf("got %q, %v", restored, err)
			}
			if restored, err := kept.Repair(); err != nil || len(restored) > 0 {
				t.Errorf("a second time: %q, %v", restored, err)
			}
		})
	}
}

func TestMissingManifestComesBack(t *testing.T) {
	t.Parallel()
	s, _ := newHost(t)
	kept, err := s.Take(t.Context(), "one", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(s.Root, etcdPath)); err != nil {
		t.Fatal(err)
	}
	if restored, err := kept.Repair(); err != nil || !slices.Equal(restored, []string{etcdPath}) {
		t.Errorf("got %q, %v", restored, err)
	}
	name := filepath.Join(s.Root, etcdPath)
	data, err := os.ReadFile(name)
	info, statErr := os.Stat(name)
	if err := errors.Join(err, statErr); err != nil || string(data) != manifest || info.Mode() != 0o640 {
		t.Errorf("got %q, %v, %v", data, info, err)
	}
}

// An incomplete checkpoint is none, and a complete one does not change any more.
func TestTake(t *testing.T) {
	t.Parallel()
	s, _ := newHost(t)
	broken := errors.New("the connection broke")
	if _, err := s.Take(t.Context(), "one", []string{program}, func(_ context.Context, path string) error {
		return errors.Join(os.WriteFile(path, []byte("half"), 0o600), broken)
	}); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	if _, err := s.Open("one"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	for _, content := range []string{"whole", "another"} {
		kept, err := s.Take(t.Context(), "one", []string{program}, func(_ context.Context, path string) error {
			return os.WriteFile(path, []byte(content), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(kept.Folder(), checkpoint.SnapshotFile)); err != nil || string(data) != "whole" {
			t.Errorf("got %q, %v", data, err)
		}
		if want := []string{etcdPath, certPath, keyPath, program, config, flags}; !slices.Equal(kept.Paths(), want) {
			t.Errorf("got %q", kept.Paths())
		}
	}
}
