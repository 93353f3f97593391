package download_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const content = "0123456789abcdefghijklmnopqrstuvwxyz"

// got is what a mirror sent.
type got struct {
	from int64
	etag string
	data string
}

func get(t *testing.T, want download.Wanted) (got, error) {
	t.Helper()
	var answer got
	err := download.NewMirror(nil).Get(t.Context(), want, func(from int64, etag string, body io.Reader) error {
		data, err := io.ReadAll(body)
		answer = got{from, etag, string(data)}
		return err
	})
	return answer, err
}

func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

func TestMirrorContinues(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		etag   string // of the file that the mirror has
		offset int64
		known  string
		want   got
		fails  error
	}{
		"from the beginning":      {`"one"`, 0, "", got{0, `"one"`, content}, nil},
		"from an offset":          {`"one"`, 10, `"one"`, got{10, `"one"`, content[10:]}, nil},
		"without an entity tag":   {"", 10, "", got{10, "", content[10:]}, nil},
		"only the last byte":      {`"one"`, 35, `"one"`, got{35, `"one"`, "z"}, nil},
		"the file was replaced":   {`"two"`, 10, `"one"`, got{0, `"two"`, content}, nil},
		"a weak tag is of no use": {`W/"one"`, 10, "", got{10, "", content[10:]}, nil},
		"nothing is left":         {`"one"`, 36, `"one"`, got{}, download.ErrNoSuchPart},
	} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if test.etag != "" {
				w.Header().Set("ETag", test.etag)
			}
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
		})
		answer, err := get(t, download.Wanted{URL: s.URL, Size: 36, Offset: test.offset, ETag: test.known})
		if !errors.Is(err, test.fails) || answer != test.want {
			t.Errorf("%s: got %+v, %v", name, answer, err)
		}
	}
}

// No mirror makes the host take more than the pinned size, or bytes that are not asked for.
func TestThreat63_HostileMirrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		message string
	}{
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			chunk := bytes.Repeat([]byte("x"), 1<<10)
			for range 1 << 10 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "more than the allowed number of bytes"},
		"longer": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, content+"x") }, "more than the allowed number of bytes"},
		"shorter": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, content[:10])
		}, "a file of 10 bytes, and the pinned bundle has 36"},
		"another range": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 5-35/36")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, content[5:])
		}, `sent the range "bytes 5-35/36"`},
		"encoded": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, content)
		}, "encoded"},
		"not there": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret\nlines", http.StatusForbidden) }, "HTTP 403"},
		"redirects for ever": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		}, "redirected more than 5 times"},
		"redirects to a file": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/shadow", http.StatusFound)
		}, "unsupported protocol scheme"},
		"hangs up": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "36")
			_, _ = io.WriteString(w, content[:20])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "unexpected EOF"},
	} {
		s := serve(t, test.handler)
		answer, err := get(t, download.Wanted{URL: s.URL + "/a", Size: 36})
		if err == nil || !strings.Contains(err.Error(), test.message) || len(answer.data) > 36 {
			t.Errorf("%s: got %d bytes, %v", name, len(answer.data), err)
		}
	}
}

// A mirror can't lead the host from https to http, where anybody could answer. One over
// http may redirect to https.
func TestThreat63_MirrorStaysWithHTTPS(t *testing.T) {
	t.Parallel()
	plain := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, content) })
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	t.Cleanup(secure.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, plain.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	former, err := http.NewRequestWithContext(t.Context(), http.MethodGet, secure.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if err := download.CheckRedirect(request, []*http.Request{former}); err == nil {
		t.Error("left https")
	}
	if err := download.CheckRedirect(former, []*http.Request{request}); err != nil {
		t.Error(err)
	}
	// An unknown certificate authority is refused.
	if _, err := get(t, download.Wanted{URL: secure.URL, Size: 36}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}

// Errors are the same each time, and have nothing secret of the URL.
func TestMirrorErrorsArePlain(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	address := strings.TrimPrefix(s.URL, "http://")
	_, err := get(t, download.Wanted{URL: "http://user:password@" + address + "/a?token=secret", Size: 36})
	if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "password") || strings.Contains(err.Error(), address) {
		t.Error(err)
	}
}

func TestMirrorWithoutTheEnd(t *testing.T) {
	t.Parallel()
	for _, cut := range []int{1, 17, 35} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			_, _ = io.WriteString(w, content[:cut])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		answer, err := get(t, download.Wanted{URL: s.URL, Size: 36})
		if err == nil || answer.data != content[:cut] {
			t.Errorf("cut at %d: got %+v, %v", cut, answer, err)
		}
	}
}
