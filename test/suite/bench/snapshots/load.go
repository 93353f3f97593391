package snapshots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

const (
	// writers write at the same time, each once in writePeriod: a hundred writes a second in all.
	writers     = 20
	writePeriod = 200 * time.Millisecond
	// valueSize is how many bytes a write changes.
	valueSize = 1 << 10
)

// load writes to an API server, and tells how long each write takes.
type load struct {
	stop    context.CancelCauseFunc
	running sync.WaitGroup

	mu      sync.Mutex
	samples []time.Duration
	err     error
}

// errStopped is why a load ends.
var errStopped = errors.New("the load was stopped")

// startLoad begins to write ConfigMaps in the namespace.
func startLoad(ctx context.Context, admin client.Client, namespace string) (*load, error) {
	l := &load{}
	var all []*corev1.ConfigMap
	for i := range writers {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("load-%d", i)}}
		if err := admin.Create(ctx, c); err != nil {
			return nil, fmt.Errorf("creating a ConfigMap: %w", err)
		}
		all = append(all, c)
	}
	ctx, l.stop = context.WithCancelCause(ctx)
	for i, c := range all {
		l.running.Go(func() {
			// One after the other, not all at once.
			if measure.Pause(ctx, writePeriod*time.Duration(i)/writers) == nil {
				l.write(ctx, admin, c)
			}
		})
	}
	return l, nil
}

func (l *load) write(ctx context.Context, admin client.Client, c *corev1.ConfigMap) {
	for due := time.Now(); ; due = due.Add(writePeriod) {
		if measure.Pause(ctx, time.Until(due)) != nil {
			return
		}
		before := c.DeepCopy()
		c.BinaryData = map[string][]byte{"value": noise(valueSize)}
		err := admin.Patch(ctx, c, client.MergeFrom(before))
		took := time.Since(due) // also the time that it waited for the write before
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		l.samples = append(l.samples, took)
		l.err = errors.Join(l.err, err)
		l.mu.Unlock()
	}
}

// during returns how long each write took that ended while do ran.
func (l *load) during(do func() error) ([]time.Duration, error) {
	if _, err := l.take(); err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	return l.take()
}

func (l *load) take() ([]time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	samples := l.samples
	l.samples = nil
	if l.err != nil {
		return nil, fmt.Errorf("writing under load: %w", l.err)
	}
	return samples, nil
}

// close ends all writes.
func (l *load) close() {
	l.stop(errStopped)
	l.running.Wait()
}

// noise returns data that can't be compressed.
func noise(size int) []byte {
	data := make([]byte, size)
	for i := 0; i+8 <= size; i += 8 {
		n := rand.Uint64()
		for j := range 8 {
			data[i+j] = byte(n >> (8 * j))
		}
	}
	return data
}
