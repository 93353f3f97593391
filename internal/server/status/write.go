package status

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/session"
)

// urgency says whether a write may be refused.
type urgency int

const (
	// ifAllowed: the write is refused if the write budget does not allow it.
	ifAllowed urgency = iota
	// alwaysWrite: the write is only counted.
	alwaysWrite
)

// write lets change set facts in a host's status. It cuts them to the limit of a status and
// writes them within the write budget, or returns a problem that says when to try again.
func (r *Recorder) write(ctx context.Context, key types.NamespacedName, when urgency, change func(*infrav1.ElementalHost) error) (*infrav1.ElementalHost, error) {
	var factsCut bool
	after, err := r.hosts.UpdateStatus(ctx, key, func(host *infrav1.ElementalHost) error {
		before := host.Status.DeepCopy()
		if err := change(host); err != nil {
			return err
		}
		size, cut := hoststatus.Fit(host, metav1.NewTime(r.clock.Now()))
		factsCut = cut && host.Spec.Approval != infrav1.ApprovalApproved
		if equality.Semantic.DeepEqual(*before, host.Status) {
			return nil
		}
		class := session.ClassOf(host)
		if when == alwaysWrite {
			r.budget.Spend(key, class, size)
			return nil
		}
		if after, ok := r.budget.Take(key, class, size); !ok {
			r.limited.WithLabelValues(string(class)).Inc()
			return problem.TooManyRequests(after)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if factsCut {
		r.sessions.FactsCut(key)
	}
	return after, nil
}

// AllowReport reports whether a report of the host is worth reading now: not one of a host
// that nobody has approved while the write budget refuses its writes. Otherwise many such
// hosts keep the manager busy with reports that it can't write. Approved hosts report much
// that causes no write, such as progress.
func (r *Recorder) AllowReport(host *infrav1.ElementalHost) (after time.Duration, ok bool) {
	class := session.ClassOf(host)
	if class == session.ClassApproved {
		return 0, true
	}
	after = r.budget.UntilAllowed(client.ObjectKeyFromObject(host), class)
	if after > 0 {
		r.limited.WithLabelValues(string(class)).Inc()
	}
	return after, after == 0
}

// mayWrite reports whether the write budget allows a write of deferred facts now, and whether
// a change of the connection may be written. Such a change does not wait for the budget,
// because it is rare and all others depend on it. Nothing depends on that of a re-adopted host,
// which may be one of many strangers that come and go all the time. If anything has to wait,
// the host is enqueued again when the budget allows it.
func (r *Recorder) mayWrite(ctx context.Context, key types.NamespacedName) (facts, connection bool) {
	host, err := r.hosts.Get(ctx, key)
	if err != nil {
		return true, true // the write returns the error
	}
	class := session.ClassOf(host)
	after := r.budget.UntilAllowed(key, class)
	if after == 0 {
		return true, true
	}
	r.limited.WithLabelValues(string(class)).Inc()
	r.sessions.EnqueueAfter(key, after)
	return false, class != session.ClassReadopted
}
