package tunnels

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// pollWait is when a host is to retry that has not polled yet.
const pollWait = 2 * time.Second

// Plans knows which plans ask for a tunnel.
type Plans interface {
	WantsTunnel(ctx context.Context, host *infrav1.ElementalHost) (bool, error)
}

// Boots knows which boot of a host polls.
type Boots interface {
	// Boot returns a blank string if none has polled yet.
	Boot(host types.NamespacedName) string
}

// ReviewerOptions are the options of a Reviewer.
type ReviewerOptions struct {
	// Table has to call the Reviewer's StateChanged.
	Table  *Table
	Hosts  *hoststore.Store
	Plans  Plans
	Boots  Boots
	Audit  *audit.Log
	Clock  clock.PassiveClock
	Timers *timer.Queue
	// Grace is how long after Start hosts may be without the tunnel that they had with
	// another process.
	Grace time.Duration
	// Enqueue is called when status.tunnel of a host may have to be written.
	Enqueue func(types.NamespacedName)
}

// Reviewer decides which hosts may have a tunnel, and ends the tunnels of those that no
// longer may. It is safe for concurrent use.
type Reviewer struct {
	table   *Table
	hosts   *hoststore.Store
	plans   Plans
	boots   Boots
	audit   *audit.Log
	clock   clock.PassiveClock
	timers  *timer.Queue
	grace   time.Duration
	enqueue func(types.NamespacedName)
	started time.Time
}

// NewReviewer returns a Reviewer.
func NewReviewer(o ReviewerOptions) *Reviewer {
	return &Reviewer{
		table: o.Table, hosts: o.Hosts, plans: o.Plans, boots: o.Boots, audit: o.Audit, clock: o.Clock, timers: o.Timers,
		grace: o.Grace, enqueue: o.Enqueue,
	}
}

// Start begins the grace period of hosts that had a tunnel with another process. Call it
// once, before events are handled.
func (r *Reviewer) Start() { r.started = r.clock.Now() }

// Check returns the problem of a host that may not open a tunnel now, or nil.
func (r *Reviewer) Check(ctx context.Context, host types.NamespacedName, holder Holder) error {
	if err := r.refusal(ctx, host, holder); err != nil {
		return err
	}
	if r.boots.Boot(host) == "" {
		return problem.Busy(pollWait)
	}
	return nil
}

// Open makes a connection, which a host has upgraded after Check, the host's tunnel. It owns
// the connection.
func (r *Reviewer) Open(ctx context.Context, host *infrav1.ElementalHost, holder Holder, conn net.Conn) {
	key := client.ObjectKeyFromObject(host)
	session, err := r.table.Open(ctx, key, holder, conn)
	if err != nil {
		// Any host can cause this, so it is not logged by default.
		ctrl.LoggerFrom(ctx).V(4).Info("Opening a tunnel failed", "ElementalHost", klog.KObj(host), "reason", err.Error())
		return
	}
	// The log needs little of the host, which would stay in memory as long as the tunnel.
	named := &infrav1.ElementalHost{}
	named.Namespace, named.Name, named.UID, named.Spec.HostID = host.Namespace, host.Name, host.UID, host.Spec.HostID
	subject := string(host.UID)
	r.audit.RecordRepeatable(ctx, audit.TunnelOpened, subject, named, "keyFingerprint", holder.KeyFingerprint, "boot", holder.Boot)
	lasting := context.WithoutCancel(ctx)
	session.OnEnd(func(err error) {
		if !errors.Is(err, ErrDraining) {
			r.audit.RecordRepeatable(lasting, audit.TunnelEnded, subject+kindOf(err), named, "reason", err.Error())
		}
	})
	// Something may have changed since Check.
	r.Review(ctx, key)
}

// kindOf returns the same text for ends of the same kind, so that the log has each once.
func kindOf(err error) string {
	if refused, ok := errors.AsType[*problem.Error](err); ok {
		return refused.Title
	}
	return ""
}

// Review ends the host's tunnel if the host may no longer have it, and notes whether the
// host is asked for one. It is called whenever the host's plan may have changed, the host
// was deleted or another of its boots polls. A host that can have no tunnel costs a look-up.
func (r *Reviewer) Review(ctx context.Context, key types.NamespacedName) {
	ctx = context.WithoutCancel(ctx) // it must not fail because a caller has hung up
	r.table.Review(key, func(holder Holder) error { return r.refusal(ctx, key, holder) })
	host, err := r.hosts.Get(ctx, key)
	if errors.Is(err, hoststore.ErrGone) {
		r.table.Forget(key, problem.UnknownHost())
		return
	}
	var wanted bool
	if err == nil {
		wanted, err = r.plans.WantsTunnel(ctx, host)
	}
	switch {
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "Reviewing a tunnel failed", "ElementalHost", klog.KRef(key.Namespace, key.Name))
	case !wanted:
		r.table.Forget(key, notWanted())
		if host.Status.Tunnel != nil {
			r.enqueue(key)
		}
	case r.table.Expect(key):
		if state, ok := r.table.State(key); ok {
			r.timers.At(r.disconnectedAt(state, host.Status.Tunnel), func() { r.enqueue(key) })
		}
	}
}

// refusal returns why the host may not have a tunnel of this holder, or nil.
func (r *Reviewer) refusal(ctx context.Context, host types.NamespacedName, holder Holder) error {
	found, role, err := r.hosts.ByKey(ctx, holder.KeyFingerprint, host)
	switch {
	case errors.Is(err, hoststore.ErrAmbiguousKey):
		return problem.UnknownHost()
	case err != nil:
		return err
	case found == nil || client.ObjectKeyFromObject(found) != host:
		return problem.UnknownHost()
	case found.Spec.Approval == infrav1.ApprovalRejected:
		return problem.Revoked()
	case found.Spec.Lock != nil:
		return problem.Locked()
	case found.Spec.Fence != nil:
		return problem.Fenced()
	case role == hoststore.KeyFormer:
		return problem.StaleGeneration()
	}
	wanted, err := r.plans.WantsTunnel(ctx, found)
	switch {
	case err != nil:
		return err
	case !wanted || found.Spec.Claim.ID != holder.ClaimID:
		return notWanted()
	}
	if boot := r.boots.Boot(host); boot != "" && boot != holder.Boot {
		return problem.New(http.StatusConflict, problem.Blank, "Another boot of the host asks for its plan")
	}
	return nil
}

func notWanted() error {
	return problem.New(http.StatusForbidden, problem.Blank, "The host's plan asks for no tunnel")
}
