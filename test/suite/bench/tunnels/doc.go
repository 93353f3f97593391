// Package tunnels measures how users and programs reach workload clusters whose hosts only connect outwards: the tunnel
// itself (module test/harness/carriers), the endpoint's forwarder on a host, and the authentication proxy.
package tunnels
