package bundle_test

import (
	"bytes"
	"cmp"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

// fuzzLimits keep each input fast.
func fuzzLimits() bundle.Limits {
	return bundle.Limits{BundleBytes: 1 << 20, ManifestBytes: 16 << 10, Files: 16, FileBytes: 64 << 10, UnpackedBytes: 128 << 10}
}

// A manifest that is accepted has one form, and leads nowhere else.
func FuzzManifest(f *testing.F) {
	m, _ := sample()
	data, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(bytes.Replace(data, []byte("/usr/local/bin/kubeadm"), []byte("/opt/../etc"), 1))
	f.Add(bytes.Replace(data, []byte(`"format"`), []byte(`"Format"`), 1))
	f.Add([]byte(`{"format": 2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := bundle.Decode(data, fuzzLimits())
		if err != nil {
			return
		}
		if again, err := m.Encode(); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%q was accepted, and is encoded as %q, %v", data, again, err)
		}
		for _, file := range m.Files {
			if !filepath.IsLocal(file.Name) || filepath.Clean(file.Name) != file.Name || filepath.Clean(file.Path) != cmp.Or(file.Path, ".") {
				t.Errorf("accepted %q at %q", file.Name, file.Path)
			}
		}
	})
}

// What is read of an archive is what its manifest lists.
func FuzzArchive(f *testing.F) {
	m, files := sample()
	list := entries(f, m, files)
	f.Add(archive(f, list))
	f.Add(archive(f, append(list, list[0])))
	f.Add(archive(f, append(list[:1:1], typed(list[1], '2'))))
	compressor, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkReading(t, compressor.EncodeAll(data, nil)) })
}

// FuzzBundle has other compressed data.
func FuzzBundle(f *testing.F) {
	m, files := sample()
	data := compress(f, archive(f, entries(f, m, files)))
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add(append(bytes.Clone(data), data...))
	f.Fuzz(checkReading)
}

func checkReading(t *testing.T, data []byte) {
	t.Helper()
	files, err := readAll(t.Context(), bytes.NewReader(data), fuzzLimits())
	if err != nil {
		return
	}
	reader, err := bundle.NewReader(t.Context(), bytes.NewReader(data), fuzzLimits())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	m := reader.Manifest()
	for _, file := range m.Files {
		if content, ok := files[file.Name]; !ok || digest(content) != file.SHA256 {
			t.Errorf("%s is missing or wrong", file.Name)
		}
	}
	if len(m.Files) != len(files) {
		t.Errorf("got %d files, and the manifest lists %d", len(files), len(m.Files))
	}
}
