package fetch_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/fetch"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// file is a file of an archive.
type file struct {
	name    string
	content []byte
}

// rig is a host, its manager, and a storage with one object.
type rig struct {
	*WithT
	t *testing.T
	// content and facts are those of the confirmed snapshot.
	content []byte
	facts   protocol.EtcdSnapshotFacts
	// object is what the storage has; refuse answers instead if it is not nil.
	object []byte
	refuse func(http.ResponseWriter)
	// asked counts requests for permissions.
	asked int
	grant protocol.EtcdSnapshotFetchGrant
	store *snapshot.Store
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{WithT: NewWithT(t), t: t, content: make([]byte, 200_001)}
	_, _ = rand.New(rand.NewSource(1)).Read(r.content)
	r.facts = protocol.EtcdSnapshotFacts{
		ID: "1", Cluster: protocol.EtcdCluster{Namespace: "ns", Name: "c"}, SizeBytes: int64(len(r.content)), SHA256: digest(r.content),
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if r.refuse != nil {
			r.refuse(w)
			return
		}
		_, _ = w.Write(r.object)
	}))
	t.Cleanup(server.Close)
	r.grant.URL, r.grant.Object = server.URL+"/b/c/1.h.tar.age?signature=secret", "c/1.h.tar.age"
	r.grant.TrustBundle = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	root, folder := t.TempDir(), t.TempDir()
	r.Expect(os.MkdirAll(filepath.Join(root, "/etc/kubernetes/pki/etcd"), 0o700)).To(Succeed())
	r.Expect(os.WriteFile(filepath.Join(root, "/etc/kubernetes/pki/etcd/ca.crt"), []byte("authority"), 0o600)).To(Succeed())
	r.store = &snapshot.Store{
		Root: root, Folder: folder, System: durable.OS{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Space: func(string) (int64, int64, error) { return 1 << 40, 1 << 40, nil },
	}
	r.upload(r.files()...)
	return r
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// files are the files of the snapshot's archive.
func (r *rig) files() []file {
	r.t.Helper()
	about, err := json.Marshal(r.facts)
	r.Expect(err).NotTo(HaveOccurred())
	return []file{{"1.json", about}, {"1.db", r.content}}
}

// upload puts an object with these files into the storage, as anybody can who can write there:
// recipients are public.
func (r *rig) upload(files ...file) {
	r.t.Helper()
	var plain, object bytes.Buffer
	archive := tar.NewWriter(&plain)
	for _, f := range files {
		r.Expect(archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.content)), Mode: 0o600})).To(Succeed())
		_, err := archive.Write(f.content)
		r.Expect(err).NotTo(HaveOccurred())
	}
	r.Expect(archive.Close()).To(Succeed())
	identity, err := age.GenerateX25519Identity()
	r.Expect(err).NotTo(HaveOccurred())
	encrypted, err := age.Encrypt(&object, identity.Recipient())
	r.Expect(err).NotTo(HaveOccurred())
	_, err = encrypted.Write(plain.Bytes())
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(encrypted.Close()).To(Succeed())
	r.object = object.Bytes()
	header, err := age.ExtractHeader(bytes.NewReader(r.object))
	r.Expect(err).NotTo(HaveOccurred())
	r.grant.FileKey, err = age.DecryptHeader(header, identity)
	r.Expect(err).NotTo(HaveOccurred())
	r.grant.SizeBytes = int64(len(r.object))
}

// EtcdSnapshotFetch is fetch.Manager.
func (r *rig) EtcdSnapshotFetch(_ context.Context, request protocol.EtcdSnapshotFetchRequest) (protocol.EtcdSnapshotFetchGrant, error) {
	r.Expect(request.ID).To(Equal("claim.1"))
	r.asked++
	return r.grant, nil
}

// fetch makes an attempt for the snapshot with the SHA-256 that was confirmed.
func (r *rig) fetch() error {
	r.t.Helper()
	fetcher := &fetch.Fetcher{Store: r.store, Manager: func() fetch.Manager { return r }, Log: slog.New(slog.DiscardHandler)}
	return fetcher.Fetch(r.t.Context(), "claim.1", protocol.EtcdRestore{
		SnapshotID: "1", SHA256: digest(r.content), Cluster: protocol.EtcdCluster{Namespace: "ns", Name: "c"}, Uploaded: true,
	})
}

// expectNothing checks that the host has no snapshot, nor a part of one.
func (r *rig) expectNothing(what string) {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.store.Folder, "*", "*"))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(found).To(BeEmpty(), what)
}

func TestFetch(t *testing.T) {
	r := newRig(t)
	r.Expect(r.fetch()).To(Succeed())
	path, facts, err := r.store.Verify(t.Context(), "1")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(facts).To(Equal(r.facts))
	content, err := os.ReadFile(path)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(bytes.Equal(content, r.content)).To(BeTrue())
	info, err := os.Stat(path)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))

	r.Expect(r.fetch()).To(Succeed())
	r.Expect(r.asked).To(Equal(1), "what the host has is not downloaded again")
	r.Expect(os.WriteFile(path, []byte("damaged"), 0o600)).To(Succeed())
	r.Expect(r.fetch()).To(Succeed())
	r.Expect(r.asked).To(Equal(2), "a damaged one is")
}

