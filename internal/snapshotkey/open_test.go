package snapshotkey_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/upload"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bucket"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/objectstore"
)

const size = 300_000

// rig is a real storage with the folders of the clusters c and d, whose snapshots are for the
// same recipient.
type rig struct {
	*WithT
	t        *testing.T
	store    objectstore.Store
	identity *age.X25519Identity
	secrets  client.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{WithT: NewWithT(t), t: t, store: objectstore.New(t)}
	var err error
	r.identity, err = age.GenerateX25519Identity()
	r.Expect(err).NotTo(HaveOccurred())
	r.secrets = fake.NewClientBuilder().WithObjects(
		secretOf("s3", map[string]string{"accessKeyID": objectstore.AccessKey, "secretAccessKey": objectstore.SecretKey, "ca.crt": r.store.Authority}),
		secretOf("c-etcd", map[string]string{"tls.crt": "of c", "tls.key": "private key of c"}),
		secretOf("d-etcd", map[string]string{"tls.crt": "of d", "tls.key": "private key of d"}),
		secretOf("identity", map[string]string{"identity": "# created: 2026\n" + r.identity.String() + "\n"}),
	).Build()
	return r
}

func secretOf(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

func (r *rig) bucket(cluster string) *bucket.Bucket {
	r.t.Helper()
	b, err := bucket.Open(r.t.Context(), r.secrets, "ns", cluster, infrav1.S3Bucket{
		Endpoint: r.store.Endpoint, Bucket: objectstore.Bucket, CredentialsRef: infrav1.S3CredentialsReference{Name: "s3"},
	})
	r.Expect(err).NotTo(HaveOccurred())
	r.t.Cleanup(b.Close)
	return b
}

func source() infrav1.EtcdRestoreUpload {
	return infrav1.EtcdRestoreUpload{HostName: "h", ID: "1", IdentityRef: infrav1.EtcdRestoreIdentityReference{Name: "identity"}}
}

func (r *rig) open(cluster string, from infrav1.EtcdRestoreUpload) (snapshotkey.Key, error) {
	return snapshotkey.Open(r.t.Context(), r.secrets, r.bucket(cluster), client.ObjectKey{Namespace: "ns", Name: cluster}, from)
}

// host is a host whose snapshot is uploaded by its agent's code. It is the upload.Source and the
// upload.Manager.
type host struct {
	bucket *bucket.Bucket
	facts  protocol.EtcdSnapshotFacts
	folder string
}

func (h host) Open(context.Context, string) (protocol.EtcdSnapshotFacts, *os.File, error) {
	path := filepath.Join(h.folder, "db")
	file, err := os.Open(path)
	return h.facts, file, err
}

func (h host) EtcdSnapshotGrant(ctx context.Context, in protocol.EtcdSnapshotGrantRequest) (protocol.EtcdSnapshotGrant, error) {
	grant, err := h.bucket.Grant(ctx, h.bucket.Name(in.ID, "h"), in.SizeBytes, bucket.FactsOf(infrav1.HostEtcdSnapshot{
		ID: in.ID, SHA256: h.facts.SHA256, CompletedAt: metav1.NewTime(h.facts.CompletedAt), KubernetesVersion: "v1.36.3",
	}), time.Minute)
	return protocol.EtcdSnapshotGrant{Object: h.bucket.Name(in.ID, "h"), URL: grant.URL, Headers: grant.Header, TrustBundle: grant.TrustBundle}, err
}

// upload uploads a snapshot of a cluster, and returns the path of the object.
func (r *rig) upload(cluster string, change func(*protocol.EtcdSnapshotFacts)) string {
	r.t.Helper()
	h := host{bucket: r.bucket(cluster), folder: r.t.TempDir(), facts: protocol.EtcdSnapshotFacts{
		ID: "1", Cluster: protocol.EtcdCluster{Namespace: "ns", Name: cluster}, SizeBytes: size, SHA256: strings.Repeat("a", 64),
		CompletedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}}
	if change != nil {
		change(&h.facts)
	}
	r.Expect(os.WriteFile(filepath.Join(h.folder, "db"), make([]byte, size), 0o600)).To(Succeed())
	uploader := &upload.Uploader{Source: h, Manager: func() upload.Manager { return h }, Log: slog.New(slog.DiscardHandler)}
	done, err := uploader.Upload(r.t.Context(), protocol.EtcdSnapshotUpload{ID: "1", Recipients: []string{r.identity.Recipient().String()}})
	r.Expect(err).NotTo(HaveOccurred())
	return filepath.Join(r.store.Folder, done.Object)
}

// The key opens the object that the agent has uploaded.
func TestOpen(t *testing.T) {
	r := newRig(t)
	path := r.upload("c", nil)
	key, err := r.open("c", source())
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(key.Object.Snapshot.SHA256).To(Equal(strings.Repeat("a", 64)))
	r.Expect(key.Object.Snapshot.SizeBytes).To(Equal(int64(size)))
	object, err := os.ReadFile(path)
	r.Expect(err).NotTo(HaveOccurred())
	plain, err := age.Decrypt(bytes.NewReader(object), age.NewInjectedFileKeyIdentity(key.File))
	r.Expect(err).NotTo(HaveOccurred())
	n, err := io.Copy(io.Discard, plain)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(n).To(BeNumerically(">", size))
}

// The manager gives away the key of no other object than the one that is restored, although the
// identity opens the snapshots of all clusters.
func TestThreat83_KeysOfOtherObjects(t *testing.T) {
	r := newRig(t)
	mine, foreign := r.upload("c", nil), r.upload("d", nil)
	replace := func(what, path, message string) {
		t.Helper()
		object, err := os.ReadFile(path)
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(os.WriteFile(mine, object, 0o600)).To(Succeed())
		key, err := r.open("c", source())
		r.Expect(err).To(MatchError(ContainSubstring(message)), what)
		r.Expect(key.File).To(BeEmpty(), what)
	}
	replace("the object of another cluster", foreign, "another cluster")
	replace("another snapshot", r.upload("d", func(f *protocol.EtcdSnapshotFacts) {
		f.Cluster.Name, f.SHA256 = "c", strings.Repeat("b", 64)
	}), "another snapshot than its seal says")
	replace("another namespace", r.upload("d", func(f *protocol.EtcdSnapshotFacts) { f.Cluster.Namespace, f.Cluster.Name = "x", "c" }), "another cluster")
	r.upload("c", nil)
	_, err := r.open("d", source())
	r.Expect(err).To(HaveOccurred(), "the folder is that of the cluster")
	for what, from := range map[string]infrav1.EtcdRestoreUpload{
		"another folder": {HostName: "h", ID: "../1", IdentityRef: source().IdentityRef},
		"another host":   {HostName: "x", ID: "1", IdentityRef: source().IdentityRef},
	} {
		_, err := r.open("c", from)
		r.Expect(err).To(HaveOccurred(), what)
	}
}

// What a person has to correct is said, without what is secret.
func TestThreat83_IdentitiesStaySecret(t *testing.T) {
	r := newRig(t)
	path := r.upload("c", nil)
	other, err := age.GenerateX25519Identity()
	r.Expect(err).NotTo(HaveOccurred())
	for what, test := range map[string]struct {
		change  func(*corev1.Secret)
		message string
	}{
		"another identity": {func(s *corev1.Secret) { s.Data["identity"] = []byte(other.String()) }, "the identity does not open it"},
		"a recipient":      {func(s *corev1.Secret) { s.Data["identity"] = []byte(r.identity.Recipient().String()) }, "AGE-SECRET-KEY-1"},
		"a mistyped one":   {func(s *corev1.Secret) { s.Data["identity"] = []byte(r.identity.String() + "Q") }, "is no file of age-keygen"},
		"another key":      {func(s *corev1.Secret) { s.Data = map[string][]byte{"key": []byte(r.identity.String())} }, "is no file of age-keygen"},
	} {
		s := secretOf("wrong", map[string]string{"identity": ""})
		test.change(s)
		r.Expect(r.secrets.Create(t.Context(), s)).To(Succeed())
		from := source()
		from.IdentityRef.Name = "wrong"
		_, err := r.open("c", from)
		r.Expect(err).To(MatchError(ContainSubstring(test.message)), what)
		r.Expect(err.Error()).NotTo(ContainSubstring(r.identity.String()[20:]), what)
		r.Expect(err.Error()).NotTo(ContainSubstring(other.String()[20:]), what)
		r.Expect(r.secrets.Delete(t.Context(), s)).To(Succeed())
	}
	from := source()
	from.IdentityRef.Name = "missing"
	_, err = r.open("c", from)
	r.Expect(err).To(MatchError(ContainSubstring("there is no Secret missing")))

	object, err := os.ReadFile(path)
	r.Expect(err).NotTo(HaveOccurred())
	object[len("age-encryption.org/v1\n-> X25519 ")] ^= 1
	r.Expect(os.WriteFile(path, object, 0o600)).To(Succeed())
	_, err = r.open("c", source())
	r.Expect(err).To(HaveOccurred(), "a changed header")
	r.Expect(os.WriteFile(path, []byte("x"), 0o600)).To(Succeed())
	_, err = r.open("c", source())
	r.Expect(err).To(MatchError(ContainSubstring("no file of age")))
}
