package staging_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The sources are tried in turn. One continues what another began, and a source with other
// bytes delays the rest by one attempt only.
func TestSourcesInTurn(t *testing.T) {
	t.Parallel()
	data := sample(t, version, 100_000)
	forged := slices.Clone(data)
	forged[len(forged)/2]++
	file := filepath.Join(t.TempDir(), "file.bundle")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = w.Write(data[:1000])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(broken.Close)
	good, bad := mirror(t, data), mirror(t, forged)
	for name, test := range map[string]struct {
		sources []string
		asked   []int64 // of the manager
	}{
		"file":                        {[]string{"file:" + file, "manager"}, nil},
		"file in URL form":            {[]string{"file://" + file, "manager"}, nil},
		"no such file":                {[]string{"file:/nothing", "manager"}, []int64{0}},
		"a folder":                    {[]string{"file:" + filepath.Dir(file), "manager"}, []int64{0}},
		"mirror":                      {[]string{good, "manager"}, nil},
		"mirror that hangs up":        {[]string{broken.URL, "manager"}, []int64{1000}},
		"mirror with other bytes":     {[]string{bad, "manager"}, []int64{0}},
		"mirrors that fool the next":  {[]string{broken.URL, bad, good}, nil},
		"mirror with another length":  {[]string{mirror(t, data[1:]), "manager"}, []int64{0}},
		"mirror without a host":       {[]string{"https://", "manager"}, []int64{0}},
		"what no agent knows as such": {[]string{"oci:registry/bundle", "manager"}, []int64{0}},
	} {
		r := newRig(t)
		r.manager = whole(data)
		_, _, err := r.start().Stage(t.Context(), pinned(data, version, test.sources...), quiet)
		if err != nil || !slices.Equal(r.asked, test.asked) {
			t.Errorf("%s: asked for %v, %v", name, r.asked, err)
		}
	}
}

// On a slow or unsteady link every request brings a part. The host goes on at once, until
// one brings too little.
func TestUnsteadyLink(t *testing.T) {
	t.Parallel()
	r, data := newRig(t), sample(t, version, 4<<20)
	parts := []int{3 << 19, 3 << 19, 1 << 10, len(data)}
	r.manager = func(offset int64) (io.Reader, error) {
		end := min(int(offset)+parts[0], len(data))
		parts = parts[1:]
		return bytes.NewReader(data[offset:end]), nil
	}
	s, want := r.start(), pinned(data, version, protocol.SourceManager)
	if _, _, err := s.Stage(t.Context(), want, quiet); err == nil || !slices.Equal(r.asked, []int64{0, 3 << 19, 3 << 20}) {
		t.Errorf("asked for %v, %v", r.asked, err)
	}
	if _, _, err := s.Stage(t.Context(), want, quiet); err != nil || r.asked[3] != 3<<20+1<<10 {
		t.Errorf("asked for %v, %v", r.asked, err)
	}
}

// A mirror that can only begin anew, and hangs up each time, does not keep the host busy.
func TestMirrorWithoutRanges(t *testing.T) {
	t.Parallel()
	r, data, asked := newRig(t), sample(t, version, 4<<20), 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = w.Write(data[:2<<20])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	if _, _, err := r.start().Stage(t.Context(), pinned(data, version, s.URL), quiet); err == nil || asked != 2 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// A bundle with another digest than the pinned one is refused, however right it looks, and
// nothing of it is unpacked.
func TestThreat63_ForgedBundle(t *testing.T) {
	t.Parallel()
	forged := sample(t, version, 100_000)
	file := filepath.Join(t.TempDir(), "file.bundle")
	if err := os.WriteFile(file, forged, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{protocol.SourceManager, mirror(t, forged), "file:" + file} {
		r := newRig(t)
		r.manager = whole(forged)
		want := pinned(forged, version, source)
		want.SHA256 = digest([]byte("another bundle"))
		if _, _, err := r.start().Stage(t.Context(), want, quiet); err == nil || !strings.Contains(err.Error(), "SHA-256 is not the pinned one") || len(r.names()) > 0 {
			t.Errorf("%s: %v, left %v", source, err, r.names())
		}
	}
}

// A source whose bytes are wrong is not asked again, so that it can't spoil what another
// one sent; unless there is no other.
func TestDistrustedSource(t *testing.T) {
	t.Parallel()
	r, data := newRig(t), sample(t, version, 100_000)
	forged := bytes.Repeat([]byte("x"), len(data))
	r.manager = func(offset int64) (io.Reader, error) {
		return bytes.NewReader(data[offset : offset+int64(len(data))/5]), nil // at most a fifth at a time
	}
	s, want := r.start(), pinned(data, version, mirror(t, forged), protocol.SourceManager)
	var err error
	for range 6 {
		if _, _, err = s.Stage(t.Context(), want, quiet); err == nil {
			break
		}
		r.manager = func(offset int64) (io.Reader, error) {
			return bytes.NewReader(data[offset:min(offset+int64(len(data))/5+1, int64(len(data)))]), nil
		}
	}
	if err != nil {
		t.Errorf("not staged in the end: %v", err)
	}
	// With no other source the host looks again after an hour.
	r = newRig(t)
	s, want = r.start(), pinned(data, version, mirror(t, forged))
	for range 3 {
		if _, _, err := s.Stage(t.Context(), want, quiet); err == nil || !strings.Contains(err.Error(), "SHA-256 is not the pinned one") {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]time.Duration{time.Hour, time.Hour}, r.waits); diff != "" || len(r.names()) > 0 {
		t.Errorf("waits -want +got:\n%s\nleft %v", diff, r.names())
	}
}
