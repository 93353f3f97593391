package snapshotupload_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bucket"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/snapshotupload"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotrelay"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/objectstore"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

// fixture is a cluster with hourly snapshots that are uploaded to a real storage.
type fixture struct {
	*controllertest.Fixture
	store      objectstore.Store
	cluster    *clusterv1.Cluster
	infra      *infrav1.ElementalCluster
	host       *infrav1.ElementalHost
	reconciler *snapshotupload.Reconciler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env), store: objectstore.New(t)}
	f.secret("s3", map[string]string{"accessKeyID": objectstore.AccessKey, "secretAccessKey": objectstore.SecretKey, "ca.crt": f.store.Authority})
	f.secret("c-etcd", map[string]string{"tls.crt": "authority"})
	f.cluster, f.infra = f.Cluster("c", func(_ *clusterv1.Cluster, i *infrav1.ElementalCluster) {
		i.Spec.EtcdSnapshots = &infrav1.EtcdSnapshots{
			Schedule:  infrav1.EtcdSnapshotSchedule{IntervalSeconds: new(int32(3600))},
			Retention: infrav1.EtcdSnapshotRetention{OffHosts: new(int32(2))},
			Destination: &infrav1.EtcdSnapshotDestination{S3: &infrav1.S3Bucket{
				Endpoint: f.store.Endpoint, Bucket: objectstore.Bucket, CredentialsRef: infrav1.S3CredentialsReference{Name: "s3"},
			}},
			Recipients: []string{"age1" + strings.Repeat("q", 58)},
		}
	})
	f.host = f.Host("a", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "id", ClusterName: "c", MachineName: "a", Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
		h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{string(protocol.CapabilityEtcdSnapshotUpload)}}
		h.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionConnected, Since: metav1.NewTime(f.Clock.Now())}
	})
	f.reconciler = &snapshotupload.Reconciler{Client: f.Client, APIReader: f.Client, Recorder: f.Recorder, Clock: f.Clock}
	return f
}

func (f *fixture) secret(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: f.Meta(name), StringData: data}
	f.Create(s)
	return s
}

func (f *fixture) reconcile() ctrl.Result {
	f.T.Helper()
	result, err := f.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.infra)})
	f.Expect(err).NotTo(HaveOccurred())
	f.Refresh(f.infra)
	return result
}

func (f *fixture) condition(status metav1.ConditionStatus, reason string) string {
	f.T.Helper()
	return f.ExpectCondition(f.infra, infrav1.EtcdSnapshotsUploadedCondition, status, reason).Message
}

// taken records that the host took the snapshot of an hour, now.
func (f *fixture) taken(hour int) string {
	f.T.Helper()
	at := metav1.NewTime(time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC))
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.EtcdSnapshotRecord = &infrav1.EtcdSnapshotRecord{Last: &infrav1.EtcdSnapshotTaken{
			ScheduledAt: at, HostName: "a", TakenAt: metav1.NewTime(f.Clock.Now()),
		}}
	})
	return infrav1.EtcdSnapshotID(at)
}

// uploaded uploads a snapshot as the host does, and returns the name of the object.
func (f *fixture) uploaded(id string) string {
	f.T.Helper()
	b, err := bucket.Open(f.T.Context(), f.Client, f.infra.Namespace, "c", *f.infra.Spec.EtcdSnapshots.Bucket())
	f.Expect(err).NotTo(HaveOccurred())
	defer b.Close()
	grant, err := b.Grant(f.T.Context(), b.Name(id, "a"), 6, bucket.FactsOf(infrav1.HostEtcdSnapshot{
		SHA256: strings.Repeat("a", 64), Revision: 7, KubernetesVersion: "v1.36.3", EtcdVersion: "3.6.5",
	}), time.Minute)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(f.store.Put(f.T, grant.URL, grant.Header, "cipher")).To(Succeed())
	return b.Name(id, "a")
}

// objects are the snapshots at the destination.
func (f *fixture) objects() []string {
	f.T.Helper()
	found, err := filepath.Glob(filepath.Join(f.store.Folder, "*", "*"))
	f.Expect(err).NotTo(HaveOccurred())
	for i := range found {
		found[i], _, _ = strings.Cut(filepath.Base(found[i]), ".")
	}
	return found
}

func (f *fixture) listed() []string {
	var ids []string
	for _, item := range f.infra.Status.EtcdSnapshots.Items {
		ids = append(ids, item.ID)
	}
	return ids
}

