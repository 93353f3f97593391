package cluster

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// memory keeps what a look at hosts has found out for clusters, by their names, so
// that of the changes of thousands of hosts only those wake a cluster that may make a
// difference to it. Nothing is decided by it, and what it says nothing of is unknown
// (ADR 0035). It is told to forget before such a look, so that what happens meanwhile
// is judged without. The zero value is ready to use, by several goroutines.
type memory[T any] struct {
	mu sync.Mutex
	of map[types.NamespacedName]T
}

func (m *memory[T]) keep(of types.NamespacedName, what T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[types.NamespacedName]T{}
	}
	m.of[of] = what
}

func (m *memory[T]) recall(of types.NamespacedName) (what T, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	what, known = m.of[of]
	return what, known
}

func (m *memory[T]) forget(of types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, of)
}
