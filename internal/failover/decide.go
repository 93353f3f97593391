package failover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
)

// maxCandidateWait is how long the deletion of the endpoint's Machine waits for
// another host to become a candidate.
const maxCandidateWait = 5 * time.Minute

const timeFormat = "2006-01-02T15:04:05Z"

// Move is a move of the endpoint that is to start.
type Move struct {
	To      *infrav1.ElementalHost
	Address string
	Cause   infrav1.EndpointMoveCause
}

// Decision says whether the endpoint moves, and why.
type Decision struct {
	// Move is nil if the endpoint stays where it is.
	Move *Move
	// Ready, Reason and Message are for the condition ControlPlaneEndpointReady.
	Ready           bool
	Reason, Message string
	// UnreachableSince is since when a connected control-plane host reports the endpoint,
	// or its own API server behind the endpoint, as unreachable; zero if a host reaches
	// the endpoint or no host reports.
	UnreachableSince time.Time
	// RefusedRequest says why a requested move is impossible. The request is to be
	// removed then.
	RefusedRequest string
	// HookRemovalReason says why the endpoint's Machine, which is being deleted, loses its
	// hook although the endpoint did not move.
	HookRemovalReason string
	// RecheckAt is when the decision may differ without a change; zero: never.
	RecheckAt time.Time
}

// Decide decides which host's address the endpoint is to be. The hosts that HostsToAsk
// returns must have been asked.
func Decide(c Cluster) Decision {
	e := collectEvidence(c)
	d := describeEndpoint(c, e)
	// Each of them reports whether the decision is final.
	for _, decide := range []func(Cluster, evidence, *Decision) bool{onHostLeaving, onAddressChanged, onMoveRequested, onHostDead} {
		if decide(c, e, &d) {
			break
		}
	}
	d.RecheckAt = earliest(d.RecheckAt, e.recheckAt)
	return d
}

