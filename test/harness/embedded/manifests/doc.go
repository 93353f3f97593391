// Package manifests adapts the components of a provider to a manager that runs as a process. It keeps kinds, roles and
// webhook configurations, redirects webhooks to a loopback address, and drops the objects that run the manager in a Pod
// or issue its certificates.
package manifests
