package agent_test

import (
	"errors"
	"io/fs"
	"maps"
	"strings"
	"sync"
)

// disk implements state.Files in memory and can simulate a crash.
type disk struct {
	mu      sync.Mutex
	content map[string]string
	// writes counts writes. The host crashes at write number dieAt, before or
	// after the write takes effect.
	writes, dieAt int
	after         bool
	dead          chan struct{}
}

var errDead = errors.New("the host is dead")

func newDisk() *disk {
	return &disk{content: map[string]string{}, dieAt: -1, dead: make(chan struct{})}
}

// reborn returns the disk as the next boot reads it.
func (d *disk) reborn(dieAt int, after bool) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &disk{content: maps.Clone(d.content), dieAt: dieAt, after: after, dead: make(chan struct{})}
}

func (d *disk) isDead() bool {
	select {
	case <-d.dead:
		return true
	default:
		return false
	}
}

func (d *disk) change(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDead() {
		return errDead
	}
	d.writes++
	if d.writes == d.dieAt {
		if d.after {
			f()
		}
		close(d.dead)
		return errDead
	}
	f()
	return nil
}

func (d *disk) Read(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDead() {
		return nil, errDead
	}
	text, ok := d.content[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

func (d *disk) Write(name string, data []byte) error {
	return d.change(func() { d.content[name] = string(data) })
}

func (d *disk) Remove(name string) error {
	return d.change(func() {
		maps.DeleteFunc(d.content, func(have, _ string) bool { return have == name || strings.HasPrefix(have, name+"/") })
	})
}
