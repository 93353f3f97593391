package bucket_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bucket"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/objectstore"
)

// rig is a real server with the folders of two clusters, "c" and "other".
type rig struct {
	*WithT
	t     *testing.T
	store objectstore.Store
}

func newRig(t *testing.T) rig { return rig{NewWithT(t), t, objectstore.New(t)} }

func secretOf(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

func credentials(authority string) *corev1.Secret {
	return secretOf("s3", map[string]string{"accessKeyID": objectstore.AccessKey, "secretAccessKey": objectstore.SecretKey, "ca.crt": authority})
}

func at(endpoint string) infrav1.S3Bucket {
	return infrav1.S3Bucket{
		Endpoint: endpoint, Bucket: objectstore.Bucket, Prefix: "edge/one", CredentialsRef: infrav1.S3CredentialsReference{Name: "s3"},
	}
}

func (r rig) open(cluster string) *bucket.Bucket {
	r.t.Helper()
	secrets := fake.NewClientBuilder().WithObjects(credentials(r.store.Authority), secretOf(cluster+"-etcd", map[string]string{"tls.crt": "of " + cluster})).Build()
	b, err := bucket.Open(r.t.Context(), secrets, "ns", cluster, at(r.store.Endpoint+"/"))
	r.Expect(err).NotTo(HaveOccurred())
	r.t.Cleanup(b.Close)
	return b
}

// grant permits the upload of a snapshot with six bytes.
func (r rig) grant(b *bucket.Bucket, name string) bucket.Grant {
	r.t.Helper()
	g, err := b.Grant(r.t.Context(), name, 6, map[string]string{"revision": "7"}, time.Minute)
	r.Expect(err).NotTo(HaveOccurred())
	return g
}

// send sends a request with the headers of a grant and returns the status of the answer.
func (r rig) send(method, url, body string, header map[string]string) int {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, url, strings.NewReader(body))
	r.Expect(err).NotTo(HaveOccurred())
	for key, value := range header {
		request.Header.Set(key, value)
	}
	response, err := r.store.Client(r.t).Do(request)
	r.Expect(err).NotTo(HaveOccurred())
	_, err = io.Copy(io.Discard, response.Body)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(response.Body.Close()).To(Succeed())
	return response.StatusCode
}

func (r rig) upload(b *bucket.Bucket, id, host string) string {
	r.t.Helper()
	name := b.Name(id, host)
	g := r.grant(b, name)
	r.Expect(r.send(http.MethodPut, g.URL, "cipher", g.Header)).To(Equal(http.StatusOK))
	return name
}

func TestThreat70_ObjectsOfOthersAreLeftAlone(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	b, other := r.open("c"), r.open("other")
	r.Expect(b.List(ctx)).To(BeEmpty())
	first := r.upload(b, "20260101T000000Z", "host.with.dots")
	r.Expect(first).To(Equal("edge/one/1036a10e930416bf/20260101T000000Z.host.with.dots.tar.age"))
	r.upload(other, "20260101T000000Z", "host")
	r.Expect(os.WriteFile(filepath.Join(r.store.Folder, filepath.Dir(first), "notes.txt"), []byte("x"), 0o600)).To(Succeed())

	list, err := b.List(ctx)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(list).To(ConsistOf(And(
		HaveField("Name", first), HaveField("ID", "20260101T000000Z"), HaveField("Host", "host.with.dots"), HaveField("SizeBytes", int64(6)),
		HaveField("ModifiedAt", BeTemporally("~", time.Now(), time.Hour)))), "neither of another cluster nor of a person")
	r.Expect(b.Facts(ctx, first)).To(HaveKeyWithValue("revision", "7"))
	r.Expect(b.Remove(ctx, first)).To(Succeed())
	r.Expect(b.Remove(ctx, first)).To(Succeed())
	r.Expect(b.List(ctx)).To(BeEmpty())
	r.Expect(other.List(ctx)).To(HaveLen(1))
}

