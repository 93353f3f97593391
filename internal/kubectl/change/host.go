package change

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const timeFormat = "2006-01-02T15:04:05Z"

// maxReason is the number of bytes that a reason may have.
const maxReason = 256

// checkReason refuses a reason that the API server would refuse.
func checkReason(host *infrav1.ElementalHost, reason string) error {
	if reason == "" || len(reason) > maxReason {
		return refuse(host, fmt.Sprintf("the reason has %d bytes", len(reason)), fmt.Sprintf("Give one of 1 to %d bytes with --reason", maxReason))
	}
	return checkDeletion(host)
}

func checkDeletion(host *infrav1.ElementalHost) error {
	if host.DeletionTimestamp.IsZero() {
		return nil
	}
	return refuse(host, "it is being deleted", "Wait until it is gone; its machine can enrol again then")
}

// Cordon plans to keep new Machines off a host.
func Cordon(s Situation, reason string) (*Plan, error) {
	host := s.Host
	if err := checkReason(host, reason); err != nil {
		return nil, err
	}
	if c := host.Spec.Cordon; c != nil && c.Reason == reason {
		return done(host, "it is cordoned already"), nil
	}
	p := patchHost(host, "cordon it", func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: reason} })
	p.Effects = append(p.Effects, "No new Machine gets the host")
	if claim := host.Spec.Claim; claim != nil && claim.MachineName != "" {
		p.Effects = append(p.Effects, fmt.Sprintf("Machine %s of Cluster %s stays on it: to empty the host, delete the Machine", claim.MachineName, claim.ClusterName))
	}
	return p, nil
}

// Uncordon plans to end the cordon of a host.
func Uncordon(host *infrav1.ElementalHost) (*Plan, error) {
	if err := checkDeletion(host); err != nil {
		return nil, err
	}
	if host.Spec.Cordon == nil {
		return done(host, "it is not cordoned"), nil
	}
	p := patchHost(host, "end the cordon, whose reason is: "+host.Spec.Cordon.Reason, func(h *infrav1.ElementalHost) { h.Spec.Cordon = nil })
	p.Effects = append(p.Effects, "Machines may get the host when it is available")
	return p, nil
}

// Maintenance plans the maintenance of a host until a time. What the maintenance has already
// stays as it is, except for its end and, if reason is given, its reason.
func Maintenance(s Situation, reason string, until, now time.Time) (*Plan, error) {
	host := s.Host
	var is *infrav1.HostMaintenance // one that has ended is none
	if host.InMaintenance() {
		is = host.Spec.Maintenance
	}
	if reason == "" {
		reason = "not given"
		if is != nil {
			reason = is.Reason
		}
	}
	if err := checkReason(host, reason); err != nil {
		return nil, err
	}
	until = until.UTC().Truncate(time.Second)
	if !until.After(now) {
		return nil, refuse(host, fmt.Sprintf("%s is in the past", until.Format(timeFormat)), "Give a later end by --until or --for, or end the maintenance by --end")
	}
	if is != nil && is.Reason == reason && is.Until.Time.Equal(until) {
		return done(host, "it is in maintenance until then already"), nil
	}
	action := "maintenance until " + until.Format(timeFormat)
	if is != nil {
		action += ", which is another end than now: " + endOf(is)
	}
	p := patchHost(host, action, func(h *infrav1.ElementalHost) {
		h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: reason, Until: metav1.NewTime(until)}
	})
	p.Effects = append(p.Effects, "The host is not offered to Machines; no bootstrap and no reset begins on it")
	if claim := host.Spec.Claim; claim != nil && claim.MachineName != "" {
		p.Effects = append(p.Effects, fmt.Sprintf("Machine %s of Cluster %s is not remediated. Its Node is not drained: drain it yourself if the work requires that",
			claim.MachineName, claim.ClusterName))
	}
	for i := range host.Status.Operations {
		if op := &host.Status.Operations[i]; op.State == infrav1.OperationRunning {
			p.Effects = append(p.Effects, fmt.Sprintf("The operation %s runs on the host, and continues", op.Type))
		}
	}
	if s.isEndpoint() {
		p.Effects = append(p.Effects, s.endpointEffect())
	}
	if s.isControlPlane() && s.Serving == 0 {
		p.Effects = append(p.Effects, "No other control-plane host of the cluster serves: the cluster has no API server while this host is down")
	}
	return p, nil
}

func (s *Situation) endpointEffect() string {
	name := s.Host.Spec.Claim.ClusterName
	return fmt.Sprintf("The address of the host is the endpoint of Cluster %s: to move it before the host goes down, run kubectl elemental endpoint %s move -n %s",
		name, name, s.Host.Namespace)
}

func endOf(m *infrav1.HostMaintenance) string {
	if m.Until.IsZero() {
		return "none"
	}
	return m.Until.UTC().Format(timeFormat)
}

// EndMaintenance plans the end of a host's maintenance.
func EndMaintenance(s Situation) (*Plan, error) {
	host := s.Host
	if err := checkDeletion(host); err != nil {
		return nil, err
	}
	if !host.InMaintenance() {
		return done(host, "it is not in maintenance"), nil
	}
	p := patchHost(host, fmt.Sprintf("end the maintenance, whose reason is: %s", host.Spec.Maintenance.Reason), func(h *infrav1.ElementalHost) { h.Spec.Maintenance = nil })
	if !host.IsConnected() {
		p.Effects = append(p.Effects, "The host is not connected: from now on it counts as silent, and its Machine may be remediated")
	}
	if claim := host.Spec.Claim; claim != nil && claim.Phase == infrav1.ClaimReleasing {
		p.Effects = append(p.Effects, fmt.Sprintf("Machine %s was deleted meanwhile: the host is reset as soon as it is connected, and the data of its Node is lost", claim.MachineName))
		p.IsDestructive = true
	}
	return p, nil
}
