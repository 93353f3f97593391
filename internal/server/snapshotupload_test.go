package server_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
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

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	hostclient "github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/upload"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/etcdmember"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/objectstore"
)

// uploads is the API with a cluster whose snapshots are uploaded to a real storage.
type uploads struct {
	*WithT
	*harness
	storage  objectstore.Store
	identity *age.X25519Identity
	token    string
	infra    *infrav1.ElementalCluster
}

func newUploads(t *testing.T) *uploads {
	t.Helper()
	return newUploadsWith(t, func(*server.Options, objectstore.Store) {})
}

// newUploadsWith is newUploads with other options of the server, for that storage.
func newUploadsWith(t *testing.T, change func(*server.Options, objectstore.Store)) *uploads {
	t.Helper()
	u := &uploads{WithT: NewWithT(t), storage: objectstore.New(t)}
	u.harness = start(t, func(o *server.Options) { change(o, u.storage) })
	var err error
	u.identity, err = age.GenerateX25519Identity()
	u.must(err)
	u.secret("s3", map[string]string{"accessKeyID": objectstore.AccessKey, "secretAccessKey": objectstore.SecretKey, "ca.crt": u.storage.Authority})
	u.secret("c-etcd", map[string]string{"tls.crt": "authority", "tls.key": "private"})
	u.token = u.fleet()
	u.infra = u.infraCluster("c", "elsewhere", func(c *infrav1.ElementalCluster) {
		c.Spec.EtcdSnapshots = &infrav1.EtcdSnapshots{
			Destination: &infrav1.EtcdSnapshotDestination{S3: &infrav1.S3Bucket{
				Endpoint: u.storage.Endpoint, Bucket: objectstore.Bucket, CredentialsRef: infrav1.S3CredentialsReference{Name: "s3"},
			}},
			Recipients: []string{u.identity.Recipient().String()},
		}
	})
	u.observed()
	return u
}

func (u *uploads) secret(name string, data map[string]string) {
	u.tb.Helper()
	u.must(u.admin.Create(u.tb.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: name}, StringData: data}))
}

// observed writes what the controller has found at the destination.
func (u *uploads) observed(items ...infrav1.UploadedEtcdSnapshot) {
	u.tb.Helper()
	before := u.infra.DeepCopy()
	u.infra.Status.EtcdSnapshots = &infrav1.UploadedEtcdSnapshots{Items: items, ObservedAt: metav1.NewTime(u.clock.Now())}
	u.must(u.admin.Status().Patch(u.tb.Context(), u.infra, client.MergeFrom(before)))
	u.cachedSoon(u.infra)
}

// member returns a control-plane host that can upload.
func (u *uploads) member(machine string) *agent {
	u.tb.Helper()
	a := u.harness.member(u.token, machine, infrav1.RoleControlPlane)
	hello := enrolRequest().Hello
	hello.Capabilities = append(hello.Capabilities, protocol.CapabilityEtcdSnapshot, protocol.CapabilityEtcdSnapshotUpload,
		protocol.CapabilityEtcdRestore, protocol.CapabilityEtcdSnapshotFetch, protocol.CapabilityEtcdSnapshotRelay)
	u.report(a, protocol.Report{Hello: &hello})
	return a
}

func (u *uploads) report(a *agent, report protocol.Report) {
	u.tb.Helper()
	got := a.report(report)
	u.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	u.cachedSoon(u.host(a.name))
}

// has makes the host report snapshots.
func (u *uploads) has(a *agent, snapshots ...protocol.EtcdSnapshotFacts) {
	u.tb.Helper()
	for i := range snapshots {
		snapshots[i].Cluster = protocol.EtcdCluster{Namespace: u.namespace, Name: "c"}
	}
	u.report(a, protocol.Report{EtcdSnapshots: &protocol.EtcdSnapshotReport{Snapshots: snapshots}})
}

