package upload_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/upload"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// files are snapshots of any content.
type files struct {
	folder string
	facts  protocol.EtcdSnapshotFacts
}

func (f files) Open(_ context.Context, id string) (protocol.EtcdSnapshotFacts, *os.File, error) {
	file, err := os.Open(filepath.Join(f.folder, id))
	return f.facts, file, err
}

// storage is a storage and the manager that permits uploads to it.
type storage struct {
	*httptest.Server
	// asked is the last request for a permission, and got the last object.
	asked protocol.EtcdSnapshotGrantRequest
	got   []byte
	// header is that of the last PUT.
	header http.Header
	// refuse answers a PUT; nil stores the object.
	refuse func(http.ResponseWriter)
	grant  protocol.EtcdSnapshotGrant
}

func newStorage(t *testing.T) *storage {
	t.Helper()
	s := &storage{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.refuse != nil {
			s.refuse(w)
			return
		}
		s.header = r.Header
		s.got, _ = io.ReadAll(r.Body)
		if int64(len(s.got)) != r.ContentLength {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(s.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	s.grant = protocol.EtcdSnapshotGrant{
		Object: "c/1.host.tar.age", URL: s.URL + "/b/c/1.host.tar.age?signature=secret", Headers: map[string]string{"X-Amz-Meta-A": "b"}, TrustBundle: string(authority),
	}
	return s
}

func (s *storage) EtcdSnapshotGrant(_ context.Context, request protocol.EtcdSnapshotGrantRequest) (protocol.EtcdSnapshotGrant, error) {
	s.asked = request
	return s.grant, nil
}

func (s *storage) uploader(source upload.Source) *upload.Uploader {
	return &upload.Uploader{Source: source, Manager: func() upload.Manager { return s }, Log: slog.New(slog.DiscardHandler)}
}

// snapshotOf returns a snapshot of a size with random content.
func snapshotOf(t *testing.T, size int) (files, []byte) {
	t.Helper()
	content := make([]byte, size)
	_, _ = rand.New(rand.NewSource(int64(size))).Read(content)
	f := files{t.TempDir(), protocol.EtcdSnapshotFacts{
		ID: "1", Cluster: protocol.EtcdCluster{Namespace: "ns", Name: "c", UID: "uid"}, CompletedAt: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC),
		Revision: 7, SizeBytes: int64(size), SHA256: digest(content), KubernetesVersion: "v1.36.3", EtcdVersion: "3.6.5",
	}}
	NewWithT(t).Expect(os.WriteFile(filepath.Join(f.folder, "1"), content, 0o600)).To(Succeed())
	return f, content
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func newIdentity(t *testing.T) *age.X25519Identity {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return identity
}

func wanted(identities ...*age.X25519Identity) protocol.EtcdSnapshotUpload {
	want := protocol.EtcdSnapshotUpload{ID: "1"}
	for _, identity := range identities {
		want.Recipients = append(want.Recipients, identity.Recipient().String())
	}
	return want
}

// unpack returns the files of an object.
func unpack(t *testing.T, object []byte, identity age.Identity) map[string][]byte {
	t.Helper()
	g := NewWithT(t)
	plain, err := age.Decrypt(bytes.NewReader(object), identity)
	g.Expect(err).NotTo(HaveOccurred())
	archive, out := tar.NewReader(plain), map[string][]byte{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(header.Mode).To(Equal(int64(0o600)))
		out[header.Name], err = io.ReadAll(archive)
		g.Expect(err).NotTo(HaveOccurred())
	}
	rest, err := io.ReadAll(plain)
	g.Expect(err).NotTo(HaveOccurred(), "it is complete")
	g.Expect(rest).To(BeEmpty())
	return out
}

// The size that the manager is asked for is the size of the object, at each boundary of tar's
// blocks and of age's chunks. Each recipient can read it.
func TestUpload(t *testing.T) {
	one, two := newIdentity(t), newIdentity(t)
	const chunk = 64 << 10
	for _, size := range []int{1, 511, 512, 513, chunk - 3072, chunk - 2560, chunk - 2048, chunk - 1536, chunk, chunk + 1, 5*chunk + 7} {
		g := NewWithT(t)
		s := newStorage(t)
		source, content := snapshotOf(t, size)
		done, err := s.uploader(source).Upload(t.Context(), wanted(one, two))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(s.asked).To(Equal(protocol.EtcdSnapshotGrantRequest{ID: "1", SizeBytes: int64(len(s.got))}))
		g.Expect(done).To(Equal(protocol.EtcdSnapshotObject{ID: "1", Object: "c/1.host.tar.age", SizeBytes: int64(len(s.got)), SHA256: digest(s.got)}))
		g.Expect(s.header.Get("X-Amz-Meta-A")).To(Equal("b"))
		for _, identity := range []*age.X25519Identity{one, two} {
			out := unpack(t, s.got, identity)
			g.Expect(out).To(HaveLen(2))
			g.Expect(bytes.Equal(out["1.db"], content)).To(BeTrue())
			var facts protocol.EtcdSnapshotFacts
			g.Expect(json.Unmarshal(out["1.json"], &facts)).To(Succeed())
			g.Expect(facts).To(Equal(source.facts))
		}
	}
}

// What is at the destination reads nothing, and says nothing else than it said on the host.
func TestThreat69_OnlyRecipientsReadSnapshots(t *testing.T) {
	g := NewWithT(t)
	s := newStorage(t)
	source, content := snapshotOf(t, 100_000)
	identity := newIdentity(t)
	_, err := s.uploader(source).Upload(t.Context(), wanted(identity))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bytes.Contains(s.got, content[5000:5064])).To(BeFalse(), "it is encrypted")
	g.Expect(bytes.Contains(s.got, []byte("v1.36.3"))).To(BeFalse(), "what the snapshot is, too")
	_, err = age.Decrypt(bytes.NewReader(s.got), newIdentity(t))
	g.Expect(err).To(HaveOccurred(), "another identity reads nothing")
	s.got[len(s.got)/2] ^= 1
	plain, err := age.Decrypt(bytes.NewReader(s.got), identity)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = io.Copy(io.Discard, plain)
	g.Expect(err).To(HaveOccurred(), "a change is noticed")

	for what, want := range map[string]protocol.EtcdSnapshotUpload{
		"no recipient":    {ID: "1"},
		"no key":          {ID: "1", Recipients: []string{identity.Recipient().String(), "age1xyz"}},
		"an identity":     {ID: "1", Recipients: []string{identity.String()}},
		"many recipients": {ID: "1", Recipients: make([]string, protocol.MaxRecipients+1)},
	} {
		s.got, s.asked = nil, protocol.EtcdSnapshotGrantRequest{}
		_, err := s.uploader(source).Upload(t.Context(), want)
		g.Expect(err).To(MatchError(ContainSubstring("recipient")), what)
		g.Expect(err).NotTo(MatchError(ContainSubstring("AGE-SECRET-KEY-1"+identity.String()[16:])), what)
		g.Expect(s.got).To(BeNil(), what)
		g.Expect(s.asked.ID).To(BeEmpty(), what)
	}
}

// The memory that an upload takes does not depend on the size of the snapshot.
func TestMemory(t *testing.T) {
	g := NewWithT(t)
	s := newStorage(t)
	var received int64
	s.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received, _ = io.Copy(io.Discard, r.Body) })
	const size = 96 << 20
	source, _ := snapshotOf(t, 1)
	source.facts.SizeBytes = size
	g.Expect(os.Truncate(filepath.Join(source.folder, "1"), size)).To(Succeed())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := s.uploader(source).Upload(t.Context(), wanted(newIdentity(t)))
	runtime.ReadMemStats(&after)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(received).To(Equal(s.asked.SizeBytes))
	// The race detector drops some buffers of pools, so that more are made.
	g.Expect(after.TotalAlloc-before.TotalAlloc).To(BeNumerically("<", size/2), "of both ends, whatever was freed meanwhile")
}

