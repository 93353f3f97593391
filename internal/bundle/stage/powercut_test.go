package stage

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

var errPower = errors.New("the power is off")

// mains is a disk that loses its power at one of its operations, and what was not synced
// with it.
type mains struct {
	system
	// left is the number of operations until the power is lost; negative: never.
	left int
	// contents and names are what is not durable, by path.
	contents, names map[string]bool
}

func newMains(left int) *mains {
	return &mains{left: left, contents: map[string]bool{}, names: map[string]bool{}}
}

// off reports whether the power is lost at this operation or was lost before.
func (m *mains) off() bool {
	if m.left > 0 {
		m.left--
	}
	return m.left == 0
}

func (m *mains) Create(path string) (durable.File, error) {
	if m.off() {
		return nil, errPower
	}
	f, err := m.system.Create(path)
	m.contents[path], m.names[path] = true, true
	return &mainsFile{File: f, mains: m, path: path}, err
}

func (m *mains) Mkdir(path string) error {
	if m.off() {
		return errPower
	}
	m.names[path] = true
	return m.system.Mkdir(path)
}

func (m *mains) Rename(from, to string) error {
	if m.off() {
		return errPower
	}
	if m.contents[from] {
		m.contents[to] = true
	}
	m.names[to] = true
	delete(m.contents, from)
	delete(m.names, from)
	return m.system.Rename(from, to)
}

func (m *mains) Remove(path string) error {
	if m.off() {
		return errPower
	}
	return m.system.Remove(path)
}

// RemoveAll removes one file only if the power is lost.
func (m *mains) RemoveAll(path string) error {
	if m.left == 0 {
		return errPower
	}
	if m.off() {
		return errors.Join(errPower, m.system.RemoveAll(filepath.Join(path, "bin/kubelet")))
	}
	return m.system.RemoveAll(path)
}

func (m *mains) SyncDir(path string) error {
	if m.off() {
		return errPower
	}
	for name := range m.names {
		if filepath.Dir(name) == path {
			delete(m.names, name)
		}
	}
	return nil
}

// lose is what the power cut does to the disk: contents that were not synced are truncated,
// and without names also what was not synced in a folder is missing.
func (m *mains) lose(t *testing.T, names bool) {
	t.Helper()
	for path := range m.contents {
		if info, err := os.Stat(path); err == nil {
			if err := os.Truncate(path, info.Size()/2); err != nil {
				t.Fatal(err)
			}
		}
	}
	for path := range m.names {
		if !names {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

type mainsFile struct {
	durable.File
	mains *mains
	path  string
}

func (f *mainsFile) Write(data []byte) (int, error) {
	if f.mains.off() {
		return 0, errPower
	}
	return f.File.Write(data)
}

func (f *mainsFile) Chmod(mode fs.FileMode) error {
	if f.mains.off() {
		return errPower
	}
	return f.File.Chmod(mode)
}

func (f *mainsFile) Sync() error {
	if f.mains.off() {
		return errPower
	}
	delete(f.mains.contents, f.path)
	return nil
}

// The power is lost at each operation. The next Unpack completes the folder, and until then
// it is never taken for complete.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	data, _, o := sample(t, "v1.36.3", 100)
	older, _, olderOptions := sample(t, "v1.35.4", 100)
	for _, loseNames := range []bool{false, true} {
		for _, begun := range []bool{false, true} {
			cuts := 0
			for ; ; cuts++ {
				folder := filepath.Join(t.TempDir(), "stage")
				if begun {
					if _, err := unpack(t.Context(), newMains(-1), bytes.NewReader(older), folder, olderOptions); err != nil {
						t.Fatal(err)
					}
				}
				disk := newMains(cuts + 1)
				_, err := unpack(t.Context(), disk, bytes.NewReader(data), folder, o)
				if err == nil {
					break
				}
				if !errors.Is(err, errPower) {
					t.Fatal(err)
				}
				disk.lose(t, loseNames)
				m, err := Load(t.Context(), folder, o.Limits)
				if err == nil && m.KubernetesVersion == "v1.36.3" {
					checkStage(t, folder, 100)
				}
				if _, err := os.Stat(filepath.Join(folder, bundle.ManifestName)); err == nil && !begun {
					if _, err := Load(t.Context(), folder, o.Limits); err != nil {
						t.Errorf("cut %d: there is a manifest, but %v", cuts, err)
					}
				}
				if _, err := unpack(t.Context(), newMains(-1), bytes.NewReader(data), folder, o); err != nil {
					t.Errorf("cut %d, names lost %t: %v", cuts, loseNames, err)
				}
				checkStage(t, folder, 100)
			}
			if cuts < 30 {
				t.Errorf("the power was lost at %d operations only", cuts)
			}
		}
	}
}

// Everything is durable when Unpack returns.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	data, _, o := sample(t, "v1.36.3", 100)
	disk := newMains(-1)
	folder := filepath.Join(t.TempDir(), "stage")
	if _, err := unpack(t.Context(), disk, bytes.NewReader(data), folder, o); err != nil {
		t.Fatal(err)
	}
	if len(disk.contents)+len(disk.names) > 0 {
		t.Errorf("not durable: contents %v, names %v", disk.contents, disk.names)
	}
}
