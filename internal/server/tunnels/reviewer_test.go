package tunnels_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/tunnels"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// reviewed is a Reviewer with one host, whose plan asks for a tunnel while wanted is true.
type reviewed struct {
	*tunnels.Reviewer

	t        *testing.T
	table    *tunnels.Table
	client   client.Client
	wanted   bool
	boot     string
	enqueued int
}

func (r *reviewed) WantsTunnel(context.Context, *infrav1.ElementalHost) (bool, error) {
	return r.wanted, nil
}

func (r *reviewed) Boot(types.NamespacedName) string { return r.boot }

func newReviewed(t *testing.T) *reviewed {
	t.Helper()
	r := &reviewed{t: t, wanted: true, boot: holder.Boot}
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "uid"}}
	host.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: holder.KeyFingerprint}
	host.Spec.Claim = &infrav1.HostClaim{ID: holder.ClaimID, ClusterName: "c"}
	scheme := runtime.NewScheme()
	must(t, infrav1.AddToScheme(scheme))
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(host).WithStatusSubresource(host)
	for field, values := range index.OfHosts() {
		builder.WithIndex(host, field, values)
	}
	r.client = builder.Build()
	now := clock.RealClock{}
	log, err := audit.New(now, prometheus.NewRegistry())
	must(t, err)
	timers := timer.NewQueue(now)
	r.table = tunnels.NewTable(now, func(host types.NamespacedName) { r.StateChanged(host) })
	r.Reviewer = tunnels.NewReviewer(tunnels.ReviewerOptions{
		Table: r.table, Plans: r, Boots: r, Audit: log, Clock: now, Timers: timers, Grace: time.Minute,
		Hosts:   hoststore.New(hoststore.Options{Client: r.client, APIReader: r.client, Clock: now, Timers: timers, Recorder: events.NewFakeRecorder(10)}),
		Enqueue: func(types.NamespacedName) { r.enqueued++ },
	})
	r.Start()
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open opens a tunnel and reports whether the host has it.
func (r *reviewed) open() bool {
	r.t.Helper()
	manager, agent := net.Pipe()
	go func() {
		_ = tunnel.Serve(context.WithoutCancel(r.t.Context()), agent, func(context.Context, string) (net.Conn, error) { return nil, tunnel.ErrForbidden })
	}()
	host := &infrav1.ElementalHost{}
	must(r.t, r.client.Get(r.t.Context(), named("a"), host))
	r.Open(r.t.Context(), host, holder, manager)
	return r.connected()
}

func (r *reviewed) connected() bool {
	synctest.Wait()
	state, _ := r.table.State(named("a"))
	return state.Connected
}

// change changes the host without an event.
func (r *reviewed) change(f func(*infrav1.ElementalHost)) {
	r.t.Helper()
	host := &infrav1.ElementalHost{}
	must(r.t, r.client.Get(r.t.Context(), named("a"), host))
	f(host)
	must(r.t, r.client.Update(r.t.Context(), host))
}

// Nobody may have seen the host between its claims, and the next cluster may want its tunnel
// too.
func TestThreat10_TunnelOfAFormerClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewed(t)
		defer r.table.Close()
		if !r.open() {
			t.Fatal("the host has no tunnel")
		}
		r.Review(t.Context(), named("a"))
		if !r.connected() {
			t.Fatal("the tunnel ended although nothing has changed")
		}
		r.change(func(host *infrav1.ElementalHost) { host.Spec.Claim.ID, host.Spec.Claim.ClusterName = "next", "d" })
		r.Review(t.Context(), named("a"))
		if r.connected() {
			t.Error("the tunnel has outlived the claim")
		}
	})
}

// What changes while the tunnel is set up, after the check, counts.
func TestOpenReviewsAgain(t *testing.T) {
	for name, change := range map[string]func(*reviewed){
		"plan": func(r *reviewed) { r.wanted = false },
		"boot": func(r *reviewed) { r.boot = "next" },
		"key": func(r *reviewed) {
			r.change(func(host *infrav1.ElementalHost) { host.Spec.Identity.KeyFingerprint = "other" })
		},
		"claim": func(r *reviewed) { r.change(func(host *infrav1.ElementalHost) { host.Spec.Claim.ID = "next" }) },
		"lock": func(r *reviewed) {
			r.change(func(host *infrav1.ElementalHost) { host.Spec.Lock = &infrav1.HostLock{} })
		},
		"fence": func(r *reviewed) {
			r.change(func(host *infrav1.ElementalHost) { host.Spec.Fence = &infrav1.HostFence{} })
		},
		"refusal": func(r *reviewed) {
			r.change(func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalRejected })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReviewed(t)
				defer r.table.Close()
				must(t, r.Check(t.Context(), named("a"), holder))
				change(r)
				if err := r.Check(t.Context(), named("a"), holder); err == nil {
					t.Error("Check permits it")
				}
				if r.open() {
					t.Error("the host has a tunnel")
				}
			})
		})
	}
}

// A tunnel does not end because the host's polls are unknown: it has not polled again since
// its session was forgotten.
func TestUnknownBootEndsNoTunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewed(t)
		defer r.table.Close()
		r.open()
		r.boot = ""
		r.Review(t.Context(), named("a"))
		if !r.connected() {
			t.Error("the tunnel ended")
		}
	})
}

func TestDeletedHostIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewed(t)
		defer r.table.Close()
		r.open()
		must(t, r.client.Delete(t.Context(), &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}))
		r.Review(t.Context(), named("a"))
		if _, known := r.table.State(named("a")); known {
			t.Error("the host has a state")
		}
	})
}
