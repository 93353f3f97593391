package change

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Fence plans to bar a host and to release it by force. It is refused for the last control-plane
// host that serves, unless force is set.
func Fence(s Situation, reason string, force bool) (*Plan, error) {
	host := s.Host
	if err := checkReason(host, reason); err != nil {
		return nil, err
	}
	if host.Spec.Fence != nil {
		return done(host, "it is fenced already, because of: "+host.Spec.Fence.Reason), nil
	}
	if err := s.checkLast(force); err != nil {
		return nil, err
	}
	p := patchHost(host, "fence it, because of: "+reason, func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: reason} })
	p.IsDestructive = true
	p.Effects = append(s.machineEffects(), s.resetEffects()...)
	p.Effects = append(p.Effects, fmt.Sprintf("It stays out of use until the fence is removed: kubectl elemental unfence %s -n %s", host.Name, host.Namespace))
	return p, nil
}

// checkLast refuses to take away the last control-plane host that serves.
func (s *Situation) checkLast(force bool) error {
	if force || !s.isControlPlane() || s.Host.Spec.Claim.Phase != infrav1.ClaimBound || s.Serving > 0 {
		return nil
	}
	return refuse(s.Host, fmt.Sprintf("no other control-plane host of Cluster %s serves, so the cluster would lose its API server, and etcd its data",
		s.Host.Spec.Claim.ClusterName),
		"Bring another control-plane host back first. If the cluster is lost, or you have a snapshot of etcd, give --force")
}

// machineEffects says what happens to the host's Machine and cluster.
func (s *Situation) machineEffects() []string {
	claim := s.Host.Spec.Claim
	if claim == nil {
		return []string{"No Machine is affected: the host is free"}
	}
	var effects []string
	switch {
	case claim.Phase == infrav1.ClaimReserved:
		effects = append(effects, fmt.Sprintf("The host is reserved for the endpoint of Cluster %s", claim.ClusterName))
	case claim.Phase == infrav1.ClaimHeld:
		effects = append(effects, "The host is held, and stays so: it is not reset before it is released")
	case s.Cluster != nil && (ptr.Deref(s.Cluster.Spec.Paused, false) || annotations.HasPaused(s.Cluster)):
		effects = append(effects, fmt.Sprintf("Cluster %s is paused: Machine %s is not deleted before the end of the pause", claim.ClusterName, claim.MachineName))
	case claim.Phase == infrav1.ClaimReleasing:
		effects = append(effects, fmt.Sprintf("The deletion of Machine %s of Cluster %s does not wait for the host", claim.MachineName, claim.ClusterName))
	default:
		effects = append(effects, fmt.Sprintf("Machine %s of Cluster %s is deleted at once, and its owner creates another", claim.MachineName, claim.ClusterName))
	}
	if s.isControlPlane() {
		effects = append(effects, fmt.Sprintf("Other control-plane hosts of the cluster that serve: %d of %d", s.Serving, s.ControlPlane))
	}
	if s.isEndpoint() {
		effects = append(effects, fmt.Sprintf("The address of the host is the endpoint of the cluster: kubectl elemental endpoint %s -n %s shows where it can move",
			claim.ClusterName, s.Host.Namespace))
	}
	return effects
}

// resetEffects says what happens to the host itself.
func (s *Situation) resetEffects() []string {
	host := s.Host
	claim := host.Spec.Claim
	switch {
	case claim == nil || claim.Phase == infrav1.ClaimReserved:
		return []string{"The manager accepts its key for a reset only"}
	case claim.Phase == infrav1.ClaimHeld:
		return nil
	}
	if _, prevented := host.Annotations[infrav1.PreventResetAnnotation]; prevented {
		return []string{"It is not reset, because of its annotation " + infrav1.PreventResetAnnotation}
	}
	when := "If the host returns, it is reset first"
	if host.IsConnected() {
		when = "The host is connected: it is reset now"
	}
	return []string{when + ", and the data of its Node is lost, also with the release policy Hold. To keep it, annotate the host before: " +
		fmt.Sprintf("kubectl -n %s annotate elementalhost %s %s=data", host.Namespace, host.Name, infrav1.PreventResetAnnotation)}
}

