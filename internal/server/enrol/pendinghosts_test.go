package enrol

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// pendingHost returns a host that waits for approval.
func pendingHost(name, registration string, reason infrav1.PendingReason) *infrav1.ElementalHost {
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name}}
	host.Spec.Approval, host.Spec.PendingReason = infrav1.ApprovalPending, reason
	host.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: name, Generation: 1}
	if registration != "" {
		host.Spec.RegistrationRef = &infrav1.LocalReference{Name: registration}
	}
	return host
}

func limitedRegistration(name string, limit int32) *infrav1.ElementalRegistration {
	r := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name}}
	r.Spec.MaxPendingHosts = limit
	return r
}

func newPendingFixture(t *testing.T) (*Enroller, *events.FakeRecorder) {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for field, values := range index.OfHosts() {
		builder.WithIndex(&infrav1.ElementalHost{}, field, values)
	}
	c, clock, recorder := builder.Build(), clocktesting.NewFakeClock(time.Unix(0, 0)), events.NewFakeRecorder(10)
	log, err := audit.New(clock, prometheus.NewRegistry())
	g.Expect(err).NotTo(HaveOccurred())
	hosts := hoststore.New(hoststore.Options{Client: c, APIReader: c, Clock: clock, Timers: timer.NewQueue(clock), Recorder: recorder})
	return &Enroller{
		hosts: hosts, audit: log, recorder: recorder, pending: &pendingHosts{hosts: hosts, creating: map[pendingKey]int{}},
	}, recorder
}

func expectPendingLimit(g *WithT, err error) {
	g.THelper()
	g.Expect(reasonOf(err)).To(Equal(tooManyPendingHosts))
	var p *problem.Error
	g.Expect(errors.As(err, &p)).To(BeTrue())
	g.Expect(p.RetryAfter).To(Equal(pendingRetry))
}

func TestPendingLimitCountsHostsBeingCreated(t *testing.T) {
	g := NewWithT(t)
	e, recorder := newPendingFixture(t)
	registration := limitedRegistration("south", 2)
	g.Expect(e.hosts.Create(t.Context(), pendingHost("existing", "south", ""))).To(Succeed())
	g.Expect(e.hosts.Create(t.Context(), pendingHost("other", "north", ""))).To(Succeed())
	reserve := func(ctx context.Context, name string) (func(), error) {
		return e.reserve(ctx, pendingHost(name, "south", ""), "south", registration)
	}
	release, err := reserve(t.Context(), "second")
	g.Expect(err).NotTo(HaveOccurred())
	for range 2 {
		refused, err := reserve(t.Context(), "third")
		expectPendingLimit(g, err)
		refused()
	}
	g.Expect(recorder.Events).To(Receive(HavePrefix("Warning TooManyPendingHosts")))
	g.Expect(recorder.Events).NotTo(Receive(), "the Event is not repeated within ten minutes")

	approved := pendingHost("approved", "south", "")
	approved.Spec.Approval = infrav1.ApprovalApproved
	releaseApproved, err := e.reserve(t.Context(), approved, "south", registration)
	g.Expect(err).NotTo(HaveOccurred(), "an approved host does not count")
	releaseApproved()

	release()
	release, err = reserve(t.Context(), "third")
	g.Expect(err).NotTo(HaveOccurred(), "the creation of the second one failed")
	release()
	g.Expect(e.pending.creating).To(BeEmpty())
}

func TestPendingLimitOfReadoptedHosts(t *testing.T) {
	g := NewWithT(t)
	e, _ := newPendingFixture(t)
	low, high := limitedRegistration("low", 1), limitedRegistration("high", 2)
	readopted := func(name string) *infrav1.ElementalHost { return pendingHost(name, "", infrav1.PendingReadopted) }
	g.Expect(e.hosts.Create(t.Context(), readopted("first"))).To(Succeed())
	_, err := e.reserve(t.Context(), readopted("second"), index.ReadoptedHosts, low)
	expectPendingLimit(g, err)
	_, err = e.reserve(t.Context(), readopted("second"), index.ReadoptedHosts, low, high)
	g.Expect(err).NotTo(HaveOccurred(), "the highest limit counts")
	_, err = e.reserve(t.Context(), readopted("third"), index.ReadoptedHosts, low, high)
	expectPendingLimit(g, err)
}

// Re-adopted hosts, which need no token, use up no place of hosts that have one.
func TestThreat45_ReadoptedHostsTakeNoPlaceOfInvitedOnes(t *testing.T) {
	g := NewWithT(t)
	e, _ := newPendingFixture(t)
	registration := limitedRegistration("south", 1)
	g.Expect(e.hosts.Create(t.Context(), pendingHost("stranger", "south", infrav1.PendingReadopted))).To(Succeed())
	_, err := e.reserve(t.Context(), pendingHost("another", "south", infrav1.PendingReadopted), index.ReadoptedHosts, registration)
	expectPendingLimit(g, err)
	for _, reason := range []infrav1.PendingReason{"", infrav1.PendingReturned} {
		release, err := e.reserve(t.Context(), pendingHost("invited", "south", reason), "south", registration)
		g.Expect(err).NotTo(HaveOccurred(), "a host with a token, also if it was enrolled before")
		release()
	}
	g.Expect(e.pending.creating).To(BeEmpty())
}
