package download

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A slow download does not count as stalled.
func TestStalledDownload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		began, stalled := time.Now(), make(chan time.Duration, 1)
		b := NewBody(r, 100, 1, func() {
			stalled <- time.Since(began)
			_ = w.CloseWithError(ErrStalled)
		})
		go func() {
			for range 10 {
				if _, err := w.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(stallTimeout - time.Second)
			}
		}()
		content, err := io.ReadAll(b)
		if len(content) != 10 || err == nil {
			t.Errorf("read %d bytes, %v", len(content), err)
		}
		if after := <-stalled; after != 9*(stallTimeout-time.Second)+stallTimeout {
			t.Errorf("given up after %s", after)
		}
	})
}

// A server that sends a byte now and then does not hold the host for ever.
func TestDripCountsAsStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		b := NewBody(r, 1<<20, 1<<10, func() { _ = w.CloseWithError(ErrStalled) })
		began, over := time.Now(), make(chan struct{})
		go func() {
			defer close(over)
			for {
				if _, err := w.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		content, err := io.ReadAll(b)
		if !errors.Is(err, ErrStalled) || time.Since(began) != stallTimeout || len(content) > 61 {
			t.Errorf("read %d bytes in %s, %v", len(content), time.Since(began), err)
		}
		<-over
	})
}

// The end of a body ends the supervision: an upload then waits for the answer of the storage, which
// may take longer.
func TestEndDoesNotStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBody(strings.NewReader("all"), 3, 1, func() { t.Error("given up after the end") })
		defer b.Stop()
		if content, err := io.ReadAll(b); string(content) != "all" || err != nil {
			t.Errorf("read %q, %v", content, err)
		}
		time.Sleep(2 * stallTimeout)
	})
}
