//go:build embedded && recording

package skew

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/checkouts"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/machines"
)

// recorder records what agents of v0.1.0 and a manager of v0.1.0 say to each other.
type recorder struct {
	*rig

	program, folder string
	machines        *machines.Client
}

// TestRecordTraffic writes the recordings of package traffic anew.
func TestRecordTraffic(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	before, err := checkouts.Of(t.Context(), root(t), checkouts.First)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	r := &recorder{rig: newRig(t, before), folder: t.TempDir()}
	r.program = r.build(before, r.recording(before))
	r.machines = r.machinesOf(func(*corev1.Secret) {})
	r.Expect(r.machines.CreateCluster(t.Context(), cluster)).To(Succeed())
	r.Expect(r.machines.Release(t.Context(), cluster)).To(Succeed())

	stranger := r.start("stranger", "wrong", fleet.Faults{})
	stranger.write("enrol-refused", exchange("POST", protocol.PathEnrol, protocol.ProblemTokenRefused))
	pending := r.start("pending", r.register("manual", infrav1.ApprovalManual), fleet.Faults{})
	pending.write("enrol-pending", exchange("POST", protocol.PathEnrol, `"approved":false`))
	pending.write("plan-pending", exchange("GET", protocol.PathPlan, `"desired"`))

	// Only a bootstrap that takes more than ten seconds reports its progress.
	failing := r.start("failing", r.token, fleet.Faults{FailingBootstraps: 1, SlowBootstraps: time.Minute})
	r.Expect(r.machines.CreateMachine(t.Context(), cluster, "failing")).To(Succeed())
	failing.write("report-running", exchange("POST", protocol.PathReport, `"type":"Bootstrap"`, `"state":"Running"`))
	failing.write("report-failed", exchange("POST", protocol.PathReport, `"state":"Failed"`))

	worker := r.start("worker", r.token, fleet.Faults{})
	worker.write("enrol", exchange("POST", protocol.PathEnrol, `"approved":true`))
	worker.write("plan-idle", exchange("GET", protocol.PathPlan, `"desired"`))
	worker.write("report-hello", exchange("POST", protocol.PathReport, `"hello"`))
	r.life(worker)
	r.withdrawn(worker)
	worker.forget()
}

// machinesOf returns a client for Machines with short bootstrap data, in a Secret that change changes.
func (r *recorder) machinesOf(change func(*corev1.Secret)) *machines.Client {
	admin := interceptor.NewClient(r.admin, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if secret, ok := o.(*corev1.Secret); ok {
				secret.Data["value"] = []byte("#cloud-config\n# recorded\n")
				change(secret)
			}
			return c.Create(ctx, o, opts...)
		},
	})
	return &machines.Client{Admin: admin, Namespace: sites, Cluster: r.management, Progress: shell.NewProgress(os.Stderr)}
}

// life records the life of a Machine, and of its host.
func (r *recorder) life(host *recordedHost) {
	r.t.Helper()
	r.Expect(r.machines.CreateMachine(r.t.Context(), cluster, "m1")).To(Succeed())
	host.write("plan-bootstrap", exchange("GET", protocol.PathPlan, `"type":"Bootstrap"`))
	host.write("bootstrap", exchange("GET", protocol.PathBootstrap, "#cloud-config"))
	host.write("report-succeeded", exchange("POST", protocol.PathReport, `"type":"Bootstrap"`, `"state":"Succeeded"`))
	until := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
	host.patch(func(h *infrav1.ElementalHost) {
		h.Spec.LogRequest = &infrav1.HostLogRequest{ID: "log-1", Operation: infrav1.OperationBootstrap, Until: until}
	})
	host.write("plan-log", exchange("GET", protocol.PathPlan, `"log"`))
	host.write("log", exchange("POST", protocol.PathLog))
	r.end("m1")
	host.write("plan-reset", exchange("GET", protocol.PathPlan, `"type":"Reset"`))
	host.write("report-reset", exchange("POST", protocol.PathReport, `"type":"Reset"`, `"state":"Succeeded"`))
}

// withdrawn records that a host gets no bootstrap data: it is not that of the Machine's cluster.
func (r *recorder) withdrawn(host *recordedHost) {
	r.t.Helper()
	odd := r.machinesOf(func(secret *corev1.Secret) { secret.Labels = nil })
	r.Expect(odd.CreateMachine(r.t.Context(), cluster, "m2")).To(Succeed())
	host.write("bootstrap-refused", exchange("GET", protocol.PathBootstrap, protocol.ProblemNoOperation))
	r.end("m2")
}

// forget records a host that is locked, rejected and deleted.
func (h *recordedHost) forget() {
	h.r.t.Helper()
	h.r.Eventually(func() *infrav1.HostClaim { return h.object().Spec.Claim }).Should(BeNil())
	h.patch(func(host *infrav1.ElementalHost) { host.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} })
	h.write("plan-locked", exchange("GET", protocol.PathPlan, protocol.ProblemLocked))
	h.patch(func(host *infrav1.ElementalHost) { host.Spec.Lock, host.Spec.Approval = nil, infrav1.ApprovalRejected })
	h.reboot()
	h.write("plan-revoked", exchange("GET", protocol.PathPlan, protocol.ProblemRevoked))
	h.r.Expect(h.r.admin.Delete(h.r.t.Context(), h.object())).To(Succeed())
	h.reboot()
	h.write("plan-unknown-host", exchange("GET", protocol.PathPlan, protocol.ProblemUnknownHost))
}
