package etcd_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/etcdmember"
)

// filler is a text that can't be compressed or confused.
func filler(size int) string {
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, size)
	for i := range text {
		text[i] = byte('a' + random.IntN(26))
	}
	return string(text)
}

func TestSave(t *testing.T) {
	t.Parallel()
	h := etcdmember.New(t)
	value := filler(400 << 10)
	for _, key := range []string{"one", "two", "three"} {
		h.Put(t, key, key+value)
	}
	member := h.Member(t)
	if member.Endpoint != h.Endpoint || member.Data != etcdmember.Data {
		t.Errorf("got %q and %q", member.Endpoint, member.Data)
	}
	var saved bytes.Buffer
	info, err := etcd.Save(t.Context(), member.Options, &saved)
	if err != nil {
		t.Fatal(err)
	}
	data := saved.Bytes()
	sum := sha256.Sum256(data[:len(data)-sha256.Size])
	if info.Bytes != int64(len(data)) || info.SHA256 != hex.EncodeToString(sum[:]) || !bytes.HasSuffix(data, sum[:]) {
		t.Errorf("got %+v for %d bytes", info, len(data))
	}
	for _, key := range []string{"one", "two", "three"} {
		if !bytes.Contains(data, []byte(key+value[:1024])) {
			t.Errorf("the snapshot lacks %s", key)
		}
	}
	if err := etcd.Health(t.Context(), member.Options); err != nil {
		t.Error(err)
	}
	if version, err := etcd.Version(t.Context(), member.Options); err != nil || !strings.HasPrefix(version, "3.") {
		t.Errorf("got %q, %v", version, err)
	}
	t.Run("without the client certificate", func(t *testing.T) {
		stranger := member.Options
		stranger.TLS = member.TLS.Clone()
		stranger.TLS.Certificates = nil
		if _, err := etcd.Save(t.Context(), stranger, io.Discard); err == nil {
			t.Error("etcd gave its data to a stranger")
		}
		if err := etcd.Health(t.Context(), stranger); err == nil {
			t.Error("etcd answered a stranger")
		}
	})
	t.Run("to a full disk", func(t *testing.T) {
		full := errors.New("no space left")
		if _, err := etcd.Save(t.Context(), member.Options, failing{full}); !errors.Is(err, full) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("what else the member tells", func(t *testing.T) { testFacts(t, h, member) })
	t.Run("to a file", func(t *testing.T) { testFile(t, member, info) })
	t.Run("through damage", func(t *testing.T) { testDamage(t, h) })
}

func testFacts(t *testing.T, h etcdmember.Host, member etcd.Member) {
	if revision, err := etcd.Revision(t.Context(), member.Options); err != nil || revision != 4 {
		t.Errorf("got %d, %v", revision, err)
	}
	if names, err := etcd.Members(t.Context(), member.Options); err != nil || !slices.Equal(names, []string{etcdmember.Name}) {
		t.Errorf("got %q, %v", names, err)
	}
	if size, err := member.DatabaseSize(h.Root); err != nil || size < 3*400<<10 {
		t.Errorf("got %d, %v", size, err)
	}
}

// testFile saves the snapshot that info describes to a file, within a limit and above it.
func testFile(t *testing.T, member etcd.Member, info etcd.Info) {
	folder := t.TempDir()
	path := filepath.Join(folder, "snapshot.db")
	if _, err := etcd.SaveFile(t.Context(), member.Options, durable.OS{}, path, info.Bytes-1); !errors.Is(err, etcd.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
		t.Errorf("a snapshot that is too large has left %v, %v", entries, err)
	}
	saved, err := etcd.SaveFile(t.Context(), member.Options, durable.OS{}, path, info.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if sum := sha256.Sum256(data); err != nil || saved.FileSHA256 != hex.EncodeToString(sum[:]) || saved.Bytes != int64(len(data)) {
		t.Errorf("got %+v for %d bytes, %v", saved, len(data), err)
	}
	if _, err := etcd.SaveFile(t.Context(), member.Options, brokenDisk{}, path, info.Bytes); !errors.Is(err, unix.EBADF) {
		t.Errorf("got %v", err)
	}
}

// brokenDisk has files whose disk fails.
type brokenDisk struct{ durable.OS }

func (d brokenDisk) Create(path string) (durable.File, error) {
	file, err := d.OS.Create(path)
	return brokenFile{file}, err
}

type brokenFile struct{ durable.File }

func (brokenFile) Fd() uintptr { return math.MaxUint32 }

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// testDamage has a proxy damage what the member sends.
func testDamage(t *testing.T, h etcdmember.Host) {
	for name, test := range map[string]struct {
		change func(io.Reader) io.Reader
		want   string
	}{
		"a changed byte":   {func(r io.Reader) io.Reader { return &editor{Reader: r, at: 300 << 10} }, "SHA-256"},
		"an early end":     {func(r io.Reader) io.Reader { return io.LimitReader(r, 300<<10) }, "unexpected EOF"},
		"a lost link":      {func(r io.Reader) io.Reader { return io.MultiReader(io.LimitReader(r, 300<<10), broken{}) }, ""},
		"a huge message":   {func(io.Reader) io.Reader { return strings.NewReader("\x00\xff\xff\xff\xff") }, "4294967295 bytes"},
		"a compressed one": {func(io.Reader) io.Reader { return strings.NewReader("\x01\x00\x00\x00\x00") }, "compressed"},
		"another message":  {func(io.Reader) io.Reader { return strings.NewReader("\x00\x00\x00\x00\x02\x1a\xff") }, "not a part of a snapshot"},
		"nothing":          {func(io.Reader) io.Reader { return strings.NewReader("") }, "gRPC status"},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := &httputil.ReverseProxy{
				Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(h.URL(t)); r.Out.Header.Set("TE", "trailers") },
				Transport:     &http.Transport{TLSClientConfig: h.Member(t).TLS, ForceAttemptHTTP2: true},
				FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
				ModifyResponse: func(r *http.Response) error {
					r.Body = body{test.change(r.Body), r.Body}
					return nil
				},
			}
			server := httptest.NewUnstartedServer(proxy)
			server.EnableHTTP2, server.TLS = true, h.ServerTLS(t)
			server.StartTLS()
			t.Cleanup(server.Close)
			through := h.Member(t).Options
			through.Endpoint = server.URL
			_, err := etcd.Save(t.Context(), through, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

type body struct {
	io.Reader
	io.Closer
}

// editor changes one byte.
type editor struct {
	io.Reader

	at int
}

func (e *editor) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if e.at >= 0 && e.at < n {
		p[e.at] ^= 1
	}
	e.at -= n
	return n, err
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A learner is a member, and an answer that the majority has not agreed to is none.
func TestMembers(t *testing.T) {
	t.Parallel()
	h := etcdmember.New(t)
	h.AddLearner(t)
	if names, err := etcd.Members(t.Context(), h.Member(t).Options); err != nil || !slices.Equal(slices.Sorted(slices.Values(names)), []string{"", etcdmember.Name}) {
		t.Errorf("got %q, %v", names, err)
	}
	h = etcdmember.New(t)
	h.LoseMajority(t)
	if names, err := etcd.Members(t.Context(), h.Member(t).Options); err == nil {
		t.Errorf("without a majority it names %q", names)
	}
}

func TestHostsWithoutMember(t *testing.T) {
	t.Parallel()
	if _, found, err := etcd.Local(t.TempDir()); found || err != nil {
		t.Errorf("got %v, %v", found, err)
	}
}
