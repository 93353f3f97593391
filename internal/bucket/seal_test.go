package bucket_test

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bucket"
)

// openWith opens the folder of cluster c with the private key of an authority; blank: none.
func (r rig) openWith(key string, change ...func(*infrav1.S3Bucket)) *bucket.Bucket {
	r.t.Helper()
	authority := map[string]string{"tls.crt": "of c"}
	if key != "" {
		authority["tls.key"] = key
	}
	place := at(r.store.Endpoint)
	for _, c := range change {
		c(&place)
	}
	secrets := fake.NewClientBuilder().WithObjects(credentials(r.store.Authority), secretOf("c-etcd", authority)).Build()
	b, err := bucket.Open(r.t.Context(), secrets, "ns", "c", place)
	r.Expect(err).NotTo(HaveOccurred())
	r.t.Cleanup(b.Close)
	return b
}

// put uploads six bytes as the snapshot, with metadata.
func (r rig) put(b *bucket.Bucket, name string, facts map[string]string) {
	r.t.Helper()
	g, err := b.Grant(r.t.Context(), name, 6, facts, time.Minute)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.send(http.MethodPut, g.URL, "cipher", g.Header)).To(Equal(http.StatusOK))
}

func sealedSnapshot() infrav1.HostEtcdSnapshot {
	return infrav1.HostEtcdSnapshot{
		ID: "1", SHA256: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Revision: 7, KubernetesVersion: "v1.36.3", EtcdVersion: "3.6.5",
		CompletedAt: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)),
	}
}

func TestSealed(t *testing.T) {
	r := newRig(t)
	b := r.openWith("private")
	r.put(b, b.Name("1", "h"), bucket.FactsOf(sealedSnapshot()))
	got, err := b.Sealed(t.Context(), "1", "h")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(got.Name).To(Equal(b.Name("1", "h")))
	r.Expect(got.SizeBytes).To(Equal(int64(6)))
	got.Snapshot.CompletedAt = metav1.NewTime(got.Snapshot.CompletedAt.UTC())
	r.Expect(got.Snapshot).To(Equal(sealedSnapshot()))
	head, err := b.Head(t.Context(), got.Name, 4)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(string(head)).To(Equal("ciph"))
	grant, err := b.GrantDownload(t.Context(), got.Name, time.Minute)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.send(http.MethodGet, grant.URL, "", nil)).To(Equal(http.StatusOK))
	_, err = b.Sealed(t.Context(), "2", "h")
	r.Expect(err).To(MatchError(ContainSubstring("reading the metadata")))
}

// Who can write into the bucket can't say which snapshot is genuine: not with a key of their
// own, nor with the seal of another object.
func TestThreat84_Seals(t *testing.T) {
	r := newRig(t)
	b, stranger, unsealed := r.openWith("private"), r.openWith("another"), r.openWith("")
	facts := bucket.FactsOf(sealedSnapshot())
	refused := func(what, id, host, message string) {
		t.Helper()
		_, err := b.Sealed(t.Context(), id, host)
		r.Expect(err).To(MatchError(ContainSubstring(message)), what)
	}
	r.put(stranger, b.Name("1", "h"), facts)
	refused("the seal of a stranger", "1", "h", "the seal of object")
	r.put(unsealed, b.Name("2", "h"), facts)
	refused("no seal", "2", "h", "has no seal")

	r.put(b, b.Name("3", "h"), facts)
	genuine, err := b.Facts(t.Context(), b.Name("3", "h"))
	r.Expect(err).NotTo(HaveOccurred())
	r.put(unsealed, b.Name("4", "h"), genuine)
	refused("the seal of another time", "4", "h", "the seal of object")
	r.put(unsealed, b.Name("3", "other"), genuine)
	refused("the seal of another host", "3", "other", "the seal of object")
	for key := range genuine {
		changed := maps.Clone(genuine)
		changed[key] = "9" + changed[key][1:]
		r.put(unsealed, b.Name("3", "h"), changed)
		refused("another "+key, "3", "h", "the seal of object")
	}
	r.put(unsealed, b.Name("3", "h"), genuine)
	_, err = b.Sealed(t.Context(), "3", "h")
	r.Expect(err).NotTo(HaveOccurred(), "the same object again is the same")
	_, err = unsealed.Sealed(t.Context(), "3", "h")
	r.Expect(err).To(MatchError(ContainSubstring("tls.key")), "without the key of the authority nothing is genuine")
}

// A bucket that was copied below another prefix stays usable.
func TestSealOfACopy(t *testing.T) {
	r := newRig(t)
	b, unsealed := r.openWith("private"), r.openWith("", func(at *infrav1.S3Bucket) { at.Prefix = "" })
	moved := r.openWith("private", func(at *infrav1.S3Bucket) { at.Prefix = "" })
	r.put(b, b.Name("1", "h"), bucket.FactsOf(sealedSnapshot()))
	facts, err := b.Facts(t.Context(), b.Name("1", "h"))
	r.Expect(err).NotTo(HaveOccurred())
	r.put(unsealed, unsealed.Name("1", "h"), facts)
	_, err = moved.Sealed(t.Context(), "1", "h")
	r.Expect(err).NotTo(HaveOccurred())
	_, err = os.Stat(filepath.Join(r.store.Folder, moved.Name("1", "h")))
	r.Expect(err).NotTo(HaveOccurred())
}
