package remedy

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// ofMachines returns the remedies for conditions of ElementalMachines.
func ofMachines() map[string]string {
	return map[string]string{
		infrav1.WaitingForOwnerReason:          "Create the Machine whose spec.infrastructureRef names this ElementalMachine, or delete the ElementalMachine",
		infrav1.ReferenceMismatchReason:        "Correct spec.infrastructureRef of the owner, or the ownerReference, as the message says",
		infrav1.WaitingForInfrastructureReason: "See what the Cluster waits for: kubectl elemental explain cluster {cluster} -n {namespace}",
		infrav1.WaitingForBootstrapDataReason: "{wait} when the control plane is initialized; otherwise look at the bootstrap configuration: " +
			"kubectl -n {namespace} get kubeadmconfigs",
		infrav1.NoHostReason: "Make one of the hosts available, or enrol another one: " +
			"kubectl elemental explain machine {machine} -n {namespace}",
		infrav1.NoHostInFailureDomainReason: "Enrol or free a host in the failure domain, or do what the message says about the owner of the Machine",
		infrav1.HostMissingReason:           "Have the Machine replaced: kubectl -n {namespace} delete machine {machine}",
		infrav1.BootstrappingReason:         "Nothing to do while the host is connected: its agent runs the bootstrap data. Look at the output: {output}",
		infrav1.BootstrapFailedReason: "Look at the output: {output}. Remove the cause, " +
			"then have the Machine replaced: kubectl -n {namespace} delete machine {machine}",
		infrav1.WaitingForResetReason: "{wait} when the host is reset; see kubectl elemental explain host {host} -n {namespace}",
		infrav1.HostSilentReason:      "Bring the host back; if it is dead, release it, which deletes its Machine at once: kubectl elemental release {host} -n {namespace}",
	}
}

// ofUpgrades returns the remedies for the condition KubernetesUpToDate.
func ofUpgrades() map[string]string {
	return map[string]string{
		infrav1.UpgradeWaitingForReleaseReason:    "Create an ElementalKubernetesRelease of the version in the namespace {namespace}",
		infrav1.UpgradeWaitingForControlPlane:     "{wait} when the control plane has the version",
		infrav1.UpgradeWaitingForClusterAPIReason: "{wait}",
		infrav1.UpgradeHostNotConnectedReason:     "Bring the host {host} back: kubectl elemental explain host {host} -n {namespace}",
		infrav1.UpgradeHostInMaintenanceReason:    "End the maintenance of the host: kubectl elemental maintenance {host} --end -n {namespace}",
		infrav1.UpgradeStagingReason:              "{wait} when the host has fetched the bundle",
		infrav1.UpgradeHeldReason:                 "Release the upgrade of the Cluster {cluster}: kubectl -n {namespace} label cluster {cluster} infrastructure.cluster.x-k8s.io/hold-upgrade-",
		infrav1.UpgradingReason:                   "{wait}",
		infrav1.UpgradeFailedReason:               "Do what the message says; the steps after a failure are in docs/upgrading.md",
		infrav1.UpgradeRolledBackReason:           "Remove the cause that the message names, then ask for the version again; the steps are in docs/upgrading.md",
		infrav1.UpgradeNotPossibleReason:          "Change what the message names, or set spec.inPlace.mode of the ElementalCluster to Preferred or Off",
	}
}

