package failover

import (
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
)

// settling is how long a host has to be connected again before what it said
// earlier counts: it may not have reported yet what is the case now.
const settling = 15 * time.Second

// evidence is what the control-plane hosts say of the endpoint.
type evidence struct {
	// observers counts control-plane hosts that are connected, nodes those that
	// are up at all.
	observers, nodes int
	// reachable names the other hosts that reach the endpoint, in order.
	reachable []string
	// unreachable names the other hosts that don't, in order.
	unreachable []string
	// since is when the first of them began to say so, without a break.
	since time.Time
	// due is when that has lasted for as long as the policy says.
	due time.Time
	// veto reports that the endpoint's host says that its API server is well.
	veto bool
	// down is set where the endpoint's host says that its API server does not
	// answer.
	down *infrav1.HostAPIServer
}

// dead reports whether the endpoint is judged to be dead, if that lasts.
func (e evidence) dead() bool { return len(e.unreachable) > 0 && len(e.reachable) == 0 && !e.veto }

func gather(c Cluster) evidence {
	var e evidence
	for _, m := range c.Members {
		if !m.isControlPlane() || !m.isNode() {
			continue
		}
		e.nodes++
		if !m.isConnected() {
			continue
		}
		e.observers++
		if m.Host.Name == c.holderName() {
			e.own(c, m)
			continue
		}
		e.peer(c, m)
	}
	return e
}

// own hears the endpoint's host. What its API server says is no veto once the
// host has lost the address.
func (e *evidence) own(c Cluster, m Member) {
	switch m.apiServer() {
	case infrav1.ProbeReachable:
		e.veto = !lostAddress(c, m.Host)
	case infrav1.ProbeUnreachable:
		e.down = m.says().APIServer
	}
}

func (e *evidence) peer(c Cluster, m Member) {
	probe := m.says().Probe
	if probe == nil || probe.Endpoint != c.Endpoint() {
		return // it has not yet heard of the endpoint that is
	}
	if probe.Result == infrav1.ProbeReachable {
		e.reachable = append(e.reachable, m.Host.Name)
		return
	}
	connected := m.Host.Status.Connection.Since.Time
	since, due := probe.Since.Time, probe.Since.Add(after(c))
	if connected.After(since) {
		// Said before it was away: it counts from its return.
		since, due = connected, connected.Add(max(after(c), settling))
	}
	e.unreachable = append(e.unreachable, m.Host.Name)
	if len(e.unreachable) == 1 || since.Before(e.since) {
		e.since = since
	}
	if len(e.unreachable) == 1 || due.Before(e.due) {
		e.due = due
	}
}

// lostAddress reports whether the host says that it has addresses, and that the
// endpoint's is none of them.
func lostAddress(c Cluster, host *infrav1.ElementalHost) bool {
	has, known := address.Has(host, c.Infra.Spec.ControlPlaneEndpoint.Host)
	return known && !has
}

// after is how long an endpoint has to be unreachable.
func after(c Cluster) time.Duration {
	seconds := int32(infrav1.DefaultFailoverAfterSeconds)
	if h := c.policy().Host; h != nil && h.Failover.AfterSeconds != nil {
		seconds = *h.Failover.AfterSeconds
	}
	return time.Duration(seconds) * time.Second
}

// damped is until when the endpoint stays after a move that is not long ago, so
// that two hosts with a bad line don't toss it between them.
func damped(c Cluster) time.Time {
	const least = time.Minute
	last := c.LastMove()
	if last == nil {
		return time.Time{}
	}
	return last.StartedAt.Add(max(2*after(c), least))
}

func manual(c Cluster) bool {
	h := c.policy().Host
	return h != nil && h.Failover.Policy == infrav1.FailoverManual
}