func TestUploads(t *testing.T) {
	f := newFixture(t)
	f.reconcile()
	f.Expect(f.condition(no, infrav1.EtcdUploadPendingReason)).To(Equal("No snapshot was taken yet"))
	f.Expect(f.infra.Status.EtcdSnapshots).NotTo(BeNil(), "the plan waits for that")
	first := f.taken(1)
	f.reconcile()
	f.Expect(f.condition(no, infrav1.EtcdUploadPendingReason)).To(Equal("Host a uploads snapshot " + first))
	f.Expect(f.Events()).To(BeEmpty())

	object := f.uploaded(first)
	f.Report(f.host, func(s *infrav1.ElementalHostStatus) {
		s.EtcdSnapshotUpload = &infrav1.HostEtcdSnapshotUpload{Last: &infrav1.HostEtcdSnapshotObject{
			ID: first, Object: object, SizeBytes: 6, SHA256: strings.Repeat("b", 64),
		}}
	})
	f.reconcile()
	f.Expect(f.condition(yes, infrav1.EtcdSnapshotUploadedReason)).To(HaveSuffix("as " + object))
	f.Expect(f.infra.Status.EtcdSnapshots.Items).To(ConsistOf(And(
		HaveField("Object", object), HaveField("ID", first), HaveField("HostName", "a"), HaveField("SizeBytes", int64(6)),
		HaveField("SHA256", strings.Repeat("b", 64)), HaveField("SnapshotSHA256", strings.Repeat("a", 64)), HaveField("Revision", int64(7)),
		HaveField("KubernetesVersion", "v1.36.3"), HaveField("EtcdVersion", "3.6.5"))))
	f.Expect(f.Events()).To(ConsistOf(ContainSubstring("Host a has uploaded snapshot %s of etcd as %s, 6 bytes", first, object)))
	f.Client.Forget()
	f.reconcile()
	f.Expect(f.Client.Writes()).To(BeEmpty(), "nothing has changed")

	second := f.taken(2)
	f.reconcile()
	f.condition(yes, infrav1.EtcdSnapshotUploadedReason)
	f.Clock.Step(time.Hour)
	f.reconcile()
	f.Expect(f.condition(no, infrav1.EtcdUploadOverdueReason)).To(ContainSubstring("host a has not uploaded it yet"))
	f.Expect(f.Events()).To(ConsistOf(ContainSubstring("is overdue")))
	f.Report(f.host, func(s *infrav1.ElementalHostStatus) {
		s.EtcdSnapshotUpload.Failure = &infrav1.HostEtcdSnapshotFailure{ID: second, Message: "no route to host"}
	})
	f.reconcile()
	f.Expect(f.condition(no, infrav1.EtcdUploadFailedReason)).To(ContainSubstring("no route to host"))
	f.uploaded(second)
	f.reconcile()
	f.condition(yes, infrav1.EtcdSnapshotUploadedReason)

	f.uploaded(f.taken(3))
	f.reconcile()
	f.condition(yes, infrav1.EtcdSnapshotUploadedReason)
	f.Expect(f.objects()).To(ConsistOf("20260101T020000Z", "20260101T030000Z"), "two are kept")
	f.Expect(f.listed()).To(Equal([]string{"20260101T030000Z", "20260101T020000Z"}))

	// The status is lost, as by a move: everything but the report of the host is found again.
	items := f.infra.Status.EtcdSnapshots.Items
	controllertest.ChangeStatus(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Status.EtcdSnapshots, c.Status.Conditions = nil, nil })
	f.Events()
	f.reconcile()
	f.Expect(f.infra.Status.EtcdSnapshots.Items).To(Equal(items))
	f.Expect(f.Events()).To(BeEmpty())

	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.EtcdSnapshots.Destination, c.Spec.EtcdSnapshots.Recipients, c.Spec.EtcdSnapshots.Retention.OffHosts = nil, nil, nil
	})
	f.reconcile()
	f.Expect(f.infra.Status.EtcdSnapshots).To(BeNil())
	f.Expect(meta.FindStatusCondition(f.infra.Status.Conditions, infrav1.EtcdSnapshotsUploadedCondition)).To(BeNil())
	f.Expect(f.objects()).To(HaveLen(2), "what is there stays")
}

// A destination that fails is shown with its reason, and the list stays.
func TestUnusableDestination(t *testing.T) {
	f := newFixture(t)
	f.uploaded(f.taken(1))
	f.reconcile()
	credentials := &corev1.Secret{ObjectMeta: f.Meta("s3")}
	controllertest.Change(f.Fixture, credentials, func(s *corev1.Secret) { s.StringData = map[string]string{"secretAccessKey": "wrong"} })
	after := f.reconcile().RequeueAfter
	f.Expect(f.condition(no, infrav1.DestinationUnusableReason)).To(ContainSubstring("SignatureDoesNotMatch"))
	f.Expect(f.listed()).To(Equal([]string{"20260101T010000Z"}))
	f.Expect(after).To(Equal(2 * time.Minute))
	f.Expect(f.Events()).To(ConsistOf(ContainSubstring("DestinationUnusable")))
	f.Client.Forget()
	f.reconcile()
	f.Expect(f.Client.Writes()).To(BeEmpty(), "the same failure is not written again")
	f.Delete(credentials)
	f.reconcile()
	f.Expect(f.condition(no, infrav1.DestinationUnusableReason)).To(ContainSubstring("there is no Secret s3"))
}

