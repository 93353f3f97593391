package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Documents of package state that this package reads.
const (
	identityDocument = "identity.json"
	planDocument     = "plan.json"
	trustDocument    = "trust.json"
)

var errGone = errors.New("the program that writes this has been killed")

// disk is the state of a host that survives a power cut.
type disk struct {
	mu        sync.Mutex
	documents map[string]string
	hostname  string
	// installed means that bootstrap data was executed, at least in part. stopped means
	// that the installed software must not start again.
	installed, stopped bool
	// kubernetes is the version of the programs of Kubernetes; blank before an upgrade.
	kubernetes string
	// planned is the time of the last write of a plan.
	planned time.Time
}

// mount implements state.Files: access to the disk for one process of the agent. After
// the process was killed no write succeeds.
type mount struct {
	disk *disk
	gone atomic.Bool
}

// change runs f unless the process is dead.
func (m *mount) change(f func(d *disk)) error {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if m.gone.Load() {
		return errGone
	}
	f(m.disk)
	return nil
}

// kill makes all later writes fail.
func (m *mount) kill() {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.gone.Store(true)
}

// Read reads a document.
func (m *mount) Read(name string) ([]byte, error) {
	if m.gone.Load() {
		return nil, errGone
	}
	return m.disk.read(name)
}

func (d *disk) read(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text, ok := d.documents[name]
	if !ok {
		return nil, fmt.Errorf("reading %s: %w", name, fs.ErrNotExist)
	}
	return []byte(text), nil
}

// Write replaces a document.
func (m *mount) Write(name string, data []byte) error {
	return m.change(func(d *disk) {
		d.documents[name] = string(data)
		if name == planDocument {
			d.planned = time.Now()
		}
	})
}

// Remove deletes a document or a folder.
func (m *mount) Remove(name string) error {
	return m.change(func(d *disk) {
		maps.DeleteFunc(d.documents, func(have, _ string) bool { return have == name || strings.HasPrefix(have, name+"/") })
	})
}

// endingIn returns the sorted folders of all documents with a name.
func (m *mount) endingIn(name string) []string {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	var folders []string
	for have := range m.disk.documents {
		if folder, ok := strings.CutSuffix(have, name); ok {
			folders = append(folders, folder)
		}
	}
	slices.Sort(folders)
	return folders
}
