package stage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// image is the size of the sample's image: more than one chunk.
const image = chunk + chunk/2

// contents are the files of the sample, in order.
func contents(image int) (names []string, files map[string]string) {
	return []string{"bin/kubeadm", "bin/kubectl", "bin/kubelet", "files/etc/containerd/config.toml", "images/pause.tar"}, map[string]string{
		"bin/kubeadm": "kubeadm", "bin/kubectl": "kubectl", "bin/kubelet": "kubelet",
		"files/etc/containerd/config.toml": "", "images/pause.tar": strings.Repeat("p", image),
	}
}

// sample returns a bundle, its manifest, and the options with which it is unpacked.
func sample(t *testing.T, version string, image int) ([]byte, bundle.Manifest, Options) {
	t.Helper()
	m := bundle.Manifest{Format: bundle.Format, KubernetesVersion: version, Architecture: "amd64"}
	names, files := contents(image)
	for _, name := range names {
		f := bundle.File{Name: name, Kind: bundle.KindImage, Mode: 0o644, Size: int64(len(files[name])), SHA256: digest([]byte(files[name]))}
		if program, ok := strings.CutPrefix(name, "bin/"); ok {
			f.Kind, f.Path, f.Mode = bundle.KindProgram, "/usr/local/bin/"+program, 0o755
		}
		if path, ok := strings.CutPrefix(name, "files"); ok {
			f.Kind, f.Path, f.Mode = bundle.KindFile, path, 0o600
		}
		m.Files = append(m.Files, f)
	}
	var out bytes.Buffer
	open := func(f bundle.File) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(files[f.Name])), nil }
	if err := bundle.Write(t.Context(), &out, m, bundle.DefaultLimits(), open, func(bundle.File) {}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), m, Options{
		SHA256: digest(out.Bytes()), Version: version, Architecture: "amd64", Limits: bundle.DefaultLimits(),
		Accept: func(bundle.Manifest) error { return nil }, Progress: func(Progress) {},
	}
}

// checkStage compares the folder with the sample.
func checkStage(t *testing.T, folder string, image int) {
	t.Helper()
	_, files := contents(image)
	found := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil || name == bundle.ManifestName {
			return err
		}
		found++
		data, err := os.ReadFile(path)
		if want, ok := files[name]; !ok || want != string(data) {
			t.Errorf("%s has %d bytes, want %d", name, len(data), len(want))
		}
		return err
	})
	if err != nil || found != len(files) {
		t.Errorf("found %d files, %v", found, err)
	}
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	data, want, o := sample(t, "v1.36.3", image)
	folder := filepath.Join(t.TempDir(), "stage")
	var reports []Progress
	o.Progress = func(p Progress) { reports = append(reports, p) }
	file := bytes.NewReader(data)
	if _, err := file.Seek(10, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	got, err := Unpack(t.Context(), file, folder, o)
	if err != nil {
		t.Fatal(err)
	}
	checkStage(t, folder, image)
	if len(got.Files) != len(want.Files) {
		t.Errorf("got %v", got)
	}
	if last := reports[len(reports)-1]; last.Done != want.UnpackedBytes() || last.Total != want.UnpackedBytes() || last.Name != "images/pause.tar" {
		t.Errorf("the last progress is %v", last)
	}
	for i, r := range reports[1:] {
		if r.Done < reports[i].Done || r.Done > r.Total {
			t.Errorf("progress %v after %v", r, reports[i])
		}
	}
	for name, want := range map[string]fs.FileMode{
		"": fs.ModeDir | 0o700, "files/etc": fs.ModeDir | 0o700, "bin/kubelet": 0o755, "images/pause.tar": 0o644,
		"files/etc/containerd/config.toml": 0o600, bundle.ManifestName: 0o600,
	} {
		if got := mode(t, filepath.Join(folder, name)); got != want {
			t.Errorf("%q has mode %v, want %v", name, got, want)
		}
	}
	if _, err := Load(t.Context(), folder, o.Limits); err != nil {
		t.Errorf("loading: %v", err)
	}
}

// A complete folder is recognized, and not written again.
func TestUnpackAgain(t *testing.T) {
	t.Parallel()
	data, _, o := sample(t, "v1.36.3", image)
	folder := filepath.Join(t.TempDir(), "stage")
	if _, err := Unpack(t.Context(), bytes.NewReader(data), folder, o); err != nil {
		t.Fatal(err)
	}
	o.Accept = func(bundle.Manifest) error { return errors.New("nothing has to be accepted") }
	o.Progress = func(p Progress) { t.Errorf("unpacks again: %v", p) }
	if m, err := Unpack(t.Context(), bytes.NewReader(data), folder, o); err != nil || m.KubernetesVersion != "v1.36.3" {
		t.Errorf("got %v, %v", m, err)
	}
	// An interrupted verification removes nothing.
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := unpack(ctx, openHook{before: cancel}, bytes.NewReader(data), folder, o); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	checkStage(t, folder, image)
}

// openHook is a disk that calls a function before a file is opened.
type openHook struct {
	system
	before func()
}

func (h openHook) Open(path string) (fs.File, error) {
	h.before()
	return h.system.Open(path)
}

