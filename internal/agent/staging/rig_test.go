package staging_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staging"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// sample returns a bundle with an image of that size.
func sample(t *testing.T, version string, image int) []byte {
	t.Helper()
	pixels := make([]byte, image)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(pixels)
	contents := map[string][]byte{
		"bin/kubeadm": []byte("kubeadm " + version), "bin/kubectl": []byte("kubectl " + version), "bin/kubelet": []byte("kubelet " + version),
		"images/pause.tar": pixels,
	}
	m := bundle.Manifest{Format: bundle.Format, KubernetesVersion: version, Architecture: "amd64"}
	for _, name := range []string{"bin/kubeadm", "bin/kubectl", "bin/kubelet", "images/pause.tar"} {
		f := bundle.File{Name: name, Kind: bundle.KindImage, Mode: 0o644, Size: int64(len(contents[name])), SHA256: digest(contents[name])}
		if program, ok := strings.CutPrefix(name, "bin/"); ok {
			f.Kind, f.Path, f.Mode = bundle.KindProgram, "/usr/local/bin/"+program, 0o755
		}
		m.Files = append(m.Files, f)
	}
	var out bytes.Buffer
	open := func(f bundle.File) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(contents[f.Name])), nil
	}
	if err := bundle.Write(t.Context(), &out, m, bundle.DefaultLimits(), open, func(bundle.File) {}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// rig is a host that stages bundles.
type rig struct {
	t      *testing.T
	folder string
	disk   *disk
	// manager answers for the source "manager".
	manager func(offset int64) (io.Reader, error)
	// asked are the offsets that the manager was asked for.
	asked []int64
	now   time.Time
	// waits are the pauses between attempts.
	waits []time.Duration

	mu      sync.Mutex
	reports []protocol.BundleReport
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return &rig{t: t, folder: filepath.Join(t.TempDir(), "bundles"), disk: newDisk(), now: time.Unix(0, 0)}
}

// start returns the Stager of a new process.
func (r *rig) start() *staging.Stager {
	s := staging.New(staging.Options{
		Folder: r.folder, Manager: func() staging.Manager { return r }, Mirror: download.NewMirror(nil), Disk: r.disk,
		Architecture: "amd64", Clock: r, Rand: func() float64 { return 1 }, Log: slog.New(slog.DiscardHandler),
	})
	s.Watch(func(report protocol.BundleReport) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reports = append(r.reports, report)
	})
	return s
}

// Bundle implements staging.Manager.
func (r *rig) Bundle(_ context.Context, _ string, offset, _ int64, save func(from int64, body io.Reader) error) error {
	r.asked = append(r.asked, offset)
	body, err := r.manager(offset)
	if err != nil {
		return err
	}
	return save(offset, body)
}

func (r *rig) Now() time.Time { return r.now }

func (r *rig) Wait(ctx context.Context, d time.Duration) error {
	r.waits = append(r.waits, d)
	r.now = r.now.Add(d)
	return ctx.Err()
}

// last is the last report.
func (r *rig) last() protocol.BundleReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reports[len(r.reports)-1]
}

// names are the entries of the folder.
func (r *rig) names() []string {
	r.t.Helper()
	entries, err := os.ReadDir(r.folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatal(err)
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// pinned is the bundle with that content from sources.
func pinned(data []byte, version string, sources ...string) protocol.Bundle {
	return protocol.Bundle{Version: version, SHA256: digest(data), SizeBytes: int64(len(data)), Sources: sources}
}

func quiet(string) {}

// whole makes the manager send all that it is asked for.
func whole(data []byte) func(int64) (io.Reader, error) {
	return func(offset int64) (io.Reader, error) { return bytes.NewReader(data[offset:]), nil }
}

// refuses makes the manager refuse with a status.
func refuses(status int, after time.Duration) func(int64) (io.Reader, error) {
	return func(int64) (io.Reader, error) {
		return nil, &client.ProblemError{Server: "manager:9443", Problem: protocol.Problem{Status: status, Title: http.StatusText(status)}, RetryAfter: after}
	}
}

// mirror serves a file with ranges.
func mirror(t *testing.T, data []byte) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"`+digest(data)+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// disk is the disk of this machine with power cuts: one takes what was not synced with it.
type disk struct {
	download.System

	free int64
	// left is the number of operations until the power is lost; negative: never.
	left int
	// unsynced are the files with their durable size; -1 for a name that is not durable.
	unsynced map[string]int64
}

var errPower = errors.New("the power is off")

func newDisk() *disk { return &disk{free: 1 << 40, left: -1, unsynced: map[string]int64{}} }

// off reports whether the power is lost at this operation or was lost before.
func (d *disk) off() bool {
	if d.left > 0 {
		d.left--
	}
	return d.left == 0
}

func (d *disk) Free(string) (int64, error) { return d.free, nil }

func (d *disk) Create(path string, from int64) (download.File, error) {
	if d.off() {
		return nil, errPower
	}
	size := int64(-1)
	if _, err := os.Stat(path); err == nil {
		size = from
	}
	f, err := d.System.Create(path, from)
	d.unsynced[path] = size
	return &diskFile{f, d, path}, err
}

func (d *disk) Remove(path string) error {
	if d.off() {
		return errPower
	}
	return d.System.Remove(path)
}

func (d *disk) SyncDir(folder string) error {
	if d.off() {
		return errPower
	}
	for path, size := range d.unsynced {
		if filepath.Dir(path) == folder && size < 0 {
			d.unsynced[path] = 0
		}
	}
	return nil
}

// restore gives the power back, after it took what was not durable. Garbage may be what it
// left at the end of a file.
func (d *disk) restore(t *testing.T, garbage bool) {
	t.Helper()
	for path, size := range d.unsynced {
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case size < 0:
			err = os.Remove(path)
		default:
			if err = os.Truncate(path, size); err == nil && garbage {
				err = os.Truncate(path, info.Size())
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	d.left, d.unsynced = -1, map[string]int64{}
}

type diskFile struct {
	download.File

	disk *disk
	path string
}

func (f *diskFile) Write(data []byte) (int, error) {
	if f.disk.off() {
		return 0, errPower
	}
	return f.File.Write(data)
}

func (f *diskFile) Sync() error {
	if f.disk.off() {
		return errPower
	}
	if f.disk.unsynced[f.path] >= 0 {
		info, err := os.Stat(f.path)
		if err != nil {
			return err
		}
		f.disk.unsynced[f.path] = info.Size()
	}
	return nil
}
