// Package remediation reconciles ElementalRemediations: it reboots the host of an
// unhealthy Machine and, if that does not help, has the Machine replaced, which resets
// the host.
//
// A MachineHealthCheck whose spec.remediation.templateRef names an
// ElementalRemediationTemplate creates a remediation for each unhealthy Machine, and
// deletes it when the Machine is healthy. As without a template, the Machine's owner
// replaces the Machine: the condition OwnerRemediated requests that, and the owner
// applies its own safety rules (see "Configure a MachineHealthCheck" in Cluster API's
// documentation). This package never deletes a Machine.
//
// Waiting times count only while they say something about the host: not while it is in
// maintenance, not while its site is offline, and not while no manager was running.
package remediation
