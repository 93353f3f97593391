package remedy

import (
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnelhost"
)

// Subject are the objects that a problem is about, by name. Names that are not known are
// blank, and appear as HOST, MACHINE or CLUSTER, for example.
type Subject struct {
	Namespace, Host, Machine, Cluster string
	// Registration is the ElementalRegistration of the host, and Restore an ElementalEtcdRestore.
	Registration, Restore string
	// Labels that the host needs, as kubectl label takes them.
	Labels string
	// Output is where what the host's operations print can be read.
	Output Output
}

// Output is where what the operations of a host print can be read.
type Output int

// Outputs.
const (
	// OutputUnknown: nobody has looked at the host.
	OutputUnknown Output = iota
	// OutputByLogs: the host sends it.
	OutputByLogs
	// OutputOnHost: only the host has it.
	OutputOnHost
)

// text names the command that shows the output.
func (o Output) text() string {
	const logs, journal = "`kubectl elemental logs {host} -n {namespace}`", "`journalctl -u elemental-agent` on the host"
	switch o {
	case OutputByLogs:
		return logs
	case OutputOnHost:
		return journal
	default:
		return logs + ", or " + journal + " if it is not connected"
	}
}

// label says how the host gets the labels that it needs.
func (s Subject) label() string {
	if s.Labels == "" {
		return "change its labels"
	}
	return "label it: kubectl -n {namespace} label --overwrite elementalhost {host} " + s.Labels
}

// Wait is the remedy of a problem that ends without anybody's help.
const Wait = "Nothing to do: it ends by itself"

// For returns the remedy for a reason. A reason that is not known has the message of its
// condition for a remedy.
func For(reason string, s Subject) string {
	if text, ok := withoutMachine()[reason]; ok && s.Machine == "" {
		return s.fill(text)
	}
	for _, known := range []map[string]string{ofHosts(), ofMachines(), ofClusters(), ofUpgrades(), ofRemediations(), ofRestores(), ofPlacement()} {
		if text, ok := known[reason]; ok {
			return s.fill(text)
		}
	}
	return s.fill("Do what the message says; `kubectl -n {namespace} describe` shows the Events of the object")
}

// fill replaces the names in braces by what they stand for.
func (s Subject) fill(text string) string {
	or := func(name, placeholder string) string {
		if name == "" {
			return placeholder
		}
		return name
	}
	text = strings.NewReplacer("{output}", s.Output.text(), "{label}", s.label()).Replace(text)
	return strings.NewReplacer(
		"{namespace}", or(s.Namespace, "NAMESPACE"), "{host}", or(s.Host, "HOST"),
		"{machine}", or(s.Machine, "MACHINE"), "{cluster}", or(s.Cluster, "CLUSTER"),
		"{registration}", or(s.Registration, "REGISTRATION"), "{restore}", or(s.Restore, "RESTORE"),
		"{wait}", Wait,
		"{patch}", "kubectl -n "+or(s.Namespace, "NAMESPACE")+" patch elementalhost "+or(s.Host, "HOST")+" --type merge -p",
	).Replace(text)
}

