package bundle_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	m, files := sample()
	data := write(t, m, files)
	if !bytes.Equal(data, write(t, m, files)) {
		t.Error("two bundles of the same files differ")
	}
	for name, r := range map[string]io.Reader{
		"whole":     bytes.NewReader(data),
		"bytewise":  iotest.OneByteReader(bytes.NewReader(data)),
		"end early": iotest.DataErrReader(bytes.NewReader(data)),
	} {
		got, err := readAll(t.Context(), r, bundle.DefaultLimits())
		if err != nil || !maps.Equal(got, files) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	// The archive is what the hostile ones are derived from.
	if got, err := readAll(t.Context(), bytes.NewReader(compress(t, archive(t, entries(t, m, files)))), bundle.DefaultLimits()); err != nil || !maps.Equal(got, files) {
		t.Errorf("got %v, %v", got, err)
	}
}

// A caller that reads only some of a file gets the next one all the same, verified.
func TestNextReadsTheRest(t *testing.T) {
	t.Parallel()
	m, files := sample()
	reader, err := bundle.NewReader(t.Context(), bytes.NewReader(write(t, m, files)), bundle.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var names []string
	for {
		f, _, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, f.Name)
	}
	if len(names) != len(m.Files) {
		t.Errorf("got %v", names)
	}
	if _, _, err := reader.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestErrorsRepeat(t *testing.T) {
	t.Parallel()
	m, files := sample()
	files["bin/kubectl"] = strings.ToUpper(files["bin/kubectl"])
	reader, err := bundle.NewReader(t.Context(), bytes.NewReader(compress(t, archive(t, entries(t, m, files)))), bundle.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var content io.Reader
	for range 2 {
		if _, content, err = reader.Next(); err != nil {
			t.Fatal(err)
		}
	}
	_, first := io.ReadAll(content)
	_, second := io.ReadAll(content)
	_, _, third := reader.Next()
	_, _, fourth := reader.Next()
	for _, err := range []error{first, second, third, fourth} {
		if err == nil || !strings.Contains(err.Error(), "SHA-256 of bin/kubectl") {
			t.Errorf("got %v", err)
		}
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	data := "bundle"
	limits := bundle.Limits{BundleBytes: int64(len(data))}
	if err := bundle.Verify(t.Context(), strings.NewReader(data), digest(data), limits); err != nil {
		t.Error(err)
	}
	if err := bundle.Verify(t.Context(), strings.NewReader(data), digest("other"), limits); !errors.Is(err, bundle.ErrWrongDigest) {
		t.Errorf("another digest: %v", err)
	}
	for name, pinned := range map[string]string{"none": "", "upper case": strings.ToUpper(digest(data)), "short": "ab"} {
		if err := bundle.Verify(t.Context(), strings.NewReader(data), pinned, limits); err == nil || !strings.Contains(err.Error(), "correct the pinned digest") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := bundle.Verify(t.Context(), strings.NewReader(data+"s"), digest(data+"s"), limits); err == nil || !strings.Contains(err.Error(), "more than 6 bytes") {
		t.Errorf("too large: %v", err)
	}
	broken := errors.New("broken disk")
	if err := bundle.Verify(t.Context(), iotest.ErrReader(broken), digest(data), limits); !errors.Is(err, broken) {
		t.Errorf("broken disk: %v", err)
	}
}

func TestReadingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	m, files := sample()
	data := write(t, m, files)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readAll(ctx, bytes.NewReader(data), bundle.DefaultLimits()); !errors.Is(err, context.Canceled) {
		t.Errorf("reading: %v", err)
	}
	if err := bundle.Verify(ctx, bytes.NewReader(data), digest(string(data)), bundle.DefaultLimits()); !errors.Is(err, context.Canceled) {
		t.Errorf("verifying: %v", err)
	}
	open := func(f bundle.File) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(files[f.Name])), nil }
	if err := bundle.Write(ctx, io.Discard, m, bundle.DefaultLimits(), open, func(bundle.File) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("writing: %v", err)
	}
}

// Write does not write what a Reader would refuse.
func TestWriteVerifies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*bundle.Manifest, map[string]string, *bundle.Limits)
		want   string
	}{
		"changed file": {func(_ *bundle.Manifest, files map[string]string, _ *bundle.Limits) {
			files["images/pause.tar"] = strings.Repeat("IMAGE", 1000)
		}, "SHA-256 of images/pause.tar"},
		"grown file":         {func(_ *bundle.Manifest, files map[string]string, _ *bundle.Limits) { files["images/pause.tar"] += "x" }, "more than 5000 bytes"},
		"shrunk file":        {func(_ *bundle.Manifest, files map[string]string, _ *bundle.Limits) { files["images/pause.tar"] = "x" }, "has 1 bytes"},
		"bad manifest":       {func(m *bundle.Manifest, _ map[string]string, _ *bundle.Limits) { m.Architecture = "s390x" }, "amd64, arm64"},
		"manifest too large": {func(_ *bundle.Manifest, _ map[string]string, l *bundle.Limits) { l.ManifestBytes = 10 }, "put fewer files"},
	} {
		m, files := sample()
		limits := bundle.DefaultLimits()
		test.change(&m, files, &limits)
		open := func(f bundle.File) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(files[f.Name])), nil }
		err := bundle.Write(t.Context(), io.Discard, m, limits, open, func(bundle.File) {})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	m, _ := sample()
	missing := errors.New("no such file")
	open := func(bundle.File) (io.ReadCloser, error) { return nil, missing }
	if err := bundle.Write(t.Context(), io.Discard, m, bundle.DefaultLimits(), open, func(bundle.File) {}); !errors.Is(err, missing) {
		t.Errorf("missing file: %v", err)
	}
}

func TestManifestAnswers(t *testing.T) {
	t.Parallel()
	m, files := sample()
	if err := m.CheckFor("v1.36.3", "amd64"); err != nil {
		t.Error(err)
	}
	if err := m.CheckFor("v1.36.2", "amd64"); err == nil || !strings.Contains(err.Error(), "v1.36.3, not v1.36.2") {
		t.Errorf("other version: %v", err)
	}
	if err := m.CheckFor("v1.36.3", "arm64"); err == nil || !strings.Contains(err.Error(), "the host is arm64") {
		t.Errorf("other architecture: %v", err)
	}
	if f, ok := m.Program("kubelet"); !ok || f.Name != "bin/kubelet" {
		t.Errorf("got %v, %v", f, ok)
	}
	if f, ok := m.Program("kubelet.service"); ok {
		t.Errorf("a unit is no program: %v", f)
	}
	var total int64
	for _, content := range files {
		total += int64(len(content))
	}
	if got := m.UnpackedBytes(); got != total {
		t.Errorf("got %d bytes, want %d", got, total)
	}
}
