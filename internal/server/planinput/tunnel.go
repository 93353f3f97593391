package planinput

import (
	"context"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// fallbackAfter is how long the control plane of a cluster has to be without a tunnel
	// before workers open theirs.
	fallbackAfter = 30 * time.Second
	// fallbackWorkers is how many workers do: one may fail.
	fallbackWorkers = 2
)

// WantsTunnel reports whether the host's plan asks for a tunnel now. For a host that can
// have none it reads nothing.
func (r *Reader) WantsTunnel(ctx context.Context, host *infrav1.ElementalHost) (bool, error) {
	if !plan.CanHaveTunnel(host) {
		return false, nil
	}
	claim := host.Spec.Claim
	infra, err := r.infraCluster(ctx, host.Namespace, claim.ClusterName)
	if err != nil || infra == nil || !infra.HasTunnels() {
		return false, err
	}
	known := plan.Cluster{Infra: infra}
	if !claim.Role.IsControlPlane() && isTunnel(infra) {
		hosts, err := r.hostsOfCluster(ctx, host.Namespace, claim.ClusterName)
		if err != nil {
			return false, err
		}
		if known.Fallback, err = r.isFallback(ctx, hosts, host.Name); err != nil {
			return false, err
		}
	}
	return plan.WantsTunnel(host, known), nil
}

// isTunnel reports whether the endpoint of the cluster, which may be nil, is of type Tunnel.
func isTunnel(infra *infrav1.ElementalCluster) bool {
	return infra != nil && infra.EndpointType() == infrav1.EndpointTypeTunnel
}

// withTunnels adds to a cluster of type Tunnel what a host's plan needs of its other hosts.
func (r *Reader) withTunnels(ctx context.Context, host *infrav1.ElementalHost, known plan.Cluster) (plan.Cluster, error) {
	hosts, err := r.hostsOfCluster(ctx, host.Namespace, host.Spec.Claim.ClusterName)
	if err != nil {
		return known, err
	}
	if known.Fallback, err = r.isFallback(ctx, hosts, host.Name); err != nil {
		return known, err
	}
	known.Backends, err = r.servers(ctx, hosts, host.Name, backend)
	return known, err
}

// servers returns the addresses of the cluster's API servers on other hosts than the named
// one, sorted. addressOf returns that of a host, or a blank one. KCP removes the etcd member of a Machine that is being deleted, and its API
// server with it, before the host hears of anything: so that host is left out.
func (r *Reader) servers(ctx context.Context, hosts []infrav1.ElementalHost, except string, addressOf func(*infrav1.ElementalHost) string) ([]string, error) {
	var out []string
	for i := range hosts {
		host := &hosts[i]
		address := addressOf(host)
		if address == "" || host.Name == except {
			continue
		}
		leaving, err := r.leavingSince(ctx, host)
		if err != nil {
			return nil, err
		}
		if leaving.IsZero() {
			out = append(out, address)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), protocol.MaxBackends)], nil
}

// backend returns the address of the host's API server for other hosts of its cluster of
// type Tunnel; blank if it has none.
func backend(host *infrav1.ElementalHost) string {
	claim, reported := host.Spec.Claim, host.Status.Endpoint
	if claim == nil || claim.Phase != infrav1.ClaimBound || !claim.Role.IsControlPlane() || host.Spec.Fence != nil ||
		reported == nil || reported.APIServer == nil {
		return ""
	}
	return reported.APIServer.Address
}

// leavingSince returns since when the Machine of a claimed host is being deleted; the zero
// time if it is not.
func (r *Reader) leavingSince(ctx context.Context, host *infrav1.ElementalHost) (time.Time, error) {
	machine := &clusterv1.Machine{}
	found, err := r.get(ctx, host.Namespace, host.Spec.Claim.MachineName, machine)
	if err != nil || !found || machine.DeletionTimestamp.IsZero() {
		return time.Time{}, err
	}
	return machine.DeletionTimestamp.UTC(), nil
}

// isFallback reports whether the named host is one of the workers whose tunnels carry the
// cluster, because no control-plane host does.
func (r *Reader) isFallback(ctx context.Context, hosts []infrav1.ElementalHost, name string) (bool, error) {
	from, needed, err := r.fallbackFrom(ctx, hosts)
	if err != nil || !needed || r.clock.Now().Before(from) {
		return false, err
	}
	names, err := r.standbys(ctx, hosts, fallbackWorkers)
	return slices.Contains(names, name), err
}

// fallbackFrom returns when the cluster needs the tunnels of workers. needed is false if a
// control-plane host has a tunnel or is about to open one, or none has an API server. The
// tunnel of a host whose Machine is being deleted does not count: the gateway does not use it.
func (r *Reader) fallbackFrom(ctx context.Context, hosts []infrav1.ElementalHost) (from time.Time, needed bool, err error) {
	for i := range hosts {
		c := carrierOf(&hosts[i])
		if !c.isControlPlane {
			continue
		}
		leaving, err := r.leavingSince(ctx, &hosts[i])
		if err != nil {
			return time.Time{}, false, err
		}
		isLost := c.state == infrav1.ConnectionDisconnected
		if !leaving.IsZero() && (!isLost || leaving.Before(c.since)) {
			c.since, isLost = leaving, true
		}
		if !isLost && (c.state != "" || c.isAsked) {
			return time.Time{}, false, nil
		}
		needed = true
		if isLost && c.since.Add(fallbackAfter).After(from) {
			from = c.since.Add(fallbackAfter)
		}
	}
	return from, needed, nil
}

// carrier is what decides whether a cluster needs the tunnels of workers: the tunnel of one
// of its control-plane hosts.
type carrier struct {
	isControlPlane bool
	// isAsked: the host's plan asks for a tunnel.
	isAsked bool
	// state is blank while the host's status does not say.
	state infrav1.ConnectionState
	since time.Time
}

// carrierOf returns the zero value for a host without an API server, and for a held host,
// through which the gateway does not connect.
func carrierOf(host *infrav1.ElementalHost) carrier {
	if !host.IsBootstrapped() || host.Spec.Claim.Phase != infrav1.ClaimBound || !host.Spec.Claim.Role.IsControlPlane() {
		return carrier{}
	}
	c := carrier{isControlPlane: true, isAsked: plan.CanHaveTunnel(host)}
	if t := host.Status.Tunnel; t != nil {
		c.state, c.since = t.State, t.Since.UTC()
	}
	return c
}

// standbys returns the names of the first workers that can carry the cluster, and whose
// Machines are not being deleted.
func (r *Reader) standbys(ctx context.Context, hosts []infrav1.ElementalHost, count int) ([]string, error) {
	var names []string
	for i := range hosts {
		if !isStandby(&hosts[i]) {
			continue
		}
		leaving, err := r.leavingSince(ctx, &hosts[i])
		if err != nil {
			return nil, err
		}
		if leaving.IsZero() {
			names = append(names, hosts[i].Name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), count)], nil
}

// isStandby reports whether the host is a worker that can carry its cluster: through its
// own forwarder, as it has no API server.
func isStandby(host *infrav1.ElementalHost) bool {
	return plan.CanHaveTunnel(host) && !host.Spec.Claim.Role.IsControlPlane() && host.IsConnected() &&
		host.Supports(infrav1.OperationType(protocol.CapabilityLocalEndpoint))
}
