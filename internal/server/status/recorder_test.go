package status

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/session"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

const grace = time.Minute

// fixture is a Recorder with one host, whose queue no worker empties unless a test calls
// Work.
type fixture struct {
	*Recorder

	g       *WithT
	client  client.Client
	clock   *clocktesting.FakeClock
	key     types.NamespacedName
	patches int
	// failures is how many writes fail.
	failures int
}

// noTunnels leaves status.tunnel as it is.
type noTunnels struct{}

func (noTunnels) Status(_ context.Context, host *infrav1.ElementalHost) (*infrav1.HostTunnel, error) {
	return host.Status.Tunnel, nil
}

// noCluster is a Clusters that knows no cluster. excused is its answer whether an endpoint
// explains failures.
type noCluster struct{ excused bool }

func (noCluster) InfraCluster(context.Context, *infrav1.ElementalHost) (*infrav1.ElementalCluster, error) {
	return nil, nil
}

func (c noCluster) EndpointExplainsFailure(context.Context, *infrav1.ElementalHost) (bool, error) {
	return c.excused, nil
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{g: NewWithT(t), clock: clocktesting.NewFakeClock(time.Unix(0, 0)), key: types.NamespacedName{Namespace: "edge", Name: "host-1"}}
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name}}
	host.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "key", Generation: 1}
	host.Spec.Approval = infrav1.ApprovalApproved
	host.Spec.Claim = &infrav1.HostClaim{ID: "c1", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound}
	scheme := runtime.NewScheme()
	f.g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	f.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(host).WithStatusSubresource(host).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			f.patches++
			if f.patches <= f.failures {
				return errors.New("the API server is overloaded")
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}).Build()
	timers, queue := timer.NewQueue(f.clock), NewQueue()
	t.Cleanup(queue.ShutDown)
	sessions, err := session.New(session.Options{Clock: f.clock, Grace: grace, Timers: timers, Enqueue: queue.Add, Metrics: prometheus.NewRegistry()})
	f.g.Expect(err).NotTo(HaveOccurred())
	hosts := hoststore.New(hoststore.Options{Client: f.client, APIReader: f.client, Clock: f.clock, Timers: timers, Recorder: events.NewFakeRecorder(100)})
	f.Recorder, err = NewRecorder(Options{
		Hosts: hosts, Sessions: sessions, Budget: session.NewWriteBudget(f.clock), Clusters: noCluster{}, Tunnels: noTunnels{}, Queue: queue,
		Clock: f.clock, Metrics: prometheus.NewRegistry(),
	})
	f.g.Expect(err).NotTo(HaveOccurred())
	return f
}

// stored returns the host from the API server.
func (f *fixture) stored() *infrav1.ElementalHost {
	host := &infrav1.ElementalHost{}
	f.g.Expect(f.client.Get(context.Background(), f.key, host)).To(Succeed())
	return host
}

// change writes the host's spec.
func (f *fixture) change(change func(*infrav1.ElementalHost)) {
	host := f.stored()
	change(host)
	f.g.Expect(f.client.Update(context.Background(), host)).To(Succeed())
}

func TestWorkRetriesAFailedWrite(t *testing.T) {
	f := newFixture(t)
	f.failures = 2
	_, _ = f.sessions.Open(f.key, "")
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Work(t.Context())
	}()
	f.g.Eventually(func() *infrav1.HostConnection { return f.stored().Status.Connection }, time.Minute).Should(HaveField("State", infrav1.ConnectionConnected))
	f.queue.ShutDownWithDrain()
	<-done
	f.g.Expect(f.patches).To(Equal(3))
	f.g.Expect(f.queue.NumRequeues(f.key)).To(BeZero())
}

func TestSyncForgetsTheSessionOfADeletedHost(t *testing.T) {
	f := newFixture(t)
	_, _ = f.sessions.Open(f.key, "")
	f.g.Expect(f.client.Delete(t.Context(), f.stored())).To(Succeed())
	f.g.Expect(f.syncHost(t.Context(), f.key)).To(MatchError(hoststore.ErrGone))
	connected, _ := f.sessions.State(f.key)
	f.g.Expect(connected).To(BeFalse())
}

func TestSyncDoesNotDisconnectAHostThatNeverConnected(t *testing.T) {
	f := newFixture(t)
	f.sessions.Expect(f.key)
	f.clock.Step(grace)
	f.g.Expect(f.syncHost(t.Context(), f.key)).To(Succeed())
	f.g.Expect(f.stored().Status.Connection).To(BeNil())
	f.g.Expect(f.patches).To(BeZero())
}