// last records that the host took the snapshot of an hour last, and returns its ID.
func (u *uploads) last(a *agent, hour int) string {
	u.tb.Helper()
	at := metav1.NewTime(time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC))
	u.patchCluster(u.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.EtcdSnapshotRecord = &infrav1.EtcdSnapshotRecord{Last: &infrav1.EtcdSnapshotTaken{ScheduledAt: at, HostName: a.name, TakenAt: at}}
	})
	u.cachedSoon(u.infra)
	return infrav1.EtcdSnapshotID(at)
}

func (u *uploads) ask(a *agent, id string, size int64) answer {
	return a.call(http.MethodPost, protocol.PathEtcdSnapshotUpload, protocol.EtcdSnapshotGrantRequest{ID: id, SizeBytes: size})
}

func (u *uploads) facts(id string) protocol.EtcdSnapshotFacts {
	return protocol.EtcdSnapshotFacts{ID: id, CompletedAt: u.clock.Now(), SizeBytes: 1_000_000, SHA256: strings.Repeat("a", 64)}
}

// The agent's own code takes snapshots of a real etcd and uploads them to a real storage with
// permissions of the real API. What is there decrypts to intact snapshots.
func TestSnapshotsAreUploaded(t *testing.T) {
	u := newUploads(t)
	a := u.member("m1")
	member := etcdmember.New(t)
	member.Put(t, "key", "value")
	store := &snapshot.Store{
		Root: member.Root, Folder: filepath.Join(t.TempDir(), snapshot.Folder), System: durable.OS{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Space: func(string) (int64, int64, error) { return 1 << 40, 1 << 40, nil },
	}
	c := a.client()
	uploader := &upload.Uploader{Source: store, Manager: func() upload.Manager { return hostclient.Snapshots{Client: c} }, Log: slog.New(slog.DiscardHandler)}
	for hour := 1; hour <= 2; hour++ {
		id := u.last(a, hour)
		u.must(store.Take(t.Context(), protocol.EtcdSnapshot{ID: id, Cluster: protocol.EtcdCluster{Namespace: u.namespace, Name: "c"}, Keep: 2}))
		list, err := store.List(t.Context())
		u.must(err)
		u.has(a, list...)
		wanted := a.plan("").Desired.EtcdSnapshotUpload
		u.Expect(wanted).To(HaveValue(Equal(protocol.EtcdSnapshotUpload{ID: id, Recipients: []string{u.identity.Recipient().String()}})))
		object, err := uploader.Upload(t.Context(), *wanted)
		u.must(err)
		u.report(a, protocol.Report{EtcdSnapshotUpload: &protocol.EtcdSnapshotUploadReport{Last: &object}})
		u.Expect(u.host(a.name).Status.EtcdSnapshotUpload.Last).To(HaveValue(Equal(infrav1.HostEtcdSnapshotObject(object))))
		u.Expect(digestOf(string(u.intact(object)))).To(Equal(list[0].SHA256))
		u.observed(infrav1.UploadedEtcdSnapshot{Object: object.Object, ID: id, HostName: a.name})
		u.Expect(a.plan("").Desired.EtcdSnapshotUpload).To(BeNil(), "it is there")
		u.Expect(u.ask(a, id, object.SizeBytes).status).To(Equal(http.StatusNotFound), "it can't be overwritten")
	}
	u.Expect(u.logs.text()).To(ContainSubstring(`"decision":"SnapshotUploadGranted"`))
	u.Expect(u.logs.text()).NotTo(ContainSubstring("X-Amz-Signature"))
}

// A host that copies a snapshot to a folder gets no permission for a bucket, and no connection to one.
func TestThreat100_FolderNeedsNoPermission(t *testing.T) {
	u := newUploads(t)
	a := u.member("m1")
	hello := enrolRequest().Hello
	hello.Capabilities = append(hello.Capabilities, protocol.CapabilityEtcdSnapshot, protocol.CapabilityEtcdSnapshotUpload, protocol.CapabilityEtcdSnapshotFolder,
		protocol.CapabilityEtcdSnapshotRelay)
	u.report(a, protocol.Report{Hello: &hello})
	u.patchCluster(u.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.EtcdSnapshots.Destination = &infrav1.EtcdSnapshotDestination{Folder: &infrav1.EtcdSnapshotFolder{Path: "/mnt/backups"}}
	})
	id := u.last(a, 3)
	u.has(a, u.facts(id))
	u.Expect(a.plan("").Desired.EtcdSnapshotUpload).To(HaveValue(Equal(protocol.EtcdSnapshotUpload{
		ID: id, Recipients: []string{u.identity.Recipient().String()}, Folder: &protocol.EtcdSnapshotFolder{Path: "/mnt/backups", HostName: a.name, Keep: 28},
	})))
	u.Expect(u.ask(a, id, 1_001_500).status).To(Equal(http.StatusNotFound))
	object := protocol.EtcdSnapshotObject{ID: id, Object: "/mnt/backups/0/" + id + "." + a.name + ".tar.age", SizeBytes: 1, SHA256: strings.Repeat("b", 64)}
	u.report(a, protocol.Report{EtcdSnapshotUpload: &protocol.EtcdSnapshotUploadReport{Last: &object}})
	u.Expect(u.host(a.name).Status.EtcdSnapshotUpload.Last).To(HaveValue(Equal(infrav1.HostEtcdSnapshotObject(object))))
}

