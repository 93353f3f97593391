package erase

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// discarder is a device with another Discard.
type discarder struct {
	device
	discard func(offset, length int64) error
}

func (d *discarder) Discard(offset, length int64) error { return d.discard(offset, length) }

func TestZeroesIfDiscardDoesNotWork(t *testing.T) {
	for name, discard := range map[string]func(int64, int64) error{
		"without effect": func(int64, int64) error { return nil },
		"unsupported":    func(int64, int64) error { return errors.ErrUnsupported },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			data := l.loop("data")
			e := l.eraser()
			e.open = func(path string) (device, error) {
				opened, err := l.open(path)
				return &discarder{device: opened, discard: discard}, err
			}
			got := l.erase(e, protocol.EraseDiscard)[data]
			if got.Result != protocol.Erased || !strings.Contains(got.Message, "zeroed") || !l.isZero(data) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// badByte is a device on which one byte cannot be erased.
type badByte struct {
	device
	at int64
}

func (b *badByte) ReadAt(p []byte, offset int64) (int, error) {
	n, err := b.device.ReadAt(p, offset)
	if i := b.at - offset; i >= 0 && i < int64(n) {
		p[i] = 1
	}
	return n, err
}

func TestVerifyFindsRemainingData(t *testing.T) {
	for _, at := range []int64{0, edge - 1, diskBytes - edge, diskBytes - 1} {
		l := newLab(t)
		data := l.loop("data")
		e := l.eraser()
		e.open = func(path string) (device, error) {
			opened, err := l.open(path)
			return &badByte{device: opened, at: at}, err
		}
		got := l.erase(e, protocol.EraseZero)[data]
		if got.Result != protocol.ErasureFails || !strings.Contains(got.Message, fmt.Sprintf("byte %d", at)) {
			t.Errorf("at %d: %+v", at, got)
		}
	}
}

func TestZeroWithoutKernelSupport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	content := make([]byte, zeroChunk+12345)
	_, _ = rand.Read(content)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &blockDevice{file}
	defer func() { _ = d.Close() }()
	if err := d.Zero(7, int64(len(content))-14); err != nil {
		t.Fatal(err)
	}
	after, _ := os.ReadFile(path)
	if len(bytes.Trim(after[7:len(after)-7], "\x00")) != 0 || !bytes.Equal(after[:7], content[:7]) ||
		!bytes.Equal(after[len(after)-7:], content[len(content)-7:]) {
		t.Error("wrote outside of the range")
	}
	if err := d.Discard(0, 4096); !errors.Is(err, errors.ErrUnsupported) && err != nil {
		t.Errorf("discarding: %v", err)
	}
}
