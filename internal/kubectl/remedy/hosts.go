package remedy

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// withoutMachine returns remedies that differ where no Machine is concerned: for free hosts, and
// for the endpoint of a cluster.
func withoutMachine() map[string]string {
	return map[string]string{
		infrav1.NoHostReason: "Make a host available, or enrol another one; their states: kubectl elemental hosts -n {namespace}",
		infrav1.DisconnectedReason: "Look at the power and the network of the host, and at `systemctl status elemental-agent` on it; " +
			"if the host is gone for ever: kubectl -n {namespace} delete elementalhost {host}",
	}
}

// renewByHand has a host renew its certificates. The ID must be another one each time.
const renewByHand = `{patch} '{"spec":{"certificateRenewal":{"id":"by-hand-1"}}}'`

// approve leaves the fingerprint to the person. Who copies it from the host compares the keys by that.
const approve = "Approve it with the fingerprint that `elemental-agent status` prints on the host: " +
	"kubectl elemental approve {host} --fingerprint SHA256 -n {namespace}"

// ofHosts returns the remedies for conditions of ElementalHosts.
func ofHosts() map[string]string {
	return map[string]string{
		infrav1.DisconnectedReason: "Look at the power and the network of the host, and at `systemctl status elemental-agent` on it; " +
			"if the host is dead, release it, which deletes its Machine at once: kubectl elemental release {host} -n {namespace}",
		infrav1.NeverConnectedReason:  "Start the agent on the host; for a declared host, compare spec.identity.match with the serial number or key of the machine",
		infrav1.PendingApprovalReason: approve,
		infrav1.ReadoptedReason:       "The host was enrolled before. " + approve,
		infrav1.AmbiguousHardwareReason: "Correct spec.identity.match of the declared hosts and delete this host, " +
			"or keep this one as another. " + approve,
		infrav1.RejectedReason:       "If the host was rejected by mistake, take that back. " + approve,
		infrav1.IdentityClonedReason: "Destroy the copy, then remove the lock: {patch} '{\"spec\":{\"lock\":null}}'",
		infrav1.FencedReason: "When the host is back and reset, remove the fence: kubectl elemental unfence {host} -n {namespace}; " +
			"if it is gone for ever: kubectl -n {namespace} delete elementalhost {host}",
		infrav1.DeclaredElsewhereReason: "Delete one of the two ElementalHosts: this one or the other",
		infrav1.DeletingReason:          "{wait}, once its finalizers are done: `kubectl -n {namespace} get elementalhost {host} -o yaml` shows them",
		infrav1.HostGrantedReason: "The host is in the namespace that the message names. To have it back, lower spec.count of its grant or delete that: " +
			"kubectl -n {namespace} get elementalhostgrants",
		infrav1.HostReturningReason: "{wait}: the pool that had granted the host takes it back; ask its operators for another one",
		infrav1.LeftoversReason: "Run `systemctl stop elemental-agent && elemental-agent reset --yes` on the host, unless its Node is in use, as after a restore of the management cluster; " +
			"or remove what the message lists and restart the agent: it looks again when it starts",
		infrav1.NotReportedReason: "Wait for the first report of the agent; if the host is connected and approved, update its agent",
		infrav1.NotPreparedReason: "Mend on the host what the message names; for programs, an ElementalKubernetesRelease of the Machine's version does. " +
			"The agent looks again within ten minutes, and when it starts. What the bootstrap data mends: name it in spec.ignoreFindings of the ElementalMachine",
		infrav1.CordonedReason:     "Remove the cordon: kubectl elemental uncordon {host} -n {namespace}",
		infrav1.MaintenanceReason:  "When the work on the host is done, end the maintenance: kubectl elemental maintenance {host} --end -n {namespace}",
		infrav1.QuarantinedReason:  "Repair what made the bootstraps fail, then end the quarantine: {patch} '{\"spec\":{\"quarantine\":null}}'",
		infrav1.ReservedReason:     "Enrol another host: the first control-plane machine of the Cluster {cluster} gets this one",
		infrav1.ClaimedReason:      "Enrol another host, or delete the Machine {machine}: kubectl -n {namespace} delete machine {machine}. The host is reset, and then offered again",
		infrav1.ResettingReason:    "{wait} while the agent is connected",
		infrav1.AlreadyResetReason: "Delete the Machine {machine}, which has no Node any more: kubectl -n {namespace} delete machine {machine}",
		infrav1.ResetFailedReason:  "Remove the cause that the message names; the agent tries again by itself. Look at the output: {output}",
		infrav1.ResetPreventedReason: "Let the host be reset: kubectl -n {namespace} annotate elementalhost {host} " + infrav1.PreventResetAnnotation + "-; " +
			"or end its maintenance: kubectl elemental maintenance {host} --end -n {namespace}",
		infrav1.ResetHeldReason:       "Have the host reset: kubectl elemental release {host} -n {namespace}",
		infrav1.WaitingForMachineGone: "{wait} when Cluster API has deleted the Machine {machine}; see `kubectl elemental explain machine {machine} -n {namespace}`",
		infrav1.UnsupportedReason:     updateAgent,
		infrav1.MachineNotFoundReason: "Restore the Machine, or have the host reset: kubectl elemental release {host} -n {namespace}",
		infrav1.ClockSkewedReason:     "Set up the time service of the host: `timedatectl status` on it",
		infrav1.AgentUpdatingReason:   "{wait}",
		infrav1.CertificatesExpiringReason: "{wait} when the provider renews the certificates of a control plane of one host, or when Cluster API replaces the Machine. " +
			"Otherwise have the host {host} renew them: " + renewByHand,
		infrav1.CertificatesExpiredReason: "Have the host {host} renew its certificates: " + renewByHand +
			"; for an authority that has ended see docs/operating.md, section Certificates",
		infrav1.AuthorityExpiringReason: "Plan a new certificate authority for the Cluster {cluster}, or a new cluster: nothing renews the one that the message names",
		infrav1.AgentUpdateFailedReason: "Remove the cause that the message names, or pin another version in spec.agent of the ElementalRegistration",
	}
}