// intact returns the snapshot in an object, whose digest, which etcd has appended, is right.
func (u *uploads) intact(object protocol.EtcdSnapshotObject) []byte {
	u.tb.Helper()
	content, err := os.ReadFile(filepath.Join(u.storage.Folder, object.Object))
	u.must(err)
	u.Expect(digestOf(string(content))).To(Equal(object.SHA256))
	plain, err := age.Decrypt(bytes.NewReader(content), u.identity)
	u.must(err)
	archive := tar.NewReader(plain)
	for {
		header, err := archive.Next()
		u.must(err)
		if header.Name == object.ID+".db" {
			break
		}
	}
	database, err := io.ReadAll(archive)
	u.must(err)
	n := len(database) - sha256.Size
	sum := sha256.Sum256(database[:n])
	u.Expect(database[n:]).To(Equal(sum[:]))
	return database
}

// A host gets a permission for the snapshot that its plan wants uploaded, with its own name
// in the object's, and for nothing else.
func TestThreat68_OnlyTheWantedSnapshotIsPermitted(t *testing.T) {
	u := newUploads(t)
	a, b := u.member("m1"), u.member("m2")
	id := u.last(a, 3)
	const size = 1_001_500
	u.has(a, u.facts(id), u.facts("20260101T020000Z"))
	u.has(b, u.facts(id))
	got := u.ask(a, id, size)
	u.Expect(got.status).To(Equal(http.StatusOK), got.body)
	u.Expect(got.body).To(ContainSubstring("/" + id + "." + a.name + ".tar.age"))
	u.Expect(got.body).NotTo(ContainSubstring(objectstore.SecretKey))

	refused := func(what string, got answer, status int) {
		u.tb.Helper()
		u.Expect(got.status).To(Equal(status), "%s: %s", what, got.body)
	}
	refused("a former one", u.ask(a, "20260101T020000Z", size), http.StatusNotFound)
	refused("another name", u.ask(a, "../x", size), http.StatusNotFound)
	refused("of another host", u.ask(b, id, size), http.StatusNotFound)
	refused("another size", u.ask(a, id, 1_100_000), http.StatusBadRequest)
	refused("no size", u.ask(a, id, 0), http.StatusBadRequest)
	refused("larger than S3 takes", u.ask(a, id, protocol.MaxUploadBytes+1), http.StatusRequestEntityTooLarge)
	u.pause("c", true)
	refused("paused", u.ask(a, id, size), http.StatusNotFound)
	u.pause("c", false)
	u.Expect(u.ask(a, id, size).status).To(Equal(http.StatusOK))
	u.must(u.admin.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: "s3"}}))
	got = u.ask(a, id, size)
	refused("no credentials", got, http.StatusServiceUnavailable)
	u.Expect(got.body).NotTo(ContainSubstring("s3"), "hosts learn nothing of the management cluster")
	u.patch(a.name, func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing })
	refused("released", u.ask(a, id, size), http.StatusNotFound)
}
