package bundle_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

// zeros are as many zero bytes as anybody reads.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A host needs the same memory for a large bundle as for a small one. The test is not
// parallel, so that nothing else allocates meanwhile.
func TestConstantMemory(t *testing.T) {
	const size, allowed = 40 << 20, 5 << 20
	m, files := sample()
	image := &m.Files[5]
	sum := sha256.New()
	if _, err := io.CopyN(sum, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	image.Size, image.SHA256 = size, hex.EncodeToString(sum.Sum(nil))
	var data bytes.Buffer
	open := func(f bundle.File) (io.ReadCloser, error) {
		if f.Name == image.Name {
			return io.NopCloser(io.LimitReader(zeros{}, size)), nil
		}
		return io.NopCloser(strings.NewReader(files[f.Name])), nil
	}
	if err := bundle.Write(t.Context(), &data, m, bundle.DefaultLimits(), open, func(bundle.File) {}); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	reader, err := bundle.NewReader(t.Context(), bytes.NewReader(data.Bytes()), bundle.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for err == nil {
		_, _, err = reader.Next()
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, io.EOF) || allocated > allowed {
		t.Errorf("allocated %d bytes to read %d, %v", allocated, size, err)
	} else {
		t.Logf("allocated %d bytes to read %d", allocated, size)
	}
}
