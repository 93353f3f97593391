package etcdrestore_test

import (
	"context"
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

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/upload"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bucket"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/objectstore"
)

// uploaded is a fixture whose snapshot is in a real storage only, uploaded by a host that is
// gone.
type uploaded struct {
	*fixture

	store    objectstore.Store
	identity *age.X25519Identity
	object   string
}

func newUploaded(t *testing.T) *uploaded {
	t.Helper()
	f := &uploaded{fixture: newFixture(t), store: objectstore.New(t)}
	var err error
	f.identity, err = age.GenerateX25519Identity()
	f.Expect(err).NotTo(HaveOccurred())
	f.secret("s3", map[string]string{"accessKeyID": objectstore.AccessKey, "secretAccessKey": objectstore.SecretKey, "ca.crt": f.store.Authority})
	f.secret("c-etcd", map[string]string{"tls.crt": "authority", "tls.key": "private"})
	f.secret("identity", map[string]string{"identity": f.identity.String()})
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.EtcdSnapshots = &infrav1.EtcdSnapshots{
			Destination: &infrav1.EtcdSnapshotDestination{S3: &infrav1.S3Bucket{
				Endpoint: f.store.Endpoint, Bucket: objectstore.Bucket, CredentialsRef: infrav1.S3CredentialsReference{Name: "s3"},
			}},
			Recipients: []string{f.identity.Recipient().String()},
		}
	})
	f.upload()
	f.Delete(f.restore)
	f.restore = &infrav1.ElementalEtcdRestore{ObjectMeta: f.Meta("from-s3")}
	f.restore.Spec.ClusterName = "c"
	f.restore.Spec.Source.Uploaded = &infrav1.EtcdRestoreUpload{
		HostName: "gone", ID: "2", IdentityRef: infrav1.EtcdRestoreIdentityReference{Name: "identity"},
	}
	f.Create(f.restore)
	return f
}

func (f *uploaded) secret(name string, data map[string]string) {
	f.T.Helper()
	f.Create(&corev1.Secret{ObjectMeta: f.Meta(name), StringData: data})
}

// upload uploads a snapshot as the agent does.
func (f *uploaded) upload() {
	f.T.Helper()
	uploader := &upload.Uploader{Source: f, Manager: func() upload.Manager { return f }, Log: slog.New(slog.DiscardHandler)}
	done, err := uploader.Upload(f.Ctx, protocol.EtcdSnapshotUpload{ID: "2", Recipients: []string{f.identity.Recipient().String()}})
	f.Expect(err).NotTo(HaveOccurred())
	f.object = done.Object
}

// Open is upload.Source.
func (f *uploaded) Open(context.Context, string) (protocol.EtcdSnapshotFacts, *os.File, error) {
	path := filepath.Join(f.T.TempDir(), "db")
	f.Expect(os.WriteFile(path, make([]byte, 1000), 0o600)).To(Succeed())
	file, err := os.Open(path)
	return protocol.EtcdSnapshotFacts{
		ID: "2", Cluster: protocol.EtcdCluster{Namespace: f.Namespace, Name: "c"}, SizeBytes: 1000, SHA256: strings.Repeat("b", 64),
	}, file, err
}

// EtcdSnapshotGrant is upload.Manager.
func (f *uploaded) EtcdSnapshotGrant(ctx context.Context, in protocol.EtcdSnapshotGrantRequest) (protocol.EtcdSnapshotGrant, error) {
	b, err := bucket.Open(ctx, f.Client, f.Namespace, "c", *f.infra.Spec.EtcdSnapshots.Bucket())
	f.Expect(err).NotTo(HaveOccurred())
	defer b.Close()
	name := b.Name(in.ID, "gone")
	grant, err := b.Grant(ctx, name, in.SizeBytes, bucket.FactsOf(infrav1.HostEtcdSnapshot{
		SHA256: strings.Repeat("b", 64), CompletedAt: metav1.NewTime(time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)), Revision: 7,
	}), time.Minute)
	return protocol.EtcdSnapshotGrant{Object: name, URL: grant.URL, Headers: grant.Header, TrustBundle: grant.TrustBundle}, err
}

