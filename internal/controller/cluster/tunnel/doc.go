// Package tunnel provides a control plane endpoint that is a DNS name, which leads through
// tunnels of hosts. The ElementalCluster reconciler calls it for endpoints of type Tunnel,
// and for the condition of clusters whose hosts have tunnels for users only.
// It records the name, once, and has a Service of type ExternalName lead it to the gateway
// of the manager.
//
// The package returns the outcome, with the condition TunnelReady that follows from the
// hosts' status, and writes no status.
package tunnel
