package failover

import (
	"fmt"
	"strings"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
)

// patience is how long a Machine that is being deleted is held for a host that may
// yet become fit to take the endpoint over.
const patience = 5 * time.Minute

const timeFormat = "2006-01-02T15:04:05Z"

// Move is a move of the endpoint to be begun.
type Move struct {
	To      *infrav1.ElementalHost
	Address string
	Cause   infrav1.EndpointMoveCause
}

// Decision is what becomes of the endpoint, and why.
type Decision struct {
	// Move is nil where the endpoint stays, for now.
	Move *Move
	// Ready, Reason and Message are for the condition ControlPlaneEndpointReady.
	Ready           bool
	Reason, Message string
	// UnreachableSince is since when nobody reaches the endpoint; zero if somebody
	// does, or nobody is there to say.
	UnreachableSince time.Time
	// Refused says why a move that was asked for can't be had; the request is to be
	// dropped then.
	Refused string
	// Stranded says why the endpoint's Machine, which is being deleted, is not to be
	// held any longer although the endpoint did not leave.
	Stranded string
	// Next is when the decision may be another although nothing changed; zero: never.
	Next time.Time
}

// Decide decides where the endpoint belongs.
func Decide(c Cluster) Decision {
	e := gather(c)
	d := judgeEndpoint(c, e)
	for _, trigger := range []func(Cluster, evidence, *Decision) bool{leaving, renumbered, requested, dead} {
		if trigger(c, e, &d) {
			break
		}
	}
	return d
}

