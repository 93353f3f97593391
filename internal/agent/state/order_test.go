package state_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
)

// recorder is the real file system and records the operations on it.
type recorder struct {
	durable.OS

	done []string
}

func (r *recorder) record(verb, path string) { r.done = append(r.done, verb+" "+filepath.Base(path)) }

func (r *recorder) Create(path string) (durable.File, error) {
	r.record("create", "it")
	f, err := r.OS.Create(path)
	return &recordedFile{f, r}, err
}

func (r *recorder) Rename(from, to string) error {
	r.record("rename to", to)
	return r.OS.Rename(from, to)
}

func (r *recorder) RemoveAll(path string) error {
	r.record("remove", path)
	return r.OS.RemoveAll(path)
}

func (r *recorder) Mkdir(path string) error {
	r.record("make", path)
	return r.OS.Mkdir(path)
}

func (r *recorder) SyncDir(path string) error {
	r.record("sync", path)
	return r.OS.SyncDir(path)
}

func (r *recorder) Overwrite(path string) (durable.File, int64, error) {
	f, size, err := r.OS.Overwrite(path)
	return &recordedFile{f, r}, size, err
}

type recordedFile struct {
	durable.File

	recorder *recorder
}

func (f *recordedFile) Write(data []byte) (int, error) {
	f.recorder.record("write", "it")
	return f.File.Write(data)
}

func (f *recordedFile) Sync() error {
	f.recorder.record("sync", "it")
	return f.File.Sync()
}

// A document is durable only if these operations happen in this order.
func TestOrderOfDiskOperations(t *testing.T) {
	r := &recorder{}
	path := filepath.Join(t.TempDir(), "state")
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"open", func() error { return opened(path, r, nil) }, []string{"make state", "sync 001", "sync state"}},
		{
			"write", func() error {
				return opened(path, r, func(d *state.Dir) error { return d.Write("a/b.json", []byte("x")) })
			},
			[]string{"sync state", "make a", "sync state", "create it", "write it", "sync it", "rename to b.json", "sync a"},
		},
		{
			"remove", func() error { return opened(path, r, func(d *state.Dir) error { return d.Remove("a") }) },
			[]string{"sync state", "sync a", "rename to removed", "sync state", "sync state", "write it", "sync it", "remove removed", "sync state"},
		},
	} {
		r.done = nil
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.done, step.want) {
			t.Errorf("%s: did %q, want %q", step.name, r.done, step.want)
		}
	}
}

func opened(path string, system durable.System, do func(*state.Dir) error) error {
	d, err := state.OpenDir(path, system)
	if err != nil || do == nil {
		return err
	}
	return do(d)
}

var errDisk = errors.New("input/output error")

// brokenDisk fails at Stat.
type brokenDisk struct{ durable.OS }

func (brokenDisk) Stat(string) error { return errDisk }

func TestBrokenDiskIsAnError(t *testing.T) {
	if _, err := state.OpenDir("/does/not/matter", brokenDisk{}); !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
}
