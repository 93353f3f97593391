// Package upgrade upgrades the Nodes on the hosts of Machines, when Cluster API asks for an
// update in place: Kubernetes, or the image of the operating system.
//
// Cluster API marks a Machine and its ElementalMachine, writes what the Machine is to be, and
// then asks (hook UpdateMachine) until it is done. The reconciler looks at these objects, not
// at the hook's calls: it requests the upgrade on the host, once for each target and claim,
// and reports the host's progress in the condition KubernetesUpToDate, which the hook passes
// on. Workers wait until the control plane has the version.
//
// Before its turn, a host gets the bundle of the version that its Machine is about to have.
// The only Machine of a control plane is marked here, because Cluster API never does that.
//
// Every write to a host or Machine has an optimistic lock.
package upgrade