// judgeEndpoint says how the endpoint is, whatever follows from it.
func judgeEndpoint(c Cluster, e evidence) Decision {
	d := Decision{Ready: true, Reason: infrav1.EndpointFromHostReason, Message: "The address of host " + c.holderName()}
	unreachable := func(since time.Time, format string, args ...any) Decision {
		return Decision{Reason: infrav1.EndpointUnreachableReason, UnreachableSince: since,
			Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case e.dead():
		return unreachable(e.since, "%s has not answered %s since %s", c.Endpoint(), AtMost(e.unreachable, ", "), stamp(e.since))
	case len(e.unreachable) > 0 && len(e.reachable) == 0:
		return unreachable(e.since, "%s has not answered %s since %s, but host %s is connected and says that its API server is well, "+
			"so the endpoint stays; look at the network between them",
			c.Endpoint(), AtMost(e.unreachable, ", "), stamp(e.since), c.holderName())
	case e.down != nil && len(e.reachable) == 0:
		return unreachable(e.down.Since.Time, "Host %s says that its API server has not answered since %s, and no other control-plane host "+
			"has tried it yet", c.holderName(), stamp(e.down.Since.Time))
	case len(e.unreachable) > 0:
		d.Message += fmt.Sprintf("; it has not answered %s since %s, but it answers %s, so it stays; look at the network between them",
			AtMost(e.unreachable, ", "), stamp(e.since), AtMost(e.reachable, ", "))
	case e.nodes > 0 && e.observers == 0:
		d.Reason = infrav1.EndpointUnobservedReason
		d.Message += "; no control-plane host of the cluster is connected to say whether it answers, so nothing moves"
	}
	return d
}

// leaving moves the endpoint off a host that the cluster is about to lose, or has
// lost to another use. What does not exist is no reason to move: it may not have
// been restored yet.
func leaving(c Cluster, _ evidence, d *Decision) bool {
	m := c.Member(c.holderName())
	var why string
	var deadline time.Time
	switch {
	case m == nil && c.Holder == nil:
		return false
	case m == nil:
		why = fmt.Sprintf("Host %s is not the cluster's any more", c.holderName())
	case m.Host.Spec.Claim.Phase == infrav1.ClaimReserved:
		return false // no machine of the control plane has it yet
	case m.isWorker():
		why = fmt.Sprintf("Host %s is not one of the control plane any more", c.holderName())
	case !m.isLeaving():
		return false
	default:
		why = fmt.Sprintf("Machine %s of host %s is being deleted", m.Host.Spec.Claim.MachineName, c.holderName())
		if m.Machine != nil && !m.Machine.DeletionTimestamp.IsZero() {
			deadline = m.Machine.DeletionTimestamp.Add(patience)
		}
	}
	fit, unfit := candidates(c)
	if len(fit) > 0 {
		d.Move = &Move{To: fit[0].member.Host, Address: fit[0].address, Cause: infrav1.MoveMachineDeleted}
		return true
	}
	d.Ready, d.Reason = false, infrav1.NoMoveCandidateReason
	d.Message = fmt.Sprintf("%s and the endpoint %s can't move: %s", why, c.Endpoint(), explain(unfit))
	if deadline.IsZero() {
		return true
	}
	if mayChange(unfit) && c.Now.Before(deadline) {
		d.Message += fmt.Sprintf("; the Machine is held until %s for one of them", stamp(deadline))
		d.Next = deadline
		return true
	}
	d.Stranded = explain(unfit)
	return true
}

// renumbered follows an address that changed on a living host. An address that is
// still there stays, also if the rule means another by now.
func renumbered(c Cluster, _ evidence, d *Decision) bool {
	m := c.Member(c.holderName())
	if m == nil || !m.isNode() || !m.isConnected() || !lostAddress(c, m.Host) {
		return false
	}
	lost := fmt.Sprintf("Host %s does not have the endpoint's address %s any more", c.holderName(), c.Infra.Spec.ControlPlaneEndpoint.Host)
	addr, why := address.OfPolicy(m.Host, c.policy())
	switch {
	case why != "":
		d.Ready, d.Reason = false, infrav1.AddressChangedReason
		d.Message = fmt.Sprintf("%s, and is %s", lost, why)
	case m.says().APIServer == nil:
		d.Ready, d.Reason = false, infrav1.AddressChangedReason
		d.Message = fmt.Sprintf("%s but %s; it has not said yet whether its API server's certificate covers that", lost, addr)
	case !address.Covers(m.says().APIServer.CertificateNames, addr):
		d.Ready, d.Reason = false, infrav1.AddressNotCoveredReason
		d.Message = fmt.Sprintf("%s but %s, which the serving certificate of its API server does not cover: give the host its address back "+
			"(a fixed lease), or list the addresses that it may get in the control plane's apiServer.certSANs", lost, addr)
	default:
		d.Move = &Move{To: m.Host, Address: addr, Cause: infrav1.MoveAddressChanged}
		return true
	}
	// If the others don't reach it, it may still go to one of them.
	return false
}

// requested moves the endpoint because somebody wants it. While a move is under
// way the request waits, unless that leads nowhere.
func requested(c Cluster, e evidence, d *Decision) bool {
	want, asked := c.Infra.Annotations[infrav1.MoveEndpointAnnotation]
	if !asked || (c.Moving() && !e.dead()) {
		return false
	}
	want = strings.TrimSpace(want)
	if want == c.holderName() {
		d.Refused = fmt.Sprintf("the endpoint is the address of host %s already", want)
		return true
	}
	fit, unfit := candidates(c)
	for _, f := range fit {
		if want == "" || f.member.Host.Name == want {
			d.Move = &Move{To: f.member.Host, Address: f.address, Cause: infrav1.MoveRequested}
			return true
		}
	}
	d.Refused = explain(unfit)
	if want != "" {
		d.Refused = fmt.Sprintf("host %s is no control-plane host of the cluster", want)
		for _, p := range unfit {
			if p.name == want {
				d.Refused = fmt.Sprintf("host %s can't have it: %s", want, p.why)
			}
		}
	}
	return false
}

// dead moves the endpoint off a host that the others have not reached for long
// enough.
func dead(c Cluster, e evidence, d *Decision) bool {
	if !e.dead() {
		return false
	}
	if manual(c) {
		d.Message += fmt.Sprintf("; controlPlaneEndpointPolicy.host.failover.policy is Manual: annotate the ElementalCluster with %s to move it",
			infrav1.MoveEndpointAnnotation)
		return true
	}
	due := e.due
	if until := damped(c); until.After(due) {
		due = until
		d.Message += fmt.Sprintf("; it moved only at %s", stamp(c.LastMove().StartedAt.Time))
	}
	if c.Now.Before(due) {
		d.Message += fmt.Sprintf("; it moves at %s if that stays so", stamp(due))
		d.Next = due
		return true
	}
	fit, unfit := candidates(c)
	if len(fit) == 0 {
		d.Reason = infrav1.NoMoveCandidateReason
		d.Message += "; it can't move: " + explain(unfit)
		return true
	}
	d.Move = &Move{To: fit[0].member.Host, Address: fit[0].address, Cause: infrav1.MoveHostDead}
	return true
}

func stamp(t time.Time) string { return t.UTC().Format(timeFormat) }
