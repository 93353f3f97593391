//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	"filippo.io/age"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/objectstore"
)

var _ = Describe("A cluster whose only control-plane machine is gone", Ordered, Label("etcd-machine"), func() {
	w := workload{lab.Cluster{Name: "moved", ControlPlanes: 1, Workers: 1}}
	var (
		dead         *engine.Host
		controlPlane infrav1.ElementalHost
		nodes        map[string]nodeIdentity
		uploaded     infrav1.UploadedEtcdSnapshot
		store        objectstore.Store
	)

	// What a BeforeAll starts runs until the last spec.
	BeforeAll(func() { store = objectstore.Listen(GinkgoTB(), hosts.MachineAddress()) })

	It("has snapshots in S3", func(ctx context.Context) {
		step("moved: 1+1 running", func() {
			w.create(ctx)
			w.expectRunning(ctx, 2)
		})
		nodes = w.nodes(ctx)
		w.remember(ctx, "before")
		controlPlane = w.controlPlaneHost(ctx)
		dead = boxOf(&controlPlane)
		step("moved: first snapshot uploaded", func() { uploaded = w.uploadSnapshots(ctx, store, infrav1.EtcdSnapshotSchedule{}, time.Time{}) })
	}, SpecTimeout(25*time.Minute))

	It("comes back on another machine", func(ctx context.Context) {
		w.remember(ctx, "lost")
		spare, free := freeHost(ctx)
		Expect(dead.Kill(ctx)).To(Succeed())
		step("moved: another machine is the control-plane host", func() { becomes(ctx, spare, free, &controlPlane) })
		planned := w.planRebuild(ctx, "machine", infrav1.EtcdRestoreSource{Uploaded: &infrav1.EtcdRestoreUpload{
			HostName: uploaded.HostName, ID: uploaded.ID, IdentityRef: infrav1.EtcdRestoreIdentityReference{Name: w.Name + "-identity"},
		}})
		began := time.Now()
		step("moved: control plane set up on the other machine, data back", func() { w.confirmRestore(ctx, planned) })
		w.expectServed(ctx, began)
		w.expectRestored(ctx, nodes, "lost")
		Expect(w.endpoint(ctx).host).To(Equal(controlPlane.Name))
	}, SpecTimeout(restoreTimeout+10*time.Minute))

	It("is not disturbed by the former machine, which can be used again", func(ctx context.Context) {
		step("moved: the former machine has started", func() {
			Expect(dead.Start(ctx)).To(Succeed())
			Expect(dead.WaitBooted(ctx)).To(Succeed())
		})
		step("moved: the manager does not know the former machine", func() {
			Eventually(func() string { return connection(ctx, dead) }).WithTimeout(3 * time.Minute).Should(Equal("Unknown"))
		})
		w.expectNodes(ctx, 2)
		Expect(w.nodes(ctx)).To(Equal(nodes))
		step("moved: the former machine is reset", func() {
			shell(ctx, dead, "systemctl stop elemental-agent")
			_, err := dead.Exec(ctx, "elemental-agent", "reset", "--yes", "--force")
			fmt.Printf("  the command ended with %v\n", err) // it reboots the host
			Eventually(func() (string, error) { return dead.Exec(ctx, "elemental-agent", "status") }).
				WithTimeout(resetTimeout).Should(MatchRegexp(`Clean: +yes`))
		})
		step("moved: the former machine enrols as another host", func() {
			shell(ctx, dead, "systemctl stop elemental-agent && rm -r "+agentState)
			Expect(hosts.Enrol(ctx, lab.Enrolment{Name: "lab", Hosts: []*engine.Host{dead}})).To(Succeed())
		})
	}, SpecTimeout(15*time.Minute))

	It("is deleted afterwards", func(ctx context.Context) {
		step("moved: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(20*time.Minute))
})

// uploadSnapshots has snapshots taken and uploaded to a storage, and returns the first one of after a time. Secret NAME-identity opens it.
func (w workload) uploadSnapshots(ctx context.Context, store objectstore.Store, schedule infrav1.EtcdSnapshotSchedule, after time.Time) (first infrav1.UploadedEtcdSnapshot) {
	GinkgoHelper()
	identity, err := age.GenerateX25519Identity()
	Expect(err).NotTo(HaveOccurred())
	w.secret(ctx, "s3", map[string]string{"accessKeyID": objectstore.AccessKey, "secretAccessKey": objectstore.SecretKey, "ca.crt": store.Authority})
	w.secret(ctx, "identity", map[string]string{"identity": identity.String()})
	infra := w.infra(ctx)
	before := infra.DeepCopy()
	infra.Spec.EtcdSnapshots = &infrav1.EtcdSnapshots{
		Schedule: schedule,
		Destination: &infrav1.EtcdSnapshotDestination{S3: &infrav1.S3Bucket{
			Endpoint: store.Endpoint, Bucket: objectstore.Bucket, CredentialsRef: infrav1.S3CredentialsReference{Name: w.Name + "-s3"},
		}},
		Recipients: []string{identity.Recipient().String()},
	}
	Expect(management.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())
	Eventually(func(g Gomega) {
		infra := w.infra(ctx)
		g.Expect(infra.Status.EtcdSnapshots).NotTo(BeNil(), "%+v", infra.Status.Conditions)
		g.Expect(infra.Status.EtcdSnapshots.Items).NotTo(BeEmpty(), "%+v", infra.Status.Conditions)
		first = infra.Status.EtcdSnapshots.Items[0]
		g.Expect(scheduledAt(first)).To(BeTemporally(">", after))
	}).WithTimeout(15 * time.Minute).Should(Succeed())
	return first
}

// scheduledAt returns the time of the schedule that a snapshot is of. It is not taken before.
func scheduledAt(snapshot infrav1.UploadedEtcdSnapshot) time.Time {
	GinkgoHelper()
	at, err := time.Parse("20060102T150405Z", snapshot.ID)
	Expect(err).NotTo(HaveOccurred())
	return at
}

// secret creates a Secret whose name is the cluster's with a suffix.
func (w workload) secret(ctx context.Context, suffix string, data map[string]string) {
	GinkgoHelper()
	Expect(management.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace(), Name: w.Name + "-" + suffix}, StringData: data})).To(Succeed())
}

// becomes has the machine of a free host become a host whose machine is dead, as `kubectl elemental replace` does.
func becomes(ctx context.Context, spare *engine.Host, free, host *infrav1.ElementalHost) {
	GinkgoHelper()
	key := free.Spec.Identity.KeyFingerprint
	Eventually(func(g Gomega) {
		g.Expect(management.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
		g.Expect(host.IsConnected()).To(BeFalse())
	}).WithTimeout(3 * time.Minute).Should(Succeed())
	situation, err := change.Look(ctx, management, host)
	Expect(err).NotTo(HaveOccurred())
	plan, err := change.Replace(situation, free)
	Expect(err).NotTo(HaveOccurred())
	fmt.Printf("  %s\n", strings.Join(plan.Effects, "\n  "))
	Expect(plan.Apply(ctx, management, false)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(management.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
		g.Expect(host.Spec.Identity.KeyFingerprint).To(Equal(key))
		g.Expect(hasAddress(host, spare.Address)).To(BeTrue())
		g.Expect(host.IsConnected()).To(BeTrue())
	}).WithTimeout(3 * time.Minute).Should(Succeed())
}