// A grant permits one object of one size for a time, and nothing else.
func TestThreat68_AGrantPermitsOneObject(t *testing.T) {
	r := newRig(t)
	b := r.open("c")
	name := b.Name("20260101T000000Z", "host")
	g := r.grant(b, name)
	victim := r.upload(b, "20250101T000000Z", "victim")
	otherName := strings.Replace(g.URL, "20260101T000000Z.host", "20250101T000000Z.victim", 1)
	r.Expect(otherName).NotTo(Equal(g.URL))
	folder, _, _ := strings.Cut(g.URL, "/edge/")
	_, query, _ := strings.Cut(g.URL, "?")
	for what, status := range map[string]int{
		"another object":         r.send(http.MethodPut, otherName, "hacked", g.Header),
		"another size":           r.send(http.MethodPut, g.URL, "larger than six", g.Header),
		"other facts":            r.send(http.MethodPut, g.URL, "cipher", map[string]string{"x-amz-meta-revision": "8"}),
		"to read it":             r.send(http.MethodGet, g.URL, "", nil),
		"to read another":        r.send(http.MethodGet, otherName, "", nil),
		"to remove it":           r.send(http.MethodDelete, g.URL, "", nil),
		"to list the bucket":     r.send(http.MethodGet, folder+"?"+query, "", nil),
		"a signature of its own": r.send(http.MethodPut, g.URL+"0", "cipher", g.Header),
	} {
		r.Expect(status).To(Equal(http.StatusForbidden), what)
	}
	content, err := os.ReadFile(filepath.Join(r.store.Folder, victim))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(string(content)).To(Equal("cipher"))
	r.Expect(r.send(http.MethodPut, g.URL, "cipher", g.Header)).To(Equal(http.StatusOK))

	short, err := b.Grant(t.Context(), name, 6, nil, time.Second)
	r.Expect(err).NotTo(HaveOccurred())
	r.Eventually(func() int { return r.send(http.MethodPut, short.URL, "cipher", short.Header) }, 30*time.Second, 100*time.Millisecond).
		Should(Equal(http.StatusForbidden), "it expires")
}

// The names of objects outside of the cluster's folder are refused before anything is sent.
func TestThreat70_OtherFolders(t *testing.T) {
	r := newRig(t)
	b, other := r.open("c"), r.open("other")
	for _, name := range []string{
		other.Name("20260101T000000Z", "host"), b.Name("20260101T000000Z", "a/../../x"), "20260101T000000Z.host.tar.age", b.Name("", "host"), "",
	} {
		_, err := b.Grant(t.Context(), name, 6, nil, time.Minute)
		r.Expect(err).To(MatchError(ContainSubstring("is no snapshot in")), name)
		r.Expect(b.Remove(t.Context(), name)).To(MatchError(ContainSubstring("is no snapshot in")), name)
		_, err = b.Facts(t.Context(), name)
		r.Expect(err).To(MatchError(ContainSubstring("is no snapshot in")), name)
	}
}

// Errors say what to correct, and are the same each time.
func TestErrors(t *testing.T) {
	r := newRig(t)
	etcd := secretOf("c-etcd", map[string]string{"tls.crt": "x"})
	wrongKey := credentials(r.store.Authority)
	wrongKey.Data["secretAccessKey"] = []byte("wrong")
	noBucket := at(r.store.Endpoint)
	noBucket.Bucket = "absent"
	for what, c := range map[string]struct {
		secrets []client.Object
		at      infrav1.S3Bucket
		err     string
	}{
		"no credentials":    {[]client.Object{etcd}, at(r.store.Endpoint), "reading the credentials: there is no Secret s3"},
		"empty credentials": {[]client.Object{etcd, secretOf("s3", nil)}, at(r.store.Endpoint), "Secret s3 needs the keys accessKeyID and secretAccessKey"},
		"no CA certificate": {[]client.Object{etcd, credentials("no PEM")}, at(r.store.Endpoint), "Secret s3: ca.crt has no certificate in PEM"},
		"no etcd":           {[]client.Object{credentials(r.store.Authority)}, at(r.store.Endpoint), "there is no Secret c-etcd"},
		"wrong credentials": {[]client.Object{etcd, wrongKey}, at(r.store.Endpoint), "the storage answers SignatureDoesNotMatch"},
		"no bucket":         {[]client.Object{etcd, credentials(r.store.Authority)}, noBucket, "the storage answers NoSuchBucket"},
		"unknown authority": {[]client.Object{etcd, credentials("")}, at(r.store.Endpoint), "certificate signed by unknown authority"},
		"nobody listens":    {[]client.Object{etcd, credentials(r.store.Authority)}, at("https://127.0.0.1:1"), "connection refused"},
	} {
		list := func(ctx context.Context) error {
			b, err := bucket.Open(ctx, fake.NewClientBuilder().WithObjects(c.secrets...).Build(), "ns", "c", c.at)
			if err != nil {
				return err
			}
			defer b.Close()
			_, err = b.List(ctx)
			return err
		}
		err := list(t.Context())
		r.Expect(err).To(MatchError(ContainSubstring(c.err)), what)
		r.Expect(list(t.Context())).To(MatchError(err.Error()), what)
	}
}