// message reconciles and returns the message of the refusal.
func (f *uploaded) message() string {
	f.T.Helper()
	f.expect(no, infrav1.RestoreRefusedReason)
	f.Expect(f.restore.Status.Plan).To(BeNil())
	return f.ExpectCondition(f.restore, infrav1.RestoredCondition, no, infrav1.RestoreRefusedReason).Message
}

// The plan shows what the manager has sealed. The host is asked for that, and learns no more
// than its ID and SHA-256 until it asks.
func TestUploaded(t *testing.T) {
	f := newUploaded(t)
	f.expect(no, infrav1.RestoreNotConfirmedReason)
	plan := f.restore.Status.Plan
	f.Expect(plan.HostName).To(Equal("h"))
	f.Expect(plan.Object).To(Equal(f.object))
	f.Expect(plan.Snapshot.SHA256).To(Equal(strings.Repeat("b", 64)))
	f.Expect(plan.Snapshot.Revision).To(Equal(int64(7)))
	f.Expect(plan.Steps).To(ContainElement(ContainSubstring("after 2026-11-24T12:00:00Z is lost")))

	f.confirm()
	f.expect(no, infrav1.RestoreWaitingForHostReason)
	f.Expect(f.restore.Spec.Request.HostName).To(Equal("h"))
	f.Expect(f.operation().EtcdRestore).To(Equal(&protocol.EtcdRestore{
		SnapshotID: "2", SHA256: strings.Repeat("b", 64), Cluster: protocol.EtcdCluster{Namespace: f.Namespace, Name: "c"}, Uploaded: true,
	}))
	f.report(infrav1.OperationRunning, "fetch", "")
	f.expect(no, infrav1.RestoringReason)
	f.report(infrav1.OperationSucceeded, "", "etcd serves the snapshot 2")
	f.expect(yes, infrav1.RestoredReason)
}

// What does not fit is refused with its reason, and looked at again by itself: nothing tells
// when a Secret or the destination changes.
func TestUploadedRefused(t *testing.T) {
	f := newUploaded(t)
	identity := &corev1.Secret{ObjectMeta: f.Meta("identity")}
	set := func(key string) {
		controllertest.Change(f.Fixture, identity, func(s *corev1.Secret) { s.StringData = map[string]string{"identity": key} })
	}
	other, err := age.GenerateX25519Identity()
	f.Expect(err).NotTo(HaveOccurred())
	set(other.String())
	f.Expect(f.message()).To(And(ContainSubstring("the identity does not open it"), Not(ContainSubstring(other.String()))))
	result, err := f.reconciler.Reconcile(f.Ctx, requestOf(f.restore))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(result.RequeueAfter).To(Equal(time.Minute))
	set(f.identity.String())
	f.expect(no, infrav1.RestoreNotConfirmedReason)

	authority := &corev1.Secret{ObjectMeta: f.Meta("c-etcd")}
	controllertest.Change(f.Fixture, authority, func(s *corev1.Secret) { s.StringData = map[string]string{"tls.key": "another"} })
	f.Expect(f.message()).To(ContainSubstring("the seal of object " + f.object + " is wrong"))
	controllertest.Change(f.Fixture, authority, func(s *corev1.Secret) { s.StringData = map[string]string{"tls.crt": "another", "tls.key": "private"} })
	f.Expect(f.message()).To(ContainSubstring("reading the metadata of"), "the folder is that of the authority")
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.EtcdSnapshots.Destination, c.Spec.EtcdSnapshots.Recipients = nil, nil
	})
	f.Expect(f.message()).To(ContainSubstring("no spec.etcdSnapshots.destination"))
	f.Delete(identity)
	f.message()
}
