package failover

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// maxJoinWait is how long the rejection of a former endpoint waits for hosts whose
	// bootstrap data names that endpoint.
	maxJoinWait = 5 * time.Minute
	// reconnectTime is the longest that Cluster API's managers need to notice a rejected
	// connection and to connect anew: five failed probes, 10 s apart, and a retry after
	// 30 s (clustercache of v1.14), plus a margin.
	reconnectTime = 2 * time.Minute
	// maxReconnectWait is how long a move waits for Cluster API to connect anew.
	maxReconnectWait = 5 * time.Minute
	// maxHookTime is how long a move keeps the hooks of former hosts' Machines.
	maxHookTime = 15 * time.Minute
)

// Progress says how far a move is.
type Progress struct {
	// Remaining names what may still use a former endpoint, including offline hosts.
	Remaining []string
	// Complete: no connected host and no object uses the former endpoint, or the time to
	// wait for Cluster API is over.
	Complete bool
	// StartRejecting: the former endpoint's host is to reject connections from now on.
	StartRejecting bool
	// StopRejecting lists the former endpoints, by index, whose hosts are to accept
	// connections again.
	StopRejecting []int
	// KeepHooks: the Machines of former hosts keep the endpoint's hook.
	KeepHooks bool
	// RecheckAt is when the progress may differ without a change; zero: never.
	RecheckAt time.Time
}

// LastMove returns the move that led to the current endpoint, or nil if it never moved.
// It is reconstructed from spec if status was lost.
func (c Cluster) LastMove() *infrav1.EndpointMove {
	policy, endpoint := c.policy(), c.Infra.Spec.ControlPlaneEndpoint
	if moved := c.Infra.EndpointMovedAt(); moved.IsZero() {
		return nil
	}
	if s := c.Infra.Status.Endpoint; s != nil && s.LastMove != nil && s.LastMove.To == endpoint.Host && s.LastMove.StartedAt.Equal(&policy.HostRef.ChosenAt) {
		return s.LastMove
	}
	return &infrav1.EndpointMove{
		From: policy.FormerEndpoints[0].Host, To: endpoint.Host, StartedAt: policy.HostRef.ChosenAt, Cause: c.likelyCause(policy.FormerEndpoints[0]),
	}
}

// likelyCause returns the likely cause of a move that is known from spec alone.
func (c Cluster) likelyCause(former infrav1.FormerEndpoint) infrav1.EndpointMoveCause {
	m := c.Member(former.HostName)
	switch {
	case former.HostName == c.endpointHostName():
		return infrav1.MoveAddressChanged
	case m == nil || m.isLeaving():
		return infrav1.MoveMachineDeleted
	case !former.RejectedSince.IsZero():
		return infrav1.MoveRequested
	default:
		return infrav1.MoveHostDead
	}
}

// Moving reports whether a move is in progress.
func (c Cluster) Moving() bool {
	last := c.LastMove()
	return last != nil && last.CompletedAt.IsZero()
}

