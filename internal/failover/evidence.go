package failover

import (
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
)

// reconnectGrace is how long a host has to be connected again before its earlier
// report counts: it may not have sent a new one yet.
const reconnectGrace = 15 * time.Second

// silentHostDelay is how long the endpoint has to be unreachable if the endpoint host
// does not answer the manager either.
const silentHostDelay = 30 * time.Second

// nodeUpgradeDelay is how long the endpoint has to be unreachable while its host upgrades
// Kubernetes: the API server is replaced meanwhile, with time for a rollback.
const nodeUpgradeDelay = 15 * time.Minute

// evidence summarizes what control-plane hosts report of the endpoint.
type evidence struct {
	// bootstrapped counts bootstrapped control-plane hosts, observers the connected
	// ones among them.
	observers, bootstrapped int
	// reachable names the other hosts that reach the endpoint, sorted.
	reachable []string
	// unreachable names the other hosts that don't reach the endpoint, sorted.
	unreachable []string
	// isConfirmed: one of the latter has confirmed that.
	isConfirmed bool
	// since is the earliest time from which a host reports the endpoint as unreachable.
	since time.Time
	// due is when that has lasted for delay.
	due time.Time
	// delay is how long the endpoint has to be unreachable.
	delay time.Duration
	// veto: the endpoint host reports that its API server is healthy.
	veto bool
	// isSilent: the endpoint host does not answer the manager.
	isSilent bool
	// down is set if the endpoint host reports that its API server does not answer.
	down *infrav1.HostAPIServer
	// awaited names the hosts whose answers to the manager may change the evidence, sorted.
	awaited []string
	// recheckAt is when an answer is overdue, or a host is to be asked again.
	recheckAt time.Time
}

// dead reports whether the evidence says that the endpoint is dead. The endpoint moves
// once that has lasted until due and is confirmed.
func (e evidence) dead() bool { return len(e.unreachable) > 0 && len(e.reachable) == 0 && !e.veto }

func collectEvidence(c Cluster) evidence {
	var e evidence
	isSuspected := len(HostsToAsk(c)) > 0
	var peers []Member
	for _, m := range c.Members {
		if !m.isControlPlane() || !m.Host.IsBootstrapped() {
			continue
		}
		e.bootstrapped++
		isEndpointHost := m.Host.Name == c.endpointHostName()
		if !m.isConnected() {
			e.isSilent = e.isSilent || isEndpointHost && m.isDisconnected()
			continue
		}
		e.observers++
		is := unasked
		if isSuspected {
			var until time.Time
			is, until = c.standing(m)
			e.recheckBy(until)
		}
		if is == awaited {
			e.awaited = append(e.awaited, m.Host.Name)
		}
		switch {
		case isEndpointHost:
			e.addEndpointHost(c, m, is)
		case is.counts():
			peers = append(peers, m)
		}
	}
	e.delay = c.failoverDelay(e.isSilent)
	e.addPeers(c, peers)
	return e
}

// addEndpointHost adds the report of the endpoint host. A healthy API server is no
// veto once the host has lost the endpoint's address.
func (e *evidence) addEndpointHost(c Cluster, m Member, is standing) {
	e.isSilent = is == silent
	switch {
	case !is.counts():
	case m.apiServer() == infrav1.ProbeReachable:
		e.veto = !lostAddress(c, m.Host)
	case m.apiServer() == infrav1.ProbeUnreachable:
		e.down = m.report().APIServer
	}
}

// addPeers adds the reports of the other control-plane hosts.
func (e *evidence) addPeers(c Cluster, peers []Member) {
	for _, m := range peers {
		probe := m.report().Probe
		switch {
		case probe == nil || probe.Endpoint != c.Endpoint():
			// The host has not probed the current endpoint yet.
		case probe.Result == infrav1.ProbeReachable:
			e.reachable = append(e.reachable, m.Host.Name)
		default:
			is, _ := c.standing(m)
			e.addUnreachable(m, is == confirmed)
		}
	}
}

// addUnreachable adds a host that does not reach the endpoint. Once a host has confirmed
// that, the times of the others don't count: their reports may be outdated.
func (e *evidence) addUnreachable(m Member, isConfirmed bool) {
	since, due := m.report().Probe.Since.Time, m.report().Probe.Since.Add(e.delay)
	if connected := m.Host.Status.Connection.Since.Time; connected.After(since) {
		// The report is older than the connection: it counts from the reconnect.
		since, due = connected, connected.Add(max(e.delay, reconnectGrace))
	}
	isFirst := len(e.unreachable) == 0 || isConfirmed && !e.isConfirmed
	e.unreachable = append(e.unreachable, m.Host.Name)
	if e.isConfirmed && !isConfirmed {
		return
	}
	e.isConfirmed = isConfirmed
	if isFirst || since.Before(e.since) {
		e.since = since
	}
	if isFirst || due.Before(e.due) {
		e.due = due
	}
}

// recheckBy has the decision made again at that time or earlier; zero changes nothing.
func (e *evidence) recheckBy(at time.Time) { e.recheckAt = earliest(e.recheckAt, at) }

// earliest returns the earlier time; zero stands for never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// lostAddress reports whether the host reports addresses and the endpoint's is not
// among them.
func lostAddress(c Cluster, host *infrav1.ElementalHost) bool {
	has, known := address.Has(host, c.Infra.Spec.ControlPlaneEndpoint.Host)
	return known && !has
}

// failoverDelay is how long the endpoint has to be unreachable before it moves. isSilent:
// the endpoint host does not answer the manager.
func (c Cluster) failoverDelay(isSilent bool) time.Duration {
	seconds := int32(infrav1.DefaultFailoverAfterSeconds)
	if h := c.policy().Host; h != nil && h.Failover.AfterSeconds != nil {
		seconds = *h.Failover.AfterSeconds
	}
	delay := time.Duration(seconds) * time.Second
	m := c.Member(c.endpointHostName())
	switch {
	case m == nil:
		return delay
	case m.isUpgradingNode():
		return max(delay, nodeUpgradeDelay)
	case isSilent && !m.isExpectedToBeSilent():
		return min(delay, silentHostDelay)
	default:
		return delay
	}
}

// cooldownEnd returns until when the endpoint stays after its last move, so that it
// does not alternate between two hosts with a bad connection.
func (c Cluster) cooldownEnd(delay time.Duration) time.Time {
	const minCooldown = time.Minute
	last := c.LastMove()
	if last == nil {
		return time.Time{}
	}
	return last.StartedAt.Add(max(2*delay, minCooldown))
}

func isManual(c Cluster) bool {
	h := c.policy().Host
	return h != nil && h.Failover.Policy == infrav1.FailoverManual
}
