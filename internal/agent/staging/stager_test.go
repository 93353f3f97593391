package staging_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const version = "v1.36.3"

func TestStagesFromTheManager(t *testing.T) {
	t.Parallel()
	r, data := newRig(t), sample(t, version, 100_000)
	r.manager = whole(data)
	want := pinned(data, version, protocol.SourceManager)
	s := r.start()
	var messages []string
	folder, m, err := s.Stage(t.Context(), want, func(message string) { messages = append(messages, message) })
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := os.ReadFile(filepath.Join(folder, "bin/kubelet"))
	if err != nil || string(kubelet) != "kubelet "+version || m.KubernetesVersion != version {
		t.Errorf("got %q, %+v, %v", kubelet, m, err)
	}
	if got := r.names(); !slices.Equal(got, []string{want.SHA256}) {
		t.Errorf("the folder has %v", got)
	}
	if messages[0] != "fetched 0 % of 0 MiB" || !slices.Contains(messages, "unpacked 100 % of 0 MiB") {
		t.Errorf("progress: %q", messages)
	}
	if got := r.last(); got != (protocol.BundleReport{SHA256: want.SHA256, Version: version, State: protocol.BundleStaged}) {
		t.Errorf("reported %+v", got)
	}
	// Neither this process nor the next one fetches it again, or says anything else of it.
	r.reports = nil
	for range 2 {
		if _, _, err := s.Stage(t.Context(), want, quiet); err != nil || len(r.asked) != 1 {
			t.Errorf("asked for %v, %v", r.asked, err)
		}
		s = r.start()
	}
	if len(r.reports) != 1 || r.last().State != protocol.BundleStaged {
		t.Errorf("reported %+v", r.reports)
	}
	// A file that somebody has damaged is fetched again by the next process.
	if err := os.WriteFile(filepath.Join(folder, "bin/kubelet"), []byte("other"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.start().Stage(t.Context(), want, quiet); err != nil || len(r.asked) != 2 {
		t.Errorf("asked for %v, %v", r.asked, err)
	}
}

// A download that ends anywhere is continued there, by the same process and by the next.
func TestContinuesAfterACut(t *testing.T) {
	t.Parallel()
	data := sample(t, version, 200_000)
	want := pinned(data, version, protocol.SourceManager)
	for _, cut := range []int{0, 1, 511, 512, len(data) / 2, len(data) - 1} {
		for _, restart := range []bool{false, true} {
			r := newRig(t)
			r.manager = func(offset int64) (io.Reader, error) {
				end := len(data)
				if len(r.asked) == 1 {
					end = cut
				}
				return bytes.NewReader(data[offset:end]), nil
			}
			s := r.start()
			if _, _, err := s.Stage(t.Context(), want, quiet); err == nil || r.last().State != protocol.BundleFailed {
				t.Errorf("cut at %d: %v, reported %+v", cut, err, r.last())
			}
			if restart {
				s = r.start()
			}
			if _, _, err := s.Stage(t.Context(), want, quiet); err != nil || !slices.Equal(r.asked, []int64{0, int64(cut)}) {
				t.Errorf("cut at %d, restart %t: asked for %v, %v", cut, restart, r.asked, err)
			}
		}
	}
}

func TestRetriesSlowDown(t *testing.T) {
	t.Parallel()
	r, data := newRig(t), sample(t, version, 100)
	r.manager = refuses(http.StatusBadGateway, 0)
	s, want := r.start(), pinned(data, version, protocol.SourceManager)
	for range 9 {
		if _, _, err := s.Stage(t.Context(), want, quiet); err == nil {
			t.Error("staged what is not there")
		}
	}
	var seconds []float64
	for _, wait := range r.waits {
		seconds = append(seconds, wait.Seconds())
	}
	if diff := cmp.Diff([]float64{5, 10, 20, 40, 80, 160, 300, 300}, seconds); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// Another pin is tried at once.
	other := sample(t, "v1.36.4", 100)
	r.manager = whole(other)
	if _, _, err := s.Stage(t.Context(), pinned(other, "v1.36.4", protocol.SourceManager), quiet); err != nil || len(r.waits) != 8 {
		t.Errorf("waited %v, %v", r.waits, err)
	}
}

// A manager that does not have the bundle yet is waited for, as long as it says, and so is one that
// is being restarted.
func TestWaitsForTheManager(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		manager func(int64) (io.Reader, error)
		wait    time.Duration
	}{
		"not there yet": {refuses(http.StatusNotFound, time.Minute), 65 * time.Second},
		"busy":          {refuses(http.StatusServiceUnavailable, time.Minute), 65 * time.Second},
		"restarted": {func(int64) (io.Reader, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}, 5 * time.Second},
	} {
		r, data := newRig(t), sample(t, version, 100)
		r.manager = test.manager
		s, want := r.start(), pinned(data, version, protocol.SourceManager)
		if _, _, err := s.Stage(t.Context(), want, quiet); !errors.Is(err, bundle.ErrNotServed) {
			t.Errorf("%s: %v", name, err)
		}
		if got := r.last(); got.State != protocol.BundleStaging || !strings.HasPrefix(got.Message, "waiting for the manager") {
			t.Errorf("%s: reported %+v", name, got)
		}
		r.manager = whole(data)
		if _, _, err := s.Stage(t.Context(), want, quiet); err != nil || !slices.Equal(r.waits, []time.Duration{test.wait}) {
			t.Errorf("%s: waited %v, %v", name, r.waits, err)
		}
	}
}

// A file with other bytes is read again after an hour. Whoever asks before that has it read at once.
func TestRetry(t *testing.T) {
	t.Parallel()
	r, data := newRig(t), sample(t, version, 100)
	path := filepath.Join(t.TempDir(), "corrected")
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, want := r.start(), pinned(data, version, "file:"+path)
	write(strings.Repeat("x", len(data)))
	var messages []string
	for range 2 {
		if _, _, err := s.Stage(t.Context(), want, func(m string) { messages = append(messages, m) }); !errors.Is(err, bundle.ErrWrongDigest) {
			t.Fatal(err)
		}
	}
	if !slices.Equal(r.waits, []time.Duration{time.Hour}) || !slices.ContainsFunc(messages, func(m string) bool { return strings.HasPrefix(m, "next attempt in 1h0m0s: file:"+path) }) {
		t.Errorf("waited %v, and told %q", r.waits, messages)
	}
	write(string(data))
	if err := s.Retry(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Stage(t.Context(), want, quiet); err != nil || len(r.waits) != 1 {
		t.Errorf("waited %v, %v", r.waits, err)
	}
}

func TestDiskWithoutSpace(t *testing.T) {
	t.Parallel()
	r, data := newRig(t), sample(t, version, 100_000)
	r.manager, r.disk.free = whole(data), 256<<20
	s, want := r.start(), pinned(data, version, protocol.SourceManager, "file:/other")
	if _, _, err := s.Stage(t.Context(), want, quiet); err == nil || !strings.Contains(err.Error(), "has 256 MiB free, and the bundle needs 256 MiB: make room") {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(r.folder, want.SHA256+".part")); err == nil && info.Size() > 0 {
		t.Errorf("wrote %d bytes to a full disk", info.Size())
	}
	r.disk.free = 1 << 30
	if _, _, err := s.Stage(t.Context(), want, quiet); err != nil {
		t.Error(err)
	}
}

// At most one bundle is on the disk, besides what is fetched of it.
func TestRemovesTheFormerBundle(t *testing.T) {
	t.Parallel()
	r, former, next := newRig(t), sample(t, "v1.35.4", 100), sample(t, version, 100)
	r.manager = whole(former)
	s := r.start()
	if _, _, err := s.Stage(t.Context(), pinned(former, "v1.35.4", protocol.SourceManager), quiet); err != nil {
		t.Fatal(err)
	}
	r.manager = func(int64) (io.Reader, error) { return bytes.NewReader(next[:10]), nil }
	if _, _, err := s.Stage(t.Context(), pinned(next, version, protocol.SourceManager), quiet); err == nil {
		t.Error("staged a part")
	}
	if got := r.names(); !slices.Equal(got, []string{digest(next) + ".part"}) {
		t.Errorf("the folder has %v", got)
	}
	if err := s.Clear(t.Context()); err != nil || len(r.names()) > 0 || r.last() != (protocol.BundleReport{}) {
		t.Errorf("left %v, reported %+v, %v", r.names(), r.last(), err)
	}
}

// What was fetched of a bundle never has more bytes than the bundle.
func TestTooLongPart(t *testing.T) {
	t.Parallel()
	r, data := newRig(t), sample(t, version, 100)
	want := pinned(data, version, protocol.SourceManager)
	if err := os.MkdirAll(r.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.folder, want.SHA256+".part"), make([]byte, len(data)+1), 0o600); err != nil {
		t.Fatal(err)
	}
	r.manager = whole(data)
	if _, _, err := r.start().Stage(t.Context(), want, quiet); err != nil || !slices.Equal(r.asked, []int64{0}) {
		t.Errorf("asked for %v, %v", r.asked, err)
	}
}

// The bundle of another version or architecture is refused, and not fetched again for that.
func TestOtherBundleThanItSays(t *testing.T) {
	t.Parallel()
	r, data := newRig(t), sample(t, "v1.35.4", 100)
	r.manager = whole(data)
	s, want := r.start(), pinned(data, version, protocol.SourceManager)
	for range 3 {
		if _, _, err := s.Stage(t.Context(), want, quiet); err == nil || !strings.Contains(err.Error(), "holds Kubernetes v1.35.4, not v1.36.3") {
			t.Error(err)
		}
	}
	if len(r.asked) != 1 || r.last().State != protocol.BundleFailed {
		t.Errorf("asked for %v, reported %+v", r.asked, r.last())
	}
}

func TestRefusesWhatIsNoPin(t *testing.T) {
	t.Parallel()
	data := sample(t, version, 100)
	for name, change := range map[string]func(*protocol.Bundle){
		"a path as the digest": func(b *protocol.Bundle) { b.SHA256 = "../../" + b.SHA256[6:] },
		"no size":              func(b *protocol.Bundle) { b.SizeBytes = 0 },
		"too big":              func(b *protocol.Bundle) { b.SizeBytes = protocol.MaxBundleBytes + 1 },
		"no source":            func(b *protocol.Bundle) { b.Sources = nil },
		"too many sources":     func(b *protocol.Bundle) { b.Sources = slices.Repeat([]string{"manager"}, 9) },
	} {
		r := newRig(t)
		r.manager = whole(data)
		want := pinned(data, version, protocol.SourceManager)
		change(&want)
		s := r.start()
		for range 2 {
			if _, _, err := s.Stage(t.Context(), want, quiet); err == nil || len(r.asked) > 0 {
				t.Errorf("%s: asked for %v, %v", name, r.asked, err)
			}
		}
		if len(r.waits) != 1 {
			t.Errorf("%s: waited %v", name, r.waits)
		}
	}
}

// The one who waits for another's attempt gives up with its context, and a stopped attempt
// is no failure.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	r, data := newRig(t), sample(t, version, 100)
	ctx, cancel := context.WithCancelCause(t.Context())
	begun, errStop := make(chan struct{}), errors.New("stop")
	r.manager = func(int64) (io.Reader, error) {
		close(begun)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	s, want := r.start(), pinned(data, version, protocol.SourceManager)
	first := make(chan error)
	go func() {
		_, _, err := s.Stage(ctx, want, quiet)
		first <- err
	}()
	<-begun
	stopped, stop := context.WithCancelCause(t.Context())
	stop(errStop)
	if _, _, err := s.Stage(stopped, want, quiet); !errors.Is(err, errStop) {
		t.Error(err)
	}
	cancel(errStop)
	if err := <-first; !errors.Is(err, errStop) || r.last().State != protocol.BundleStaging {
		t.Errorf("%v, reported %+v", err, r.last())
	}
}