// ofPlacement returns the remedies for reasons why a host is ruled out, in addition to those of
// its conditions.
func ofPlacement() map[string]string {
	return map[string]string{
		placement.NotMatching: "Make another ElementalMachineTemplate with another hostSelector",
		placement.NotMatching + " " + string(selector.Labels): "If the labels that hostSelector wants are true for the host {host}, {label}; " +
			"or make another ElementalMachineTemplate with other labels in hostSelector",
		placement.NotMatching + " " + string(selector.Expression): "Enrol a host for which hostSelector.expression is true, " +
			"or make another ElementalMachineTemplate with another expression",
		placement.NotMatching + " " + placement.HostNameField: "Make the pinned host available, or make another ElementalMachineTemplate with another hostName or none",
		placement.InventoryUnknown:                            "Wait for the first report of the agent; if the host is connected and does not report, look into `journalctl -u elemental-agent` on the host",
		placement.NotEvaluated:                                "Make the expression cheaper, or narrow the hosts down by matchLabels, in another ElementalMachineTemplate",
		placement.WrongFailureDomain: "Enrol or free a host in the failure domain. If the host {host} is in it, {label}; " +
			"or change failureDomain in the MachineDeployment or Machine",
		placement.NoOSImage: "Enrol a host that runs Elemental OS, or make another ElementalMachineTemplate without osImage; " +
			"an older agent does not report its image: set spec.agent of its ElementalRegistration: " + editRegistration,
		placement.RunsNode: "Nothing to do: the host is for Machines of the Cluster in its spec.adoption. If that is wrong, correct it: " +
			"kubectl -n {namespace} edit elementalhost {host}",
		placement.OtherRole:   "Nothing to do if the role in spec.adoption of the host is right; the Machines of that role take the Node over",
		placement.CannotAdopt: updateAgent,
		placement.NotDeclared: "If a Node of the Cluster {cluster} runs on the host {host}, declare it: " +
			`{patch} '{"spec":{"adoption":{"clusterName":"{cluster}","role":"Worker"}}}'` + "; or with the role ControlPlane. " +
			"Other hosts are used once the control plane is taken over and no declared host is left",
		kubevip.NoInterface:    "Set spec.controlPlaneEndpointPolicy.vip.interface of the ElementalCluster to an interface that the host has",
		kubevip.OutsideSubnet:  "Choose a virtual IP address in a subnet of the control-plane hosts, or set the vip's mode to BGP",
		tunnelhost.AgentTooOld: updateAgent,
	}
}

// ofRemediations returns the remedies for conditions of ElementalRemediations.
func ofRemediations() map[string]string {
	return map[string]string{
		infrav1.RebootRequestedReason:  "{wait}: the host reboots",
		infrav1.RebootImpossibleReason: "{wait}: the Machine is replaced",
		infrav1.RebootFailedReason:     "{wait}: the Machine is replaced",
		infrav1.RecoveringReason:       "{wait}: the Machine becomes healthy, or is replaced",
		infrav1.SiteDarkReason:         "Restore the network of the site: no host of it is connected, so nothing is done",
		infrav1.ReplacingReason:        "{wait}: the owner of the Machine creates another one",
		infrav1.NoReplacementReason:    "Repair the host, or free or enrol another one: no host could take the Machine's place",
		clusterv1.PausedReason:         paused,
	}
}

// ofRestores returns the remedies for conditions of ElementalEtcdRestores.
func ofRestores() map[string]string {
	return map[string]string{
		infrav1.RestoreRefusedReason: "Do what the message says; the restore is looked at again by itself",
		infrav1.RestoreNotConfirmedReason: "Read the plan: kubectl -n {namespace} get elementaletcdrestore {restore} -o jsonpath={.status.plan}; " +
			`if it is what you want, confirm it: kubectl -n {namespace} patch elementaletcdrestore {restore} --type merge -p '{"spec":{"confirm":"{cluster}"}}'`,
		infrav1.RestoreWaitingForHostReason: "Bring the host {host} back online, if it is not connected",
		infrav1.RestoringReason:             "{wait}: the host restores etcd",
		infrav1.RestoreFailedReason:         "Remove the cause that the message names, and create another ElementalEtcdRestore",
		infrav1.RestoreLeftBrokenReason: "Look at the output of the restore while the host is connected: kubectl elemental logs {host} --operation etcdrestore -n {namespace}; " +
			"look at the control plane on the host: `journalctl -u elemental-agent -u kubelet`; then delete the restore, which ends the pause of the Cluster: " +
			"kubectl -n {namespace} delete elementaletcdrestore {restore}",
	}
}

const (
	updateAgent      = "Update the agent of the host: set spec.agent of its ElementalRegistration: " + editRegistration
	editRegistration = "kubectl -n {namespace} edit elementalregistration {registration}"
)

const paused = "A move or a restore may need the pause. If nothing does, end it: " +
	"kubectl -n {namespace} patch cluster {cluster} --type merge -p '{\"spec\":{\"paused\":false}}'; " +
	"or remove the annotation " + clusterv1.PausedAnnotation + " from the object that has it"
