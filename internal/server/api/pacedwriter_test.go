package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// slowCaller is the connection of a caller that takes each chunk after a delay.
type slowCaller struct {
	http.ResponseWriter
	delay    time.Duration
	deadline time.Time
}

func (c *slowCaller) SetWriteDeadline(deadline time.Time) error {
	c.deadline = deadline
	return nil
}

func (c *slowCaller) Write(content []byte) (int, error) {
	time.Sleep(min(c.delay, time.Until(c.deadline)))
	if !time.Now().Before(c.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	return len(content), nil
}

// A download goes on for as long as the caller reads, however long it takes in all. It ends
// when the caller stops reading, or reads a little now and then.
func TestThreat14_PaceOfReaders(t *testing.T) {
	const stall = 10 * time.Second
	for name, test := range map[string]struct {
		delay time.Duration
		want  error
	}{
		"slow, but faster than the minimum": {delay: time.Second},
		"slower than the minimum":           {delay: stall - time.Second, want: errTooSlow},
		"stalled":                           {delay: time.Hour, want: os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 100 * chunkBytes
				began := time.Now()
				w := newPacedWriter(&slowCaller{ResponseWriter: httptest.NewRecorder(), delay: test.delay}, stall, size)
				written, err := w.Write(make([]byte, size))
				took := time.Since(began)
				if !errors.Is(err, test.want) || (err == nil) != (written == size) {
					t.Errorf("%d bytes were written in %s: %v", written, took, err)
				}
				if limit := downloadSlack + size/minRate*time.Second + stall; took > limit {
					t.Errorf("the download took %s, more than %s", took, limit)
				}
				if test.want == nil && took <= stall {
					t.Errorf("the download took %s, which proves nothing", took)
				}
			})
		})
	}
}

// However large a file is, a slow reader has to leave its place to others after an hour.
func TestThreat14_LargeFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := newPacedWriter(&slowCaller{ResponseWriter: httptest.NewRecorder(), delay: time.Second}, 10*time.Second, 4<<30)
		var err error
		for chunk := make([]byte, chunkBytes); err == nil; {
			_, err = w.Write(chunk)
		}
		if took := time.Since(began); !errors.Is(err, errTooSlow) || took < maxDownload || took > maxDownload+time.Minute {
			t.Errorf("the download ended after %s: %v", took, err)
		}
	})
}