// AssessProgress determines what still uses a former endpoint, and the next step of
// the move. pending names the objects of the management cluster that still do.
func AssessProgress(c Cluster, pending []string) Progress {
	var p Progress
	if len(c.policy().FormerEndpoints) == 0 {
		p.Complete = true
		return p
	}
	connected := slices.Clone(pending)
	if m := c.Member(c.endpointHostName()); m != nil && m.Host.IsBootstrapped() && m.report().Workload != c.Endpoint() {
		connected = append(connected, fmt.Sprintf("the workload cluster's own objects (host %s changes them%s)", m.Host.Name, problem(*m)))
	}
	var offline []string
	for _, m := range c.Members {
		switch {
		case !m.Host.IsBootstrapped() || m.Host.IsHalted() || c.usesCurrent(m): // a halted one serves nothing, and its kubelet is stopped
		case m.isConnected():
			connected = append(connected, "host "+m.Host.Name+problem(m))
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
		if p.advance(c, last, len(connected) == 0) {
			p.Complete = true
		} else {
			end := last.StartedAt.Add(maxHookTime)
			p.KeepHooks = c.Now.Before(end)
			p.recheckAt(c.Now, end)
		}
	} else {
		p.Complete = true
	}
	p.findRejectionsToStop(c)
	return p
}

// usesCurrent reports whether the host uses the current endpoint. A host whose Machine
// is younger than the endpoint was bootstrapped with it, and may not have reported yet.
func (c Cluster) usesCurrent(m Member) bool {
	reported := m.report().Kubeconfigs
	if reported == c.Endpoint() {
		return true
	}
	return reported == "" && m.Machine != nil && m.Machine.CreationTimestamp.After(c.policy().HostRef.ChosenAt.Time)
}

// Uses reports whether a host of the cluster uses the former endpoint, by its last
// report.
func (c Cluster) Uses(former infrav1.FormerEndpoint) bool {
	return slices.ContainsFunc(c.Members, func(m Member) bool { return m.report().Kubeconfigs == former.HostPort() })
}

// problem returns the host's message about the endpoint, as the end of a sentence.
func problem(m Member) string {
	if message := m.report().Message; message != "" {
		return ", which says: " + message
	}
	return ""
}

// advance reports whether the move is complete, and sets the next step if not. The
// stages: everything uses the new endpoint; a former host that is still
// bootstrapped and connected rejects connections; Cluster API has connected anew.
func (p *Progress) advance(c Cluster, last *infrav1.EndpointMove, allFollowed bool) bool {
	if !allFollowed {
		return false
	}
	former := c.policy().FormerEndpoints[0]
	planned := last.Cause == infrav1.MoveMachineDeleted || last.Cause == infrav1.MoveRequested
	m := c.Member(former.HostName)
	if !planned || former.HostName == c.endpointHostName() || m == nil || !m.Host.IsBootstrapped() || m.Host.IsHalted() || !m.isConnected() {
		return true
	}
	if former.RejectedSince.IsZero() {
		p.startRejecting(c, last)
		return false
	}
	since := former.RejectedSince.Time
	if end := since.Add(maxReconnectWait); !c.Now.Before(end) {
		return true
	} else if m.report().Rejects != former.HostPort() {
		p.Remaining = append(p.Remaining, fmt.Sprintf("host %s, which does not reject connections to %s yet%s", m.Host.Name, former.Host, problem(*m)))
		p.recheckAt(c.Now, end)
		return false
	}
	if c.hasReconnected(since) {
		return true
	}
	p.Remaining = append(p.Remaining, "Cluster API, which may still be connected to "+former.Host)
	p.recheckAt(c.Now, since.Add(reconnectTime))
	p.recheckAt(c.Now, since.Add(maxReconnectWait))
	return false
}

// startRejecting starts the rejection once no bootstrap needs the former endpoint.
func (p *Progress) startRejecting(c Cluster, last *infrav1.EndpointMove) {
	end := last.StartedAt.Add(maxJoinWait)
	for _, m := range c.Members {
		if !c.Now.Before(end) || !m.isJoining(last.StartedAt) {
			continue
		}
		p.Remaining = append(p.Remaining, fmt.Sprintf("host %s, which is being bootstrapped with data that is older", m.Host.Name))
		p.recheckAt(c.Now, end)
		return
	}
	p.StartRejecting = true
}

// isJoining reports whether the host is being bootstrapped with data that may be older
// than the move.
func (m Member) isJoining(moveStartedAt metav1.Time) bool {
	claim := m.Host.Spec.Claim
	if claim.Phase != infrav1.ClaimBound || !m.isConnected() || (m.Machine != nil && !m.Machine.CreationTimestamp.Before(&moveStartedAt)) {
		return false
	}
	op := m.Host.Operation(infrav1.OperationBootstrap, claim.ID)
	return op != nil && op.State == infrav1.OperationRunning
}

// hasReconnected reports whether Cluster API has connected anew since then, or had
// enough time to notice that its connection was rejected.
func (c Cluster) hasReconnected(since time.Time) bool {
	probe := meta.FindStatusCondition(c.Cluster.Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition)
	if probe == nil || probe.Status != metav1.ConditionTrue {
		return false
	}
	return probe.LastTransitionTime.After(since) || !c.Now.Before(since.Add(reconnectTime))
}

// findRejectionsToStop finds the rejections of completed moves. A host that is leaving
// rejects connections until it is gone. A host that returns to the cluster must not.
func (p *Progress) findRejectionsToStop(c Cluster) {
	for i, former := range c.policy().FormerEndpoints {
		if former.RejectedSince.IsZero() || (i == 0 && c.Moving()) {
			continue
		}
		m := c.Member(former.HostName)
		if m != nil && m.Host.Spec.Claim.Phase == infrav1.ClaimBound && m.isLeaving() {
			continue
		}
		p.StopRejecting = append(p.StopRejecting, i)
	}
}

// recheckAt has the progress assessed again at that time or earlier.
func (p *Progress) recheckAt(now, at time.Time) {
	if at.After(now) && (p.RecheckAt.IsZero() || at.Before(p.RecheckAt)) {
		p.RecheckAt = at
	}
}
