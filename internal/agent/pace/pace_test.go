package pace_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/pace"
)

// part is how much is written or read between two pauses.
const part = 256 << 10

// slow takes a while for each part.
type slow struct {
	bytes.Buffer

	takes time.Duration
}

func (s *slow) Write(data []byte) (int, error) {
	time.Sleep(s.takes)
	return s.Buffer.Write(data)
}

// took returns how long do takes by the fake clock.
func took(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}

func write(t *testing.T, w io.Writer, data []byte) {
	t.Helper()
	if n, err := w.Write(data); n != len(data) || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
}

// Seven eighths of the time are pauses, up to a budget. All that is written arrives.
func TestWriter(t *testing.T) {
	for name, tc := range map[string]struct {
		parts       int
		takes, want time.Duration
	}{
		"a quick disk":     {parts: 4, takes: 10 * time.Millisecond, want: 320 * time.Millisecond},
		"a slow disk":      {parts: 4, takes: 2 * time.Second, want: 12 * time.Second},
		"a very slow disk": {parts: 400, takes: time.Second, want: 400*time.Second + 5*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := &slow{takes: tc.takes}
				w := pace.NewWriter(t.Context(), to)
				if got := took(func() {
					for range tc.parts {
						write(t, w, make([]byte, part))
					}
				}); got != tc.want {
					t.Errorf("it took %s, not %s", got, tc.want)
				}
				if to.Len() != tc.parts*part {
					t.Errorf("%d bytes have arrived", to.Len())
				}
			})
		})
	}
}

// broken is a file whose disk fails.
type broken struct{ io.Writer }

func (broken) Fd() uintptr { return math.MaxUint32 }

// An error of the disk ends the writing: nothing else may tell it.
func TestDiskFails(t *testing.T) {
	w := pace.NewWriter(t.Context(), broken{io.Discard})
	if _, err := w.Write(make([]byte, part)); !errors.Is(err, unix.EBADF) {
		t.Errorf("got %v", err)
	}
}

// A small file is not delayed.
func TestSmallFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &slow{takes: time.Millisecond}
		w := pace.NewWriter(t.Context(), to)
		if got := took(func() { write(t, w, make([]byte, part-1)) }); got != time.Millisecond {
			t.Errorf("it took %s", got)
		}
	})
}

// A pause ends with its context.
func TestEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		to := &slow{takes: 300 * time.Millisecond}
		time.AfterFunc(500*time.Millisecond, func() { cancel(stopped) })
		if got := took(func() {
			if _, err := pace.NewWriter(ctx, to).Write(make([]byte, part)); !errors.Is(err, stopped) {
				t.Errorf("got %v", err)
			}
		}); got != 500*time.Millisecond {
			t.Errorf("it took %s", got)
		}
		if _, err := pace.NewReader(ctx, bytes.NewReader(make([]byte, part))).Read(make([]byte, part)); !errors.Is(err, stopped) {
			t.Errorf("got %v", err)
		}
	})
}

// A quick receiver gets 64 MiB a second, and a slow one is not delayed.
func TestReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct{ takes, want time.Duration }{
			{0, 2 * time.Second}, {time.Second, 513 * time.Second},
		} {
			r := pace.NewReader(t.Context(), bytes.NewReader(make([]byte, 512*part)))
			buffer := make([]byte, part)
			if got := took(func() {
				for {
					if _, err := io.ReadFull(r, buffer); errors.Is(err, io.EOF) {
						return
					} else if err != nil {
						t.Fatal(err)
					}
					time.Sleep(tc.takes)
				}
			}); got > tc.want || got < tc.want-time.Second {
				t.Errorf("it took %s, not %s", got, tc.want)
			}
		}
	})
}

// A file is small in the end.
func TestShrink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	const step = 16 << 20
	for _, size := range []int64{0, 7, step, step + 1, 3*step + 5} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if err := pace.Shrink(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > step || size <= step && info.Size() != size {
			t.Errorf("a file of %d bytes has %d", size, info.Size())
		}
	}
	if err := os.Truncate(path, 2*step); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	if err := pace.Shrink(t.Context(), path); err == nil {
		t.Error("a file that is open was shrunk")
	}
	if info, err := reader.Stat(); err != nil || info.Size() != 2*step {
		t.Errorf("got %v, %v", info, err)
	}
	if err := pace.Shrink(t.Context(), path+"-missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