// Strangers that were re-adopted come and go. Their connection is written as often as their
// write budget allows, and that of other hosts at once.
func TestThreat44_ConnectionsOfStrangers(t *testing.T) {
	for _, c := range []struct {
		name     string
		approval infrav1.Approval
		reason   infrav1.PendingReason
		at       time.Duration
	}{
		{"re-adopted", infrav1.ApprovalPending, infrav1.PendingReadopted, 2 * time.Hour},
		{"invited", infrav1.ApprovalPending, "", 0},
		{"approved", infrav1.ApprovalApproved, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.change(func(host *infrav1.ElementalHost) {
				host.Spec.Approval, host.Spec.PendingReason, host.Spec.Claim = c.approval, c.reason, nil
			})
			f.budget.Spend(f.key, session.ClassOf(f.stored()), 1<<20)
			_, _ = f.sessions.Open(f.key, "")
			f.g.Expect(f.syncHost(t.Context(), f.key)).To(Succeed())
			if c.at > 0 {
				f.g.Expect(f.patches).To(BeZero())
				f.clock.Step(c.at)
				f.g.Expect(f.syncHost(t.Context(), f.key)).To(Succeed())
			}
			f.g.Expect(f.stored().Status.Connection).To(HaveField("State", infrav1.ConnectionConnected))
		})
	}
}

func TestSyncDropsProgressOfAWithdrawnOperation(t *testing.T) {
	f := newFixture(t)
	running := protocol.Report{Operations: []protocol.OperationReport{{Type: protocol.OperationBootstrap, ID: "c1", State: protocol.StateRunning, Step: "files"}}}
	f.g.Expect(f.RecordReport(t.Context(), f.key, "key", &running)).To(Succeed())
	f.change(func(host *infrav1.ElementalHost) { host.Spec.Claim = nil })
	f.clock.Step(30 * time.Second)
	_, due := f.sessions.DueProgress(f.key)
	f.g.Expect(due).To(BeTrue())
	f.g.Expect(f.syncHost(t.Context(), f.key)).To(Succeed())
	f.g.Expect(f.stored().Status.Operations).To(BeEmpty())
	_, due = f.sessions.DueProgress(f.key)
	f.g.Expect(due).To(BeFalse(), "it is not tried again")
}

// The host may be rejected, or bound to another machine, after the caller was
// authenticated.
func TestReportOfAKeyThatWasReplacedIsRefused(t *testing.T) {
	report := protocol.Report{Hello: &protocol.Hello{AgentVersion: "v1"}}
	for name, change := range map[string]func(*infrav1.ElementalHost){
		"rejected":  func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalRejected },
		"other key": func(host *infrav1.ElementalHost) { host.Spec.Identity.KeyFingerprint = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.change(change)
			f.g.Expect(f.RecordReport(t.Context(), f.key, "key", &report)).To(HaveField("Status", http.StatusUnauthorized))
			f.g.Expect(f.patches).To(BeZero())
		})
	}
}

// Of several operations in a report, one that the host does not have refuses the report as
// a whole.
func TestRefusedReportWritesNothing(t *testing.T) {
	f := newFixture(t)
	report := protocol.Report{
		Hello: &protocol.Hello{AgentVersion: "v1"},
		Operations: []protocol.OperationReport{
			{Type: protocol.OperationBootstrap, ID: "c1", State: protocol.StateSucceeded}, {Type: protocol.OperationReset, ID: "c0", State: protocol.StateSucceeded},
		},
	}
	f.g.Expect(f.RecordReport(t.Context(), f.key, "key", &report)).To(HaveField("Status", http.StatusConflict))
	f.g.Expect(f.patches).To(BeZero())
	report.Operations = report.Operations[:1]
	f.g.Expect(f.RecordReport(t.Context(), f.key, "key", &report)).To(Succeed())
	f.g.Expect(f.stored().Status.Operations).To(HaveLen(1))
	f.g.Expect(f.stored().Status.Agent.Version).To(Equal("v1"))
}

// A bootstrap that failed because of the cluster's endpoint is recorded, but does not count
// towards a quarantine of the host.
func TestFailuresThatTheEndpointExplainsDoNotCount(t *testing.T) {
	f := newFixture(t)
	failed := func(id string) {
		t.Helper()
		host := f.stored()
		host.Spec.Claim.ID = id
		f.g.Expect(f.client.Update(t.Context(), host)).To(Succeed())
		f.g.Expect(f.RecordReport(t.Context(), f.key, "key", &protocol.Report{Operations: []protocol.OperationReport{
			{Type: protocol.OperationBootstrap, ID: id, State: protocol.StateFailed},
		}})).To(Succeed())
		f.g.Expect(f.stored().Operation(infrav1.OperationBootstrap, id).State).To(Equal(infrav1.OperationFailed))
	}
	failed("1")
	f.g.Expect(f.stored().Status.Failures.Consecutive).To(BeEquivalentTo(1))
	f.clusters = noCluster{excused: true}
	failed("2")
	f.g.Expect(f.stored().Status.Failures).To(HaveValue(And(HaveField("Consecutive", BeEquivalentTo(1)), HaveField("LastOperationID", "1"))))
	f.clusters = noCluster{}
	failed("3")
	f.g.Expect(f.stored().Status.Failures.Consecutive).To(BeEquivalentTo(2))
}
