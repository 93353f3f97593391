package hoststatus

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const secondsPerMinute = 60

// ClockSkew returns how many seconds the host's clock is ahead of the manager's; 0 if it is
// right, or if the agent has not reported.
func ClockSkew(host *infrav1.ElementalHost) int64 {
	if host.Status.Agent == nil {
		return 0
	}
	return host.Status.Agent.ClockSkewSeconds
}

// clockSynchronized returns the verdict on the host's clock; none before the agent has
// reported. A host with a wrong clock stays connected, because authentication does not
// depend on its clock. Whether a Machine gets it is the preflight's to say.
func clockSynchronized(host *infrav1.ElementalHost) Verdict {
	if host.Status.Agent == nil {
		return Verdict{}
	}
	skew, direction := host.Status.Agent.ClockSkewSeconds, "ahead of"
	if skew == 0 {
		return yes(infrav1.ClockSynchronizedReason)
	}
	if skew < 0 {
		skew, direction = -skew, "behind"
	}
	return no(infrav1.ClockSkewedReason, "The host's clock is %d minutes %s the manager's; see to its time service, "+
		"or certificates that are made on it are not valid yet or any more", skew/secondsPerMinute, direction)
}

// agentCurrent returns the verdict on the last update of the agent; none if there was no
// update, or if a user has installed another version since.
func agentCurrent(host *infrav1.ElementalHost) Verdict {
	agent := host.Status.Agent
	if agent == nil || agent.Update == nil {
		return Verdict{}
	}
	update := agent.Update
	switch {
	case update.State == infrav1.OperationRunning:
		return no(infrav1.AgentUpdatingReason, "The agent of version %s updates itself to %s", agent.Version, update.Version)
	case agent.Version == update.Version:
		return yes(infrav1.AgentCurrentReason)
	case update.State == infrav1.OperationSucceeded:
		return Verdict{}
	default:
		return no(infrav1.AgentUpdateFailedReason, "The agent is still of version %s; the update to %s failed: %s", agent.Version, update.Version, update.Message)
	}
}
