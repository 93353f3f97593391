package client

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A slow download does not count as stalled.
func TestStalledDownload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		began, stalled := time.Now(), make(chan time.Duration, 1)
		b := newBody(r, 100, func() {
			stalled <- time.Since(began)
			_ = w.CloseWithError(errStalled)
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
