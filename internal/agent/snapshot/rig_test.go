package snapshot_test

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/etcdmember"
)

// rig is a host with a member of etcd and snapshots.
type rig struct {
	etcdmember.Host

	t      *testing.T
	state  string
	system durable.System
	free   int64
	total  int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Host: etcdmember.New(t), t: t, state: t.TempDir(), system: durable.OS{}, free: 1 << 40, total: 1 << 40}
	r.Put(t, "key", "value")
	r.write("/etc/kubernetes/manifests/kube-apiserver.yaml", "kind: Pod\nspec:\n  containers:\n  - image: registry.example.com:5000/kube-apiserver:v1.36.3\n")
	return r
}

// store returns the Store of a new process.
func (r *rig) store() *snapshot.Store {
	return &snapshot.Store{
		Root: r.Root, Folder: filepath.Join(r.state, snapshot.Folder), System: r.system,
		Space: func(string) (int64, int64, error) { return r.free, r.total, nil },
		Now:   func() time.Time { return time.Date(2026, 11, 24, 12, 0, 1, 5, time.UTC) }, Log: slog.New(slog.DiscardHandler),
	}
}

func (r *rig) write(path, content string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.Root, path), []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func want(id string, keep int32) protocol.EtcdSnapshot {
	return protocol.EtcdSnapshot{ID: id, Cluster: protocol.EtcdCluster{Namespace: "ns", Name: "c", UID: "uid"}, Keep: keep}
}

// take takes snapshots, of which two stay.
func (r *rig) take(ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		if err := r.store().Take(r.t.Context(), want(id, 2)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// listed returns the IDs that a new process lists.
func (r *rig) listed() []string {
	r.t.Helper()
	list, err := r.store().List(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var ids []string
	for _, facts := range list {
		ids = append(ids, facts.ID)
	}
	return ids
}

func (r *rig) expectListed(ids ...string) {
	r.t.Helper()
	if got := r.listed(); !slices.Equal(got, ids) {
		r.t.Errorf("got %q, not %q", got, ids)
	}
}

// files returns the names of the files of all snapshots.
func (r *rig) files() []string {
	r.t.Helper()
	var names []string
	err := filepath.WalkDir(filepath.Join(r.state, snapshot.Folder), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, filepath.Base(path))
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatal(err)
	}
	return names
}

// path is where a file of a snapshot is.
func (r *rig) path(name string) string {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.state, snapshot.Folder, "*", name))
	if err != nil || len(found) != 1 {
		r.t.Fatalf("got %q, %v", found, err)
	}
	return found[0]
}

// damage changes one byte of a file, at the same size.
func (r *rig) damage(name string) {
	r.t.Helper()
	f, err := os.OpenFile(r.path(name), os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	var one [1]byte
	_, err = f.ReadAt(one[:], 5000)
	one[0] ^= 1
	_, writeErr := f.WriteAt(one[:], 5000)
	if err := errors.Join(err, writeErr, f.Close()); err != nil && !errors.Is(err, io.EOF) {
		r.t.Fatal(err)
	}
}

func expectError(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, not an error with %q", err, text)
	}
}