// Who can write into the bucket can make objects that the host can decrypt, and have them
// neither restored nor kept.
func TestThreat84_OtherContent(t *testing.T) {
	r := newRig(t)
	other := bytes.Clone(r.content)
	other[len(other)-1] ^= 1
	truthful := r.facts
	truthful.SHA256 = digest(other)
	honest := r.files()
	about := func(change func(*protocol.EtcdSnapshotFacts)) file {
		facts := r.facts
		change(&facts)
		data, err := json.Marshal(facts)
		r.Expect(err).NotTo(HaveOccurred())
		return file{"1.json", data}
	}
	for what, files := range map[string][]file{
		"another snapshot":           {about(func(f *protocol.EtcdSnapshotFacts) { *f = truthful }), {"1.db", other}},
		"another content":            {honest[0], {"1.db", other}},
		"a shorter one":              {honest[0], {"1.db", r.content[:100_000]}},
		"a longer one":               {honest[0], {"1.db", append(bytes.Clone(r.content), 0)}},
		"of another cluster":         {about(func(f *protocol.EtcdSnapshotFacts) { f.Cluster.Name = "d" }), honest[1]},
		"of another namespace":       {about(func(f *protocol.EtcdSnapshotFacts) { f.Cluster.Namespace = "d" }), honest[1]},
		"of another time":            {about(func(f *protocol.EtcdSnapshotFacts) { f.ID = "2" }), honest[1]},
		"of a huge size":             {about(func(f *protocol.EtcdSnapshotFacts) { f.SizeBytes = protocol.MaxUploadBytes + 1 }), honest[1]},
		"a file more":                {honest[0], honest[1], {"../../etc/passwd", nil}},
		"a file before":              {{"../../etc/passwd", nil}, honest[0], honest[1]},
		"nothing":                    {},
		"only what it is":            {honest[0]},
		"a large text of what it is": {{"1.json", make([]byte, 1<<20)}, honest[1]},
		"another name":               {honest[0], {"2.db", r.content}},
	} {
		r.upload(files...)
		r.Expect(r.fetch()).NotTo(Succeed(), what)
		r.expectNothing(what)
	}
}

// An object that was changed or cut is noticed at its end at the latest.
func TestThreat84_Tampered(t *testing.T) {
	for what, change := range map[string]func(r *rig){
		"changed":         func(r *rig) { r.object[len(r.object)/2] ^= 1 },
		"cut":             func(r *rig) { r.object = r.object[:len(r.object)-17] },
		"cut at a chunk":  func(r *rig) { r.object = r.object[:len(r.object)-len(r.object)%(64<<10)] },
		"longer":          func(r *rig) { r.object = append(r.object, 0) },
		"another key":     func(r *rig) { r.grant.FileKey = make([]byte, 16) },
		"no key":          func(r *rig) { r.grant.FileKey = nil },
		"too large":       func(r *rig) { r.grant.SizeBytes = protocol.MaxUploadBytes + 1 },
		"less than it is": func(r *rig) { r.grant.SizeBytes-- },
		"plain HTTP":      func(r *rig) { r.grant.URL = strings.Replace(r.grant.URL, "https:", "http:", 1) },
		"a full disk": func(r *rig) {
			r.store.Space = func(string) (int64, int64, error) { return 100_000, 1 << 40, nil }
		},
		"no permission": func(r *rig) {
			r.refuse = func(w http.ResponseWriter) {
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
			}
		},
		"another place": func(r *rig) {
			r.refuse = func(w http.ResponseWriter) {
				w.Header().Set("Location", "https://example.com")
				w.WriteHeader(http.StatusFound)
			}
		},
	} {
		r := newRig(t)
		change(r)
		err := r.fetch()
		r.Expect(err).To(HaveOccurred(), what)
		r.Expect(err.Error()).NotTo(ContainSubstring("secret"), "the permission is not shown: %s", what)
		r.expectNothing(what)
	}
}

// Another snapshot of the same time, which the host has itself, is never replaced.
func TestOwnSnapshotStays(t *testing.T) {
	r := newRig(t)
	own := r.facts
	own.SHA256, own.SizeBytes = digest([]byte("own")), 3
	r.Expect(r.store.Add(t.Context(), own, func(to io.Writer) error {
		_, err := io.WriteString(to, "own")
		return err
	})).To(Succeed())
	r.Expect(r.fetch()).To(MatchError(ContainSubstring("this host has another snapshot 1")))
	_, facts, err := r.store.Verify(t.Context(), "1")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(facts).To(Equal(own))
}
