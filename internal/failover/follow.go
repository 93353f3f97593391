package failover

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
)

const (
	// joining is how long bootstraps that began with the former endpoint may take
	// before it is rejected.
	joining = 5 * time.Minute
	// noticed is how long Cluster API's managers take at most to notice that their
	// connection was rejected and to make another: five probes of 10 s that fail,
	// and a retry after 30 s (clustercache of v1.14), with some to spare.
	noticed = 2 * time.Minute
	// reconnecting is how long is waited for that at most.
	reconnecting = 5 * time.Minute
	// holding is how long a move holds a Machine at most.
	holding = 15 * time.Minute
)

// Progress is how far a move is.
type Progress struct {
	// Remaining names what may still use a former endpoint, also what is offline.
	Remaining []string
	// Complete: nothing that can be reached uses the former endpoint any more.
	Complete bool
	// Reject: the former endpoint's host is to reject connections from now on.
	Reject bool
	// Lift holds the former endpoints, by index, whose rejection is over.
	Lift []int
	// Hold: the former hosts' Machines are to be held.
	Hold bool
	// Next is when that may be another although nothing changed; zero: never.
	Next time.Time
}

// LastMove returns the move that led to the endpoint, or nil if it never moved. It
// is put together anew from spec where status was lost.
func (c Cluster) LastMove() *infrav1.EndpointMove {
	policy, endpoint := c.policy(), c.Infra.Spec.ControlPlaneEndpoint
	// Endpoints that were exchanged before anything used them name no host.
	if len(policy.FormerEndpoints) == 0 || policy.FormerEndpoints[0].HostName == "" {
		return nil
	}
	if s := c.Infra.Status.Endpoint; s != nil && s.LastMove != nil && s.LastMove.To == endpoint.Host && s.LastMove.StartedAt.Equal(&policy.HostRef.ChosenAt) {
		return s.LastMove
	}
	return &infrav1.EndpointMove{
		From: policy.FormerEndpoints[0].Host, To: endpoint.Host, StartedAt: policy.HostRef.ChosenAt, Cause: c.cause(policy.FormerEndpoints[0]),
	}
}

// cause is the likely cause of a move of which only spec tells.
func (c Cluster) cause(former infrav1.FormerEndpoint) infrav1.EndpointMoveCause {
	m := c.Member(former.HostName)
	switch {
	case former.HostName == c.holderName():
		return infrav1.MoveAddressChanged
	case m == nil || m.isLeaving():
		return infrav1.MoveMachineDeleted
	case !former.RejectedSince.IsZero():
		return infrav1.MoveRequested
	default:
		return infrav1.MoveHostDead
	}
}

// Moving reports whether a move is under way.
func (c Cluster) Moving() bool {
	last := c.LastMove()
	return last != nil && last.CompletedAt.IsZero()
}

// Follow judges how far everything has followed the endpoint. pending names what
// the management cluster still has of the former one.
func Follow(c Cluster, pending []string) Progress {
	var p Progress
	if len(c.policy().FormerEndpoints) == 0 {
		p.Complete = true
		return p
	}
	connected := slices.Clone(pending)
	if m := c.Member(c.holderName()); m != nil && m.isNode() && m.says().Workload != c.Endpoint() {
		connected = append(connected, fmt.Sprintf("the workload cluster's own objects (host %s changes them%s)", m.Host.Name, complaint(*m)))
	}
	var offline []string
	for _, m := range c.Members {
		switch {
		case !m.isNode() || c.follows(m):
		case m.isConnected():
			connected = append(connected, "host "+m.Host.Name+complaint(m))
		default:
			offline = append(offline, "host "+m.Host.Name+", which is offline")
		}
	}
	p.Remaining = slices.Concat(connected, offline)
	last := c.LastMove()
	if last == nil {
		p.Complete = len(connected) == 0
		return p
	}
	if last.CompletedAt.IsZero() {
		if p.complete(c, last, len(connected) == 0) {
			p.Complete = true
		} else {
			end := last.StartedAt.Add(holding)
			p.Hold = c.Now.Before(end)
			p.wake(c.Now, end)
		}
	} else {
		p.Complete = true
	}
	p.lift(c)
	return p
}