// ofClusters returns the remedies for conditions of ElementalClusters.
func ofClusters() map[string]string {
	return map[string]string{
		infrav1.WaitingForControlPlaneRefReason: "Set spec.controlPlaneRef of the Cluster {cluster}, or give it a controlPlaneEndpoint",
		infrav1.TemplateNotFoundReason:          "Create the ElementalMachineTemplate that the control plane names, or correct the reference",
		infrav1.EndpointRequiredReason:          "Set spec.controlPlaneEndpoint.host of the ElementalCluster, or choose another type of endpoint",
		infrav1.EndpointUnreachableReason: "Repair the endpoint host {host}; if the endpoint does not move by itself, " +
			"move it: kubectl elemental endpoint {cluster} move -n {namespace}",
		infrav1.EndpointUnobservedReason:     "Bring a control-plane host of the cluster back: none of them reports about the endpoint",
		infrav1.EndpointMovingReason:         "{wait} when the hosts in the message are connected again",
		infrav1.NoMoveCandidateReason:        "Bring back a control-plane host with a healthy API server and etcd, as the message says",
		infrav1.AddressChangedReason:         "Give the host {host} its former address again, or request a move: kubectl elemental endpoint {cluster} move -n {namespace}",
		infrav1.AddressNotCoveredReason:      "Add the address to the API server's certSANs in the control plane's configuration",
		infrav1.WaitingForAddressReason:      "Look at the pool of spec.controlPlaneEndpointPolicy.vip.addressFromPool: has it a free address?",
		infrav1.VIPInUseReason:               "Choose another address for the vip: something else uses it",
		infrav1.AddressAnnouncedReason:       "{wait} when the hosts in the message are reset",
		infrav1.VIPOutsideSubnetsReason:      "Choose an address in a subnet of the control-plane hosts, or set the vip's mode to BGP",
		infrav1.InterfaceMissingReason:       "Set spec.controlPlaneEndpointPolicy.vip.interface to an interface that the hosts have",
		infrav1.DistributionUnknownReason:    "Set spec.controlPlaneEndpointPolicy.vip.distribution of the ElementalCluster",
		infrav1.ImageNotAllowedReason:        "Use an image that the manager's --kube-vip-repositories and --kube-vip-require-digest allow",
		infrav1.EndpointNameTakenReason:      "Delete one of the two clusters: both want the same name",
		infrav1.EndpointNameForeignReason:    "Leave controlPlaneEndpoint.host blank: the provider sets the name",
		infrav1.EndpointPortReason:           "Correct the port of the endpoint, as the message says",
		infrav1.WaitingForControlPlaneReason: "{wait} when the cluster has its first control-plane host",
		infrav1.NoTunnelReason:               "Bring a host of the cluster back, as the message says: none of them has a tunnel",
		infrav1.APIServerRefusesReason:       "Look at the API server on the hosts that the message names",
		infrav1.AgentTooOldReason:            "Update the agents of the cluster's hosts: set spec.agent of their ElementalRegistration",
		infrav1.ClusterUnreachableReason:     "See the condition TunnelReady: the workload cluster does not answer",
		infrav1.ClusterRoleMissingReason:     "Create the ClusterRole in the workload cluster, or correct spec.access of the ElementalCluster",
		infrav1.BindingNameTakenReason:       "Delete or rename the ClusterRoleBinding in the workload cluster that the message names",
		infrav1.EtcdSnapshotPendingReason:    "{wait}: a control-plane host takes the snapshot",
		infrav1.EtcdSnapshotOverdueReason: "Have a control-plane host of the Cluster connected, with an agent that takes snapshots and a running API server: " +
			"kubectl elemental hosts -n {namespace} --cluster {cluster}",
		infrav1.EtcdSnapshotFailedReason: "Remove the cause that the message names, such as a full disk; another host or the same one tries again by itself",
		infrav1.EtcdUploadPendingReason:  "{wait}: a control-plane host uploads the snapshot",
		infrav1.EtcdUploadFailedReason: "Remove the cause that the message names: the host must reach the endpoint of spec.etcdSnapshots.destination, or have its folder mounted. " +
			"It tries again by itself",
		infrav1.EtcdUploadOverdueReason: "Have the host that the message names connected, with an agent that uploads snapshots; the next snapshot is " +
			"uploaded by the host that takes it",
		infrav1.DestinationUnusableReason: "Correct what the message names: spec.etcdSnapshots.destination, its Secret, the storage, or the way there from the manager",
		infrav1.BindingsRefusedReason:     "Do what the message says: the workload cluster refuses the bindings",
		infrav1.KubeconfigExpiringReason: "Cluster API renews the kubeconfig of its KubeadmControlPlane by itself: look at the logs of that controller. " +
			"With another control plane provider, renew the Secret {cluster}-kubeconfig",
		infrav1.CertificatesRenewingReason:      "{wait}: the host renews its certificates",
		infrav1.CertificateRenewalWaitingReason: "End what the message names; the renewal begins then by itself",
		infrav1.CertificateRenewalFailedReason: "Remove the cause that the message names; the provider tries again after a day. To try at once, " +
			"have the host {host} renew its certificates: " + renewByHand,
		clusterv1.PausedReason: paused,
	}
}