// Unfence plans to remove the fence of a host.
func Unfence(host *infrav1.ElementalHost) (*Plan, error) {
	if err := checkDeletion(host); err != nil {
		return nil, err
	}
	if host.Spec.Fence == nil {
		return done(host, "it is not fenced"), nil
	}
	p := patchHost(host, "remove the fence, whose reason is: "+host.Spec.Fence.Reason, func(h *infrav1.ElementalHost) { h.Spec.Fence = nil })
	switch claim := host.Spec.Claim; {
	case claim == nil:
		p.Effects = append(p.Effects, "Machines may get the host when it is available")
	case claim.Phase == infrav1.ClaimReleasing:
		p.Effects = append(p.Effects, "The host was not reset yet: it is reset when it is connected, and offered to Machines afterwards")
	default:
		p.Effects = append(p.Effects, fmt.Sprintf("Its claim by Cluster %s is %s: the host gets its plans again", claim.ClusterName, claim.Phase))
	}
	return p, nil
}

// Release plans to release a host whose Machine can't do so: a host that is held, or whose
// Machine does not exist, is reset, and a dead host is fenced.
func Release(s Situation, force bool, now time.Time) (*Plan, error) {
	host := s.Host
	if err := checkDeletion(host); err != nil {
		return nil, err
	}
	claim := host.Spec.Claim
	switch {
	case claim == nil:
		return nil, refuse(host, "no Machine has it", "There is nothing to release; to keep Machines off it, cordon it")
	case claim.Phase == infrav1.ClaimReserved:
		return nil, refuse(host, fmt.Sprintf("it is reserved for Cluster %s", claim.ClusterName), "Delete the Cluster, or fence the host")
	case claim.Phase == infrav1.ClaimHeld:
		return s.reset("release it from its hold"), nil
	case host.IsConnected() && s.Machine == nil && claim.Phase == infrav1.ClaimBound:
		p := s.reset("release it without its Machine")
		p.Effects = append(p.Effects, fmt.Sprintf("Machine %s of Cluster %s does not exist here. While the management cluster is being restored or moved, "+
			"wait for the Machine instead", claim.MachineName, claim.ClusterName))
		return p, nil
	case host.IsConnected():
		return nil, refuse(host, "it is connected, so it is not dead", fmt.Sprintf(
			"Delete its Machine, which resets the host: kubectl -n %s delete machine %s; to bar a stolen host, fence it", host.Namespace, claim.MachineName))
	case host.InMaintenance():
		return nil, refuse(host, "it is in maintenance, so its silence may be work on it",
			fmt.Sprintf("If it is dead, end the maintenance first: kubectl elemental maintenance %s --end -n %s", host.Name, host.Namespace))
	}
	p, err := Fence(s, "dead", force)
	if err != nil || p.IsDone {
		return p, err
	}
	p.Action = "release it by a fence"
	silence := "The host has never connected"
	if c := host.Status.Connection; c != nil {
		silence = fmt.Sprintf("The host is disconnected since %s (%s)", c.Since.UTC().Format(timeFormat), now.Sub(c.Since.Time).Truncate(time.Second))
	}
	p.Effects = append([]string{silence}, p.Effects...)
	p.Effects = append(p.Effects, fmt.Sprintf("If it never returns, delete it: kubectl -n %s delete elementalhost %s", host.Namespace, host.Name))
	return p, nil
}

// reset plans the reset of a host that no Machine uses any more.
func (s *Situation) reset(action string) *Plan {
	host := s.Host
	p := patchHost(host, action, func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing })
	p.IsDestructive = true
	p.Effects = s.resetEffectsOf(infrav1.ClaimReleasing)
	if erase := host.Spec.Claim.Erase; erase != "" {
		p.Effects = append(p.Effects, fmt.Sprintf("Its data disks are erased: %s", erase))
	}
	return p
}

// resetEffectsOf is resetEffects for another phase of the claim.
func (s *Situation) resetEffectsOf(phase infrav1.ClaimPhase) []string {
	after := Situation{Host: s.Host.DeepCopy()}
	after.Host.Spec.Claim.Phase = phase
	return after.resetEffects()
}