// A route through the manager needs its permission; what is there is listed all the same.
func TestRouteThroughTheManager(t *testing.T) {
	f := newFixture(t)
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.EtcdSnapshots.Destination.Route = infrav1.EtcdSnapshotRouteManager
	})
	f.uploaded(f.taken(1))
	f.reconcile()
	f.Expect(f.condition(no, infrav1.DestinationUnusableReason)).To(ContainSubstring("--snapshot-relay-endpoints"))
	f.Expect(f.listed()).To(Equal([]string{"20260101T010000Z"}))
	f.reconciler.Relays = snapshotrelay.Endpoints{strings.TrimPrefix(f.infra.Spec.EtcdSnapshots.Destination.S3.Endpoint, "https://")}
	f.reconcile()
	f.condition(yes, infrav1.EtcdSnapshotUploadedReason)
}

// What is in a folder is what the host of each snapshot has reported.
func TestThreat100_Folder(t *testing.T) {
	f := newFixture(t)
	f.uploaded(f.taken(1))
	f.reconcile()
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.EtcdSnapshots.Destination = &infrav1.EtcdSnapshotDestination{Folder: &infrav1.EtcdSnapshotFolder{Path: "/mnt/backups"}}
	})
	f.reconcile()
	f.Expect(f.listed()).To(BeEmpty(), "the bucket is no longer the destination")
	f.Expect(f.objects()).To(HaveLen(1), "what is there stays")
	f.Expect(f.condition(no, infrav1.EtcdUploadPendingReason)).To(ContainSubstring("20260101T010000Z"))

	report := func(id, object string) {
		f.Report(f.host, func(s *infrav1.ElementalHostStatus) {
			s.EtcdSnapshots = &infrav1.HostEtcdSnapshots{Items: []infrav1.HostEtcdSnapshot{{
				ID: id, SHA256: strings.Repeat("a", 64), Revision: 7, KubernetesVersion: "v1.36.3", EtcdVersion: "3.6.5",
			}}}
			s.EtcdSnapshotUpload = &infrav1.HostEtcdSnapshotUpload{Last: &infrav1.HostEtcdSnapshotObject{
				ID: id, Object: object, SizeBytes: 6, SHA256: strings.Repeat("b", 64),
			}}
		})
		f.reconcile()
	}
	for what, object := range map[string]string{
		"elsewhere":             "/mnt/other/0123456789abcdef/20260101T010000Z.a.tar.age",
		"in the folder":         "/mnt/backups/20260101T010000Z.a.tar.age",
		"outside of the folder": "/mnt/backups/../x/20260101T010000Z.a.tar.age",
		"of another host":       "/mnt/backups/0123456789abcdef/20260101T010000Z.b.tar.age",
		"of another time":       "/mnt/backups/0123456789abcdef/20260101T000000Z.a.tar.age",
	} {
		report("20260101T010000Z", object)
		f.Expect(f.listed()).To(BeEmpty(), what)
	}
	report("20260101T000000Z", "/mnt/backups/0123456789abcdef/20260101T000000Z.a.tar.age")
	f.Expect(f.listed()).To(BeEmpty(), "it is not the last one")

	f.Events()
	for hour := 1; hour <= 3; hour++ {
		id := f.taken(hour)
		object := "/mnt/backups/0123456789abcdef/" + id + ".a.tar.age"
		report(id, object)
		f.Expect(f.condition(yes, infrav1.EtcdSnapshotUploadedReason)).To(HaveSuffix("as " + object))
	}
	f.Expect(f.Events()).To(HaveLen(3))
	f.Expect(f.listed()).To(Equal([]string{"20260101T030000Z", "20260101T020000Z"}), "two are kept there")
	f.Expect(f.infra.Status.EtcdSnapshots.Items[0]).To(And(
		HaveField("HostName", "a"), HaveField("SizeBytes", int64(6)), HaveField("SHA256", strings.Repeat("b", 64)),
		HaveField("SnapshotSHA256", strings.Repeat("a", 64)), HaveField("Revision", int64(7)),
		HaveField("KubernetesVersion", "v1.36.3"), HaveField("EtcdVersion", "3.6.5")))
	f.Client.Forget()
	f.reconcile()
	f.Expect(f.Client.Writes()).To(BeEmpty(), "nothing has changed")

	f.taken(4)
	f.Clock.Step(time.Hour)
	f.reconcile()
	f.Expect(f.condition(no, infrav1.EtcdUploadOverdueReason)).To(ContainSubstring("has an agent that can't copy snapshots to a folder"))
}

// While a move has paused the cluster, the source removes nothing.
func TestPaused(t *testing.T) {
	f := newFixture(t)
	for hour := range 3 {
		f.uploaded(fmt.Sprintf("20260101T%02d0000Z", hour))
	}
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	f.reconcile()
	f.Expect(f.objects()).To(HaveLen(3))
	f.Expect(f.infra.Status.EtcdSnapshots).To(BeNil())
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	f.reconcile()
	f.Expect(f.objects()).To(HaveLen(2))
	f.Expect(cmp.Compare(f.listed()[0], f.listed()[1])).To(Equal(1))
}
