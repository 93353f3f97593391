package agent_test

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// inode is a file or directory. After a power cut, unsynced data is undefined.
type inode struct {
	dir          bool
	data, synced []byte
	isSynced     bool
}

// tree maps paths to inodes.
type tree map[string]*inode

func (t tree) move(from, to string) {
	for name, node := range t {
		if rest, below := strings.CutPrefix(name, from); below && (rest == "" || rest[0] == '/') {
			delete(t, name)
			t[to+rest] = node
		}
	}
}

func (t tree) remove(path string) {
	for name := range t {
		if name == path || strings.HasPrefix(name, path+"/") {
			delete(t, name)
		}
	}
}

// change is an atomic change of names in a journalling file system.
type change struct {
	dirs  []string
	apply func(tree)
}

// platters is a disk with a cache. Names are durable after a sync of their directory,
// contents after a sync of the file.
type platters struct {
	mu      sync.Mutex
	cached  tree
	lasting tree
	pending []change
	random  *rand.Rand
}

func newPlatters(random *rand.Rand) *platters {
	root := &inode{dir: true}
	return &platters{cached: tree{"/": root, "/state": root}, lasting: tree{"/": root, "/state": root}, random: random}
}

func (p *platters) rename(dirs []string, apply func(tree)) {
	apply(p.cached)
	p.pending = append(p.pending, change{dirs, apply})
}

// sync makes all pending changes of a directory durable.
func (p *platters) sync(dir string) {
	p.pending = slices.DeleteFunc(p.pending, func(c change) bool {
		if !slices.Contains(c.dirs, dir) {
			return false
		}
		c.apply(p.lasting)
		return true
	})
}

// cutPower keeps everything durable and a random part of the rest. Of the pending
// changes of names it keeps a prefix, either overall or in each directory; of unsynced
// contents any part.
func (p *platters) cutPower() {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := p.random.IntN(len(p.pending) + 1)
	ordered, stopped := p.random.IntN(2) == 0, map[string]bool{}
	for i, c := range p.pending {
		lost := i >= keep
		if !ordered {
			lost = p.random.IntN(2) == 0 || slices.ContainsFunc(c.dirs, func(dir string) bool { return stopped[dir] })
		}
		if lost {
			for _, dir := range c.dirs {
				stopped[dir] = true
			}
			continue
		}
		c.apply(p.lasting)
	}
	// Sorted, so that a seed has one outcome and directories come first.
	for _, name := range slices.Sorted(maps.Keys(p.lasting)) {
		if parent := p.lasting[filepath.Dir(name)]; parent == nil || !parent.dir {
			delete(p.lasting, name)
			continue
		}
		p.forget(p.lasting[name])
	}
	p.pending, p.cached = nil, maps.Clone(p.lasting)
}

// shutDown is an orderly reboot, which loses nothing.
func (p *platters) shutDown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.pending {
		c.apply(p.lasting)
	}
	p.pending = nil
	for _, node := range p.lasting {
		node.synced, node.isSynced = slices.Clone(node.data), true
	}
}

// forget keeps a random part of the unsynced data of a file.
func (p *platters) forget(node *inode) {
	if node.dir || node.isSynced {
		return
	}
	switch p.random.IntN(4) {
	case 0:
		node.data = slices.Clone(node.synced)
	case 1:
		node.data = node.data[:p.random.IntN(len(node.data)+1)]
	case 2:
		node.data = make([]byte, len(node.data))
	}
	node.synced, node.isSynced = slices.Clone(node.data), true
}

// life is the disk of one process. The process crashes at disk operation number
// dieAt, which in half of the cases still takes effect.
type life struct {
	*platters

	dieAt, done int
	after       bool
	dead        chan struct{}
}

func (p *platters) live(dieAt int) *life {
	return &life{platters: p, dieAt: dieAt, after: p.random.IntN(2) == 0, dead: make(chan struct{})}
}

// die kills the process.
func (l *life) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isDead() {
		close(l.dead)
	}
}

func (l *life) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// do runs an operation that changes the disk.
func (l *life) do(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isDead() {
		return errDead
	}
	if l.done++; l.done == l.dieAt {
		if l.after {
			_ = f()
		}
		close(l.dead)
		return errDead
	}
	return f()
}

func (l *life) look(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isDead() {
		return errDead
	}
	return f()
}

func (l *life) Create(path string) (durable.File, error) {
	node := &inode{isSynced: true}
	err := l.do(func() error {
		if l.cached[path] != nil {
			return fs.ErrExist
		}
		l.rename([]string{filepath.Dir(path)}, func(t tree) { t[path] = node })
		return nil
	})
	return &handle{l, node, 0}, err
}

func (l *life) Overwrite(path string) (durable.File, int64, error) {
	var node *inode
	err := l.look(func() error {
		if node = l.cached[path]; node == nil {
			return fs.ErrNotExist
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return &handle{l, node, 0}, int64(len(node.data)), nil
}

func (l *life) ReadFile(path string) (data []byte, err error) {
	err = l.look(func() error {
		node := l.cached[path]
		if node == nil || node.dir {
			return fs.ErrNotExist
		}
		data = slices.Clone(node.data)
		return nil
	})
	return data, err
}

func (l *life) Stat(path string) error {
	return l.look(func() error {
		if l.cached[path] == nil {
			return fs.ErrNotExist
		}
		return nil
	})
}

func (l *life) Walk(path string) (files, dirs []string, err error) {
	err = l.look(func() error {
		if l.cached[path] == nil {
			return fs.ErrNotExist
		}
		for name, node := range l.cached {
			switch {
			case name != path && !strings.HasPrefix(name, path+"/"):
			case node.dir:
				dirs = append(dirs, name)
			default:
				files = append(files, name)
			}
		}
		return nil
	})
	return files, dirs, err
}

func (l *life) Mkdir(path string) error {
	node := &inode{dir: true}
	return l.do(func() error {
		l.rename([]string{filepath.Dir(path)}, func(t tree) { t[path] = node })
		return nil
	})
}

func (l *life) Rename(from, to string) error {
	return l.do(func() error {
		if l.cached[from] == nil {
			return fs.ErrNotExist
		}
		l.rename([]string{filepath.Dir(from), filepath.Dir(to)}, func(t tree) { t.move(from, to) })
		return nil
	})
}

func (l *life) Remove(path string) error {
	if err := l.Stat(path); err != nil {
		return err
	}
	return l.RemoveAll(path)
}

func (l *life) RemoveAll(path string) error {
	return l.do(func() error {
		l.rename([]string{filepath.Dir(path)}, func(t tree) { t.remove(path) })
		return nil
	})
}

func (l *life) SyncDir(path string) error {
	return l.do(func() error {
		l.sync(path)
		return nil
	})
}

// handle is an open file.
type handle struct {
	life *life
	node *inode
	at   int
}

func (h *handle) Write(data []byte) (int, error) {
	return len(data), h.life.do(func() error {
		content := slices.Clone(h.node.data)
		content = append(content, make([]byte, max(0, h.at+len(data)-len(content)))...)
		copy(content[h.at:], data)
		h.at += len(data)
		h.node.data, h.node.isSynced = content, false
		return nil
	})
}

func (h *handle) Chmod(fs.FileMode) error { return nil }

func (h *handle) Sync() error {
	return h.life.do(func() error {
		h.node.synced, h.node.isSynced = slices.Clone(h.node.data), true
		return nil
	})
}

func (h *handle) Close() error { return nil }