// follows reports whether the host uses the endpoint. One whose Machine is younger
// than the endpoint was made for it, and need not have said so yet.
func (c Cluster) follows(m Member) bool {
	is := m.says().Kubeconfigs
	if is == c.Endpoint() {
		return true
	}
	return is == "" && m.Machine != nil && m.Machine.CreationTimestamp.After(c.policy().HostRef.ChosenAt.Time)
}

// Uses reports whether a host of the cluster said last that it uses that former
// endpoint.
func (c Cluster) Uses(former infrav1.FormerEndpoint) bool {
	return slices.ContainsFunc(c.Members, func(m Member) bool {
		return m.says().Kubeconfigs == address.HostPort(former.Host, former.Port)
	})
}

func complaint(m Member) string {
	if message := m.says().Message; message != "" {
		return ", which says: " + message
	}
	return ""
}

// complete takes a move through its stages: everything follows; the former host
// rejects connections, where it lives on; Cluster API has noticed.
func (p *Progress) complete(c Cluster, last *infrav1.EndpointMove, followed bool) bool {
	if !followed {
		return false
	}
	former := c.policy().FormerEndpoints[0]
	planned := last.Cause == infrav1.MoveMachineDeleted || last.Cause == infrav1.MoveRequested
	m := c.Member(former.HostName)
	if !planned || former.HostName == c.holderName() || m == nil || !m.isNode() || !m.isConnected() {
		return true
	}
	if former.RejectedSince.IsZero() {
		return p.reject(c, last)
	}
	since := former.RejectedSince.Time
	if end := since.Add(reconnecting); !c.Now.Before(end) {
		return true
	} else if m.says().Rejects != address.HostPort(former.Host, former.Port) {
		p.Remaining = append(p.Remaining, fmt.Sprintf("host %s, which does not reject connections to %s yet%s", m.Host.Name, former.Host, complaint(*m)))
		p.wake(c.Now, end)
		return false
	}
	if c.reconnected(since) {
		return true
	}
	p.Remaining = append(p.Remaining, "Cluster API, which may still be connected to "+former.Host)
	p.wake(c.Now, since.Add(noticed))
	p.wake(c.Now, since.Add(reconnecting))
	return false
}

// reject begins the rejection, once nothing is under way that needs the former
// endpoint. It never completes a move.
func (p *Progress) reject(c Cluster, last *infrav1.EndpointMove) bool {
	end := last.StartedAt.Add(joining)
	for _, m := range c.Members {
		if !c.Now.Before(end) || !m.joins(last.StartedAt) {
			continue
		}
		p.Remaining = append(p.Remaining, fmt.Sprintf("host %s, which is being bootstrapped with data that is older", m.Host.Name))
		p.wake(c.Now, end)
		return false
	}
	p.Reject = true
	return false
}

// joins reports whether the host is being bootstrapped with data that may be older
// than that.
func (m Member) joins(than metav1.Time) bool {
	claim := m.Host.Spec.Claim
	if claim.Phase != infrav1.ClaimBound || !m.isConnected() || (m.Machine != nil && !m.Machine.CreationTimestamp.Before(&than)) {
		return false
	}
	op := m.Host.Operation(infrav1.OperationBootstrap, claim.ID)
	return op != nil && op.State == infrav1.OperationRunning
}

// reconnected reports whether Cluster API has connected anew since then, or can't
// be connected to the former endpoint any more.
func (c Cluster) reconnected(since time.Time) bool {
	probe := meta.FindStatusCondition(c.Cluster.Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition)
	if probe == nil || probe.Status != metav1.ConditionTrue {
		return false
	}
	return probe.LastTransitionTime.After(since) || !c.Now.Before(since.Add(noticed))
}

// lift ends rejections that are not needed any more: those of a move that is
// recorded as complete, unless the host is on its way out; it ends with that then.
// A host that comes back to the cluster must not reject anybody.
func (p *Progress) lift(c Cluster) {
	for i, former := range c.policy().FormerEndpoints {
		if former.RejectedSince.IsZero() || (i == 0 && c.Moving()) {
			continue
		}
		m := c.Member(former.HostName)
		if m != nil && m.Host.Spec.Claim.Phase == infrav1.ClaimBound && m.isLeaving() {
			continue
		}
		p.Lift = append(p.Lift, i)
	}
}

// wake has the progress looked at again at that time, or before.
func (p *Progress) wake(now, at time.Time) {
	if at.After(now) && (p.Next.IsZero() || at.Before(p.Next)) {
		p.Next = at
	}
}