// describeEndpoint describes the endpoint's state, before any move.
func describeEndpoint(c Cluster, e evidence) Decision {
	d := Decision{Ready: true, Reason: infrav1.EndpointFromHostReason, Message: "The address of host " + c.endpointHostName()}
	unreachable := func(since time.Time, format string, args ...any) Decision {
		return Decision{Reason: infrav1.EndpointUnreachableReason, UnreachableSince: since,
			Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case e.dead() && e.isSilent:
		return unreachable(e.since, "%s has not answered %s since %s, and host %s does not answer the manager",
			c.Endpoint(), JoinFirst(e.unreachable, ", "), formatTime(e.since), c.endpointHostName())
	case e.dead():
		return unreachable(e.since, "%s has not answered %s since %s", c.Endpoint(), JoinFirst(e.unreachable, ", "), formatTime(e.since))
	case len(e.unreachable) > 0 && len(e.reachable) == 0 && slices.Contains(e.awaited, c.endpointHostName()):
		return unreachable(e.since, "%s has not answered %s since %s; host %s was asked whether its API server is well",
			c.Endpoint(), JoinFirst(e.unreachable, ", "), formatTime(e.since), c.endpointHostName())
	case len(e.unreachable) > 0 && len(e.reachable) == 0:
		return unreachable(e.since, "%s has not answered %s since %s, but host %s is connected and says that its API server is well, "+
			"so the endpoint stays; look at the network between them",
			c.Endpoint(), JoinFirst(e.unreachable, ", "), formatTime(e.since), c.endpointHostName())
	case e.down != nil && len(e.reachable) == 0:
		return unreachable(e.down.Since.Time, "Host %s says that its API server has not answered since %s, and no other control-plane host "+
			"has tried it yet", c.endpointHostName(), formatTime(e.down.Since.Time))
	case len(e.unreachable) > 0:
		d.Message += fmt.Sprintf("; it has not answered %s since %s, but it answers %s, so it stays; look at the network between them",
			JoinFirst(e.unreachable, ", "), formatTime(e.since), JoinFirst(e.reachable, ", "))
	case e.bootstrapped > 0 && e.observers == 0:
		d.Reason = infrav1.EndpointUnobservedReason
		d.Message += "; no control-plane host of the cluster is connected to say whether it answers, so nothing moves"
	}
	return d
}

// onHostLeaving moves the endpoint away from a host that leaves the cluster, or has
// left it. A host that does not exist is no reason to move: it may not have been
// restored yet.
func onHostLeaving(c Cluster, _ evidence, d *Decision) bool {
	m := c.Member(c.endpointHostName())
	var why string
	var deadline time.Time
	switch {
	case m == nil && c.EndpointHost == nil:
		return false
	case m == nil:
		why = fmt.Sprintf("Host %s is not the cluster's any more", c.endpointHostName())
	case m.Host.Spec.Claim.Phase == infrav1.ClaimReserved:
		return false // no control-plane machine has claimed it yet
	case m.isWorker():
		why = fmt.Sprintf("Host %s is not one of the control plane any more", c.endpointHostName())
	case !m.isLeaving():
		return false
	default:
		why = fmt.Sprintf("Machine %s of host %s is being deleted", m.Host.Spec.Claim.MachineName, c.endpointHostName())
		if m.Machine != nil && !m.Machine.DeletionTimestamp.IsZero() {
			deadline = m.Machine.DeletionTimestamp.Add(maxCandidateWait)
		}
	}
	found, excluded := candidates(c)
	if len(found) > 0 {
		d.Move = &Move{To: found[0].member.Host, Address: found[0].address, Cause: infrav1.MoveMachineDeleted}
		return true
	}
	d.Ready, d.Reason = false, infrav1.NoMoveCandidateReason
	d.Message = fmt.Sprintf("%s and the endpoint %s can't move: %s", why, c.Endpoint(), explain(excluded))
	if deadline.IsZero() {
		return true
	}
	if anyTemporary(excluded) && c.Now.Before(deadline) {
		d.Message += fmt.Sprintf("; the Machine is held until %s for one of them", formatTime(deadline))
		d.RecheckAt = deadline
		return true
	}
	d.HookRemovalReason = explain(excluded)
	return true
}

// onAddressChanged moves the endpoint to the new address of its host. An address that
// the host still has stays the endpoint, even if the policy selects another one now.
func onAddressChanged(c Cluster, _ evidence, d *Decision) bool {
	m := c.Member(c.endpointHostName())
	if m == nil || !m.Host.IsBootstrapped() || !m.isConnected() || !lostAddress(c, m.Host) {
		return false
	}
	lost := fmt.Sprintf("Host %s does not have the endpoint's address %s any more", c.endpointHostName(), c.Infra.Spec.ControlPlaneEndpoint.Host)
	addr, why := address.ForEndpoint(m.Host, c.policy())
	switch {
	case why != "":
		d.Ready, d.Reason = false, infrav1.AddressChangedReason
		d.Message = fmt.Sprintf("%s, and is %s", lost, why)
	case m.report().APIServer == nil:
		d.Ready, d.Reason = false, infrav1.AddressChangedReason
		d.Message = fmt.Sprintf("%s but %s; it has not said yet whether its API server's certificate covers that", lost, addr)
	case !address.Covers(m.report().APIServer.CertificateNames, addr):
		d.Ready, d.Reason = false, infrav1.AddressNotCoveredReason
		d.Message = fmt.Sprintf("%s but %s, which the serving certificate of its API server does not cover: give the host its address back "+
			"(a fixed lease), or list the addresses that it may get in the control plane's apiServer.certSANs", lost, addr)
	default:
		d.Move = &Move{To: m.Host, Address: addr, Cause: infrav1.MoveAddressChanged}
		return true
	}
	// It may still move to another host: onHostDead decides that.
	return false
}

// onMoveRequested moves the endpoint as the annotation requests. The request waits for
// a move in progress, unless the new endpoint is dead too.
func onMoveRequested(c Cluster, e evidence, d *Decision) bool {
	want, requested := c.Infra.Annotations[infrav1.MoveEndpointAnnotation]
	if !requested || (c.Moving() && !e.dead()) {
		return false
	}
	want = strings.TrimSpace(want)
	if want == c.endpointHostName() {
		d.RefusedRequest = fmt.Sprintf("the endpoint is the address of host %s already", want)
		return true
	}
	found, excluded := candidates(c)
	for _, f := range found {
		if want == "" || f.member.Host.Name == want {
			d.Move = &Move{To: f.member.Host, Address: f.address, Cause: infrav1.MoveRequested}
			return true
		}
	}
	d.RefusedRequest = explain(excluded)
	if want != "" {
		d.RefusedRequest = fmt.Sprintf("host %s is no control-plane host of the cluster", want)
		for _, e := range excluded {
			if e.host == want {
				d.RefusedRequest = fmt.Sprintf("host %s can't have it: %s", want, e.reason)
			}
		}
	}
	return false
}

// onHostDead moves the endpoint away from a host that no other control-plane host has
// reached for long enough. Evidence that no host confirms when it is asked moves nothing.
func onHostDead(c Cluster, e evidence, d *Decision) bool {
	if !e.dead() {
		return false
	}
	if isManual(c) {
		d.Message += fmt.Sprintf("; controlPlaneEndpointPolicy.host.failover.policy is Manual: annotate the ElementalCluster with %s to move it",
			infrav1.MoveEndpointAnnotation)
		return true
	}
	due := e.due
	if until := c.cooldownEnd(e.delay); until.After(due) {
		due = until
		d.Message += fmt.Sprintf("; it moved only at %s", formatTime(c.LastMove().StartedAt.Time))
	}
	if c.Now.Before(due) {
		d.Message += fmt.Sprintf("; it moves at %s if that stays so", formatTime(due))
		d.RecheckAt = due
		return true
	}
	if !e.isConfirmed || len(e.awaited) > 0 {
		d.Message += "; it moves when the connected control-plane hosts have confirmed that"
		return true
	}
	found, excluded := candidates(c)
	if len(found) == 0 {
		d.Reason = infrav1.NoMoveCandidateReason
		d.Message += "; it can't move: " + explain(excluded)
		return true
	}
	d.Move = &Move{To: found[0].member.Host, Address: found[0].address, Cause: infrav1.MoveHostDead}
	return true
}

func formatTime(t time.Time) string { return t.UTC().Format(timeFormat) }
