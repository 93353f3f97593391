package etcdrestore

import (
	"fmt"
	"slices"
	"strings"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Changed returns why a restore that has begun would do something else than a person has confirmed;
// blank if it would not. Between the confirmation and the pause of the Cluster, Cluster API may
// replace Machines, and a host that nobody halts would go on with the former data.
func Changed(f Facts) string {
	request, host := f.Restore.Spec.Request, f.Host()
	if !strings.HasPrefix(request.ID, host.Spec.Claim.ID+".") {
		return fmt.Sprintf("Host %s has another Machine now", host.Name)
	}
	for _, member := range append(f.Others(), host) {
		if member.IsHalted() && member.Spec.ControlPlaneHalt.ID != request.ID {
			return fmt.Sprintf("The control plane on host %s was halted for ElementalEtcdRestore %s", member.Name, member.Spec.ControlPlaneHalt.RestoreName)
		}
	}
	if name := added(f.Others(), request.Others); name != "" {
		return fmt.Sprintf("Host %s has joined the control plane", name)
	}
	if obstacle := refuseJoining(f); obstacle != "" {
		return obstacle
	}
	if name := added(f.LaterNodes(), request.LaterNodes); name != "" {
		return fmt.Sprintf("Host %s has become a Node, which the snapshot does not have", name)
	}
	return ""
}

// added returns the name of a host that is not recorded with its claim; blank if all are.
func added(hosts []*infrav1.ElementalHost, records []infrav1.EtcdRestoreHost) string {
	for _, host := range hosts {
		if !slices.ContainsFunc(records, func(r infrav1.EtcdRestoreHost) bool {
			return r.HostName == host.Name && r.ClaimID == host.Spec.Claim.ID
		}) {
			return host.Name
		}
	}
	return ""
}