func TestErrors(t *testing.T) {
	g := NewWithT(t)
	s := newStorage(t)
	source, _ := snapshotOf(t, 1000)
	attempt := func() error {
		_, err := s.uploader(source).Upload(t.Context(), wanted(newIdentity(t)))
		g.Expect(err).To(HaveOccurred())
		g.Expect(err.Error()).NotTo(ContainSubstring("secret"), "the permission is not shown")
		return err
	}
	s.refuse = func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
	}
	g.Expect(attempt()).To(MatchError(HaveSuffix("refuses the snapshot: AccessDenied: Request has expired (HTTP 403)")))
	s.refuse = func(w http.ResponseWriter) {
		w.Header().Set("Location", "https://elsewhere.example.com")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	g.Expect(attempt()).To(MatchError(HaveSuffix("refuses the snapshot: 307 Temporary Redirect")))
	s.refuse = func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	}
	g.Expect(attempt()).To(MatchError(HaveSuffix("500 Internal Server Error")))
	s.refuse = func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	g.Expect(attempt()).To(MatchError(HavePrefix("sending the snapshot to 127.0.0.1:")))
	s.grant.TrustBundle = ""
	g.Expect(attempt()).To(MatchError(ContainSubstring("unknown authority")))
	s.grant.URL = strings.Replace(s.grant.URL, "https", "http", 1)
	g.Expect(attempt()).To(MatchError("the manager has sent a URL that is not https"))
	s.grant.URL = "https://\x00secret"
	g.Expect(attempt()).To(MatchError("the manager has sent no valid URL"))
	g.Expect(os.Remove(filepath.Join(source.folder, "1"))).To(Succeed())
	g.Expect(attempt()).To(MatchError(os.ErrNotExist))
}
