package erase

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// zeroHook is a device that calls zero before Zero.
type zeroHook struct {
	device
	zero func() error
}

func (z *zeroHook) Zero(offset, length int64) error {
	if err := z.zero(); err != nil {
		return err
	}
	return z.device.Zero(offset, length)
}

// notifyingFiles closes written after the first write.
type notifyingFiles struct {
	state.Files
	written chan struct{}
	once    sync.Once
}

func (n *notifyingFiles) Write(name string, data []byte) error {
	err := n.Files.Write(name, data)
	n.once.Do(func() { close(n.written) })
	return err
}

// The first attempt ends after one disk was erased. The second attempt erases only
// the other disk.
func TestErasureContinuesAfterPowerCut(t *testing.T) {
	l := newLab(t)
	first, second := l.loop("first"), l.loop("second")
	ctx, cut := context.WithCancelCause(t.Context())
	power := errors.New("power cut")
	var mu sync.Mutex
	zeroed := map[string]int{}
	// The erased disk must be recorded before the power cut.
	recorded := make(chan struct{})
	e := l.eraser()
	e.open = func(path string) (device, error) {
		opened, err := l.open(path)
		name := filepath.Base(path)
		return &zeroHook{device: opened, zero: func() error {
			if name == second && ctx.Err() == nil {
				<-recorded
				cut(power)
				return power
			}
			mu.Lock()
			defer mu.Unlock()
			zeroed[name]++
			return nil
		}}, err
	}
	r := l.runner(e)
	r.Documents = &notifyingFiles{Files: r.Documents, written: recorded}
	if _, err := r.Run(ctx, resetOf(protocol.EraseZero), func(string) {}); !errors.Is(err, power) {
		t.Fatalf("the first attempt ended with %v", err)
	}
	result, err := l.runner(e).Run(t.Context(), resetOf(protocol.EraseZero), func(string) {})
	if err != nil || result.State != protocol.StateSucceeded || len(result.Erased) != 2 || result.Message != "note" {
		t.Fatalf("got %+v, %v", result, err)
	}
	if zeroed[first] != 1 || zeroed[second] != 1 {
		t.Errorf("zeroed %v, want each disk once", zeroed)
	}
	// A disk that was written to after its erasure is erased again.
	l.overwrite(first, 4096, []byte("new data"))
	if _, err := l.runner(e).Run(t.Context(), resetOf(protocol.EraseZero), func(string) {}); err != nil || !l.isZero(first) {
		t.Errorf("data written after the erasure still exists: %v", err)
	}
}