// Whatever is wrong with a folder is found, and the bundle unpacked anew.
func TestDamagedStage(t *testing.T) {
	t.Parallel()
	data, _, o := sample(t, "v1.36.3", image)
	older, _, olderOptions := sample(t, "v1.35.4", image)
	dir := t.TempDir()
	folder := filepath.Join(dir, "stage")
	kubelet := filepath.Join(folder, "bin/kubelet")
	for name, damage := range map[string]func() error{
		"file missing":   func() error { return os.Remove(kubelet) },
		"file truncated": func() error { return os.Truncate(kubelet, 3) },
		"file changed":   func() error { return os.WriteFile(kubelet, []byte("KUBELET"), 0o600) },
		"mode changed":   func() error { return os.Chmod(kubelet, 0o600) },
		"link": func() error {
			return errors.Join(os.Rename(kubelet, filepath.Join(dir, "kubelet")), os.Symlink(filepath.Join(dir, "kubelet"), kubelet))
		},
		"folder for a file":  func() error { return errors.Join(os.Remove(kubelet), os.Mkdir(kubelet, 0o700)) },
		"manifest missing":   func() error { return os.Remove(filepath.Join(folder, bundle.ManifestName)) },
		"manifest truncated": func() error { return os.Truncate(filepath.Join(folder, bundle.ManifestName), 20) },
		"everything missing": func() error { return os.RemoveAll(folder) },
		"file in its place":  func() error { return errors.Join(os.RemoveAll(folder), os.WriteFile(folder, nil, 0o600)) },
	} {
		if _, err := Unpack(t.Context(), bytes.NewReader(data), folder, o); err != nil {
			t.Fatal(err)
		}
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(t.Context(), folder, o.Limits); err == nil {
			t.Errorf("%s: the folder was loaded", name)
		}
		if _, err := Unpack(t.Context(), bytes.NewReader(data), folder, o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkStage(t, folder, image)
	}
	// Another bundle's folder is replaced.
	if m, err := Unpack(t.Context(), bytes.NewReader(older), folder, olderOptions); err != nil || m.KubernetesVersion != "v1.35.4" {
		t.Errorf("got %v, %v", m, err)
	}
	if m, err := Load(t.Context(), folder, o.Limits); err != nil || m.KubernetesVersion != "v1.35.4" {
		t.Errorf("got %v, %v", m, err)
	}
}

// What is refused changes nothing on the host.
func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	data, _, o := sample(t, "v1.36.3", image)
	full := errors.New("the disk has no space")
	changed := bytes.Clone(data)
	changed[len(changed)/2] ^= 1
	for name, test := range map[string]struct {
		data   []byte
		change func(*Options)
		want   string
	}{
		"another digest":        {data, func(o *Options) { o.SHA256 = digest(nil) }, "not the pinned one"},
		"no digest":             {data, func(o *Options) { o.SHA256 = "" }, "correct the pinned digest"},
		"changed bundle":        {changed, func(*Options) {}, "not the pinned one"},
		"truncated":             {data[:100], func(*Options) {}, "not the pinned one"},
		"pinned, but no bundle": {[]byte("x"), func(o *Options) { o.SHA256 = digest([]byte("x")) }, "reading the bundle"},
		"another version":       {data, func(o *Options) { o.Version = "v1.36.4" }, "not v1.36.4"},
		"another architecture":  {data, func(o *Options) { o.Architecture = "arm64" }, "the host is arm64"},
		"over the limits":       {data, func(o *Options) { o.Limits.UnpackedBytes = 100 }, "more than 100 bytes"},
		"not accepted":          {data, func(o *Options) { o.Accept = func(bundle.Manifest) error { return full } }, full.Error()},
	} {
		folder := filepath.Join(t.TempDir(), "stage")
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		options := o
		test.change(&options)
		if _, err := Unpack(t.Context(), bytes.NewReader(test.data), folder, options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
		if _, err := os.Stat(folder); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Unpack(t.Context(), bytes.NewReader(data), filepath.Join(t.TempDir(), "none", "stage"), o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a parent: %v", err)
	}
}

// swapped is a file whose content changes when it is read again.
type swapped struct {
	*bytes.Reader
	next []byte
}

func (s *swapped) Seek(offset int64, whence int) (int64, error) {
	if s.Len() == 0 {
		s.Reader = bytes.NewReader(s.next)
	}
	return s.Reader.Seek(offset, whence)
}

// A file that is replaced between the two readings leaves nothing.
func TestBundleChanges(t *testing.T) {
	t.Parallel()
	data, m, o := sample(t, "v1.36.3", image)
	_, files := contents(image)
	files["bin/kubelet"] = "KUBELET"
	for i, f := range m.Files {
		m.Files[i].SHA256 = digest([]byte(files[f.Name]))
	}
	var other bytes.Buffer
	open := func(f bundle.File) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(files[f.Name])), nil }
	if err := bundle.Write(t.Context(), &other, m, o.Limits, open, func(bundle.File) {}); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "stage")
	_, err := Unpack(t.Context(), &swapped{bytes.NewReader(data), other.Bytes()}, folder, o)
	if !errors.Is(err, bundle.ErrWrongDigest) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder remains: %v", err)
	}
}
