package bundle_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

// contents are the files of the sample, by name.
func contents() map[string]string {
	return map[string]string{
		"bin/kubeadm":                        "#!/bin/sh\necho v1.36.3\n",
		"bin/kubectl":                        "#!/bin/sh\necho Client Version: v1.36.3\n",
		"bin/kubelet":                        "#!/bin/sh\necho Kubernetes v1.36.3\n",
		"files/etc/containerd/config.toml":   "version = 3\n",
		"files/etc/sysctl.d/kubernetes.conf": "",
		"images/pause.tar":                   strings.Repeat("image", 1000),
		"units/kubelet.service":              "[Service]\nExecStart=/usr/local/bin/kubelet\n",
	}
}

func digest(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

// sample returns a manifest and the files that it lists.
func sample() (bundle.Manifest, map[string]string) {
	m := bundle.Manifest{Format: bundle.Format, KubernetesVersion: "v1.36.3", Architecture: "amd64"}
	for name, content := range contents() {
		f := bundle.File{Name: name, Mode: 0o644, Size: int64(len(content)), SHA256: digest(content)}
		folder, rest, _ := strings.Cut(name, "/")
		switch folder {
		case "bin":
			f.Kind, f.Path, f.Mode = bundle.KindProgram, "/usr/local/bin/"+rest, 0o755
		case "units":
			f.Kind, f.Path = bundle.KindUnit, "/etc/systemd/system/"+rest
		case "images":
			f.Kind = bundle.KindImage
		default:
			f.Kind, f.Path = bundle.KindFile, "/"+rest
		}
		m.Files = append(m.Files, f)
	}
	slices.SortFunc(m.Files, func(a, b bundle.File) int { return cmp.Compare(a.Name, b.Name) })
	return m, contents()
}

func write(t *testing.T, m bundle.Manifest, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	open := func(f bundle.File) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(files[f.Name])), nil }
	if err := bundle.Write(t.Context(), &out, m, bundle.DefaultLimits(), open, func(bundle.File) {}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// entry is an entry of a tar archive.
type entry struct {
	tar.Header
	content string
}

func regular(name string, mode int64, content string) entry {
	return entry{content: content, Header: tar.Header{
		Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0),
	}}
}

// entries are those of the sample's bundle.
func entries(tb testing.TB, m bundle.Manifest, files map[string]string) []entry {
	tb.Helper()
	data, err := m.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	out := []entry{regular(bundle.ManifestName, 0o644, string(data))}
	for _, f := range m.Files {
		out = append(out, regular(f.Name, int64(f.Mode), files[f.Name]))
	}
	return out
}

// archive writes a tar archive with its end.
func archive(tb testing.TB, list []entry) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range list {
		if err := w.WriteHeader(&e.Header); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func compress(tb testing.TB, data []byte, options ...zstd.EOption) []byte {
	tb.Helper()
	w, err := zstd.NewWriter(nil, append([]zstd.EOption{zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1 << 20)}, options...)...)
	if err != nil {
		tb.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

// readAll reads a bundle as a host does, and returns the files.
func readAll(ctx context.Context, r io.Reader, l bundle.Limits) (map[string]string, error) {
	reader, err := bundle.NewReader(ctx, r, l)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	files := map[string]string{}
	for {
		f, content, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(content)
		if err != nil {
			return nil, err
		}
		files[f.Name] = string(data)
	}
}
