package v1beta2

import (
	"net"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndpointType derives the type of the cluster's control plane endpoint from spec:
//
//   - VIP where spec asks for a virtual IP address;
//   - Tunnel where spec asks for a name that leads through tunnels;
//   - Host where the endpoint is the address of the host that hostRef names;
//   - External where the user gave the endpoint or has to;
//   - blank where spec has no endpoint: the user may have set one on the Cluster, or a
//     host is to be chosen.
func (c *ElementalCluster) EndpointType() EndpointType {
	policy := c.Spec.ControlPlaneEndpointPolicy
	switch {
	case policy.Type == EndpointTypeVIP:
		return EndpointTypeVIP
	case policy.Type == EndpointTypeTunnel:
		return EndpointTypeTunnel
	case policy.Type == EndpointTypeExternal:
		return EndpointTypeExternal
	case policy.HostRef != nil:
		return EndpointTypeHost
	case c.Spec.ControlPlaneEndpoint.Host != "":
		return EndpointTypeExternal
	default:
		return ""
	}
}

// EndpointMovedAt returns when an endpoint that is a host's address last moved. It is zero
// if the endpoint never moved, or was only exchanged before its first use.
func (c *ElementalCluster) EndpointMovedAt() metav1.Time {
	policy := c.Spec.ControlPlaneEndpointPolicy
	// An endpoint that was exchanged before its first use names no host.
	if policy.HostRef == nil || len(policy.FormerEndpoints) == 0 || policy.FormerEndpoints[0].HostName == "" {
		return metav1.Time{}
	}
	return policy.HostRef.ChosenAt
}

// HasVirtualIP reports whether the endpoint is a virtual IP address that no other cluster
// has. Only then the cluster's hosts may announce it.
func (c *ElementalCluster) HasVirtualIP() bool {
	return c.EndpointType() == EndpointTypeVIP && c.Status.VirtualIP != "" && c.Status.VirtualIP == c.Spec.ControlPlaneEndpoint.Host
}

// HostPort returns the endpoint as host:port, with the default port where spec has
// none and an IPv6 address in brackets. It is blank while the host is blank. Manager
// and agents compare endpoints by this string.
func (e ControlPlaneEndpoint) HostPort() string {
	if e.Host == "" {
		return ""
	}
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.WithDefaultPort().Port)))
}

// WithDefaultPort returns the endpoint, with the default port where it has none.
func (e ControlPlaneEndpoint) WithDefaultPort() ControlPlaneEndpoint {
	if e.Port == 0 {
		e.Port = DefaultControlPlanePort
	}
	return e
}

// HostPort returns the former endpoint in the format of ControlPlaneEndpoint.HostPort.
func (e FormerEndpoint) HostPort() string {
	return ControlPlaneEndpoint{Host: e.Host, Port: e.Port}.HostPort()
}
