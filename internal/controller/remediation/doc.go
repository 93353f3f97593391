// Package remediation reconciles ElementalRemediations: it has the host of an
// unhealthy Machine rebooted, and if that does not help it has the Machine
// replaced, which resets the host.
//
// A MachineHealthCheck whose spec.remediation.templateRef names an
// ElementalRemediationTemplate makes one for each unhealthy Machine and deletes
// it when the Machine is healthy. A Machine is replaced by its owner, as without
// a template: the condition OwnerRemediated asks for that, and the owner follows
// its own rules of safety (Cluster API's documentation, "Configure a
// MachineHealthCheck", "Remediation"). This package never deletes a Machine.
//
// Time counts only while it says something about the host: not while somebody
// works on it, not while a whole site is dark, and not while no manager looked.
package remediation
