package endpoint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

const (
	// pageSize is the number of hosts in memory at a time.
	pageSize   = 500
	timeFormat = "2006-01-02T15:04:05Z"
)

// View is the endpoint of a cluster, as the API server has it now.
type View struct {
	cluster failover.Cluster
}

// Read reads the endpoint of a Cluster and what decides where it can move.
func Read(ctx context.Context, c client.Reader, namespace, name string, now time.Time) (*View, error) {
	v := &View{failover.Cluster{Cluster: &clusterv1.Cluster{}, Infra: &infrav1.ElementalCluster{}, Now: now}}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, v.cluster.Cluster)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Cluster %s in namespace %s; name another, or give --namespace", name, namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Cluster %s: %w", name, err)
	}
	ref := v.cluster.Cluster.Spec.InfrastructureRef
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, v.cluster.Infra)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ElementalCluster %s: %w", ref.Name, err)
	}
	if err != nil || !ownership.NamesInfraCluster(v.cluster.Cluster, v.cluster.Infra) {
		return nil, fmt.Errorf("the infrastructureRef of Cluster %s names no ElementalCluster that exists; create it or correct the reference", name)
	}
	if v.hostRef() == nil {
		return v, nil
	}
	if err := v.readMembers(ctx, c); err != nil {
		return nil, err
	}
	return v, nil
}

func (v *View) hostRef() *infrav1.EndpointHostReference {
	return v.cluster.Infra.Spec.ControlPlaneEndpointPolicy.HostRef
}

// readMembers reads the hosts that are claimed for the cluster, and the control-plane Machines
// among those of the hosts.
func (v *View) readMembers(ctx context.Context, c client.Reader) error {
	name, namespace := v.cluster.Cluster.Name, v.cluster.Cluster.Namespace
	list := &infrav1.ElementalHostList{}
	for next := ""; ; next = list.Continue {
		if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next)); err != nil {
			return fmt.Errorf("listing hosts: %w", err)
		}
		for i := range list.Items {
			host := list.Items[i].DeepCopy()
			if host.Name == v.hostRef().Name {
				v.cluster.EndpointHost = host
			}
			claim := host.Spec.Claim
			if claim == nil || claim.ClusterName != name || claim.Role == infrav1.RoleWorker {
				continue
			}
			machine, err := machineOf(ctx, c, host, name)
			if err != nil {
				return err
			}
			v.cluster.Members = append(v.cluster.Members, failover.Member{Host: host, Machine: machine})
		}
		if list.Continue == "" {
			break
		}
	}
	slices.SortFunc(v.cluster.Members, func(a, b failover.Member) int { return cmp.Compare(a.Host.Name, b.Host.Name) })
	return nil
}

// machineOf reads the Machine that a host is claimed for; nil if it does not exist.
func machineOf(ctx context.Context, c client.Reader, host *infrav1.ElementalHost, cluster string) (*clusterv1.Machine, error) {
	name := host.Spec.Claim.MachineName
	if name == "" {
		return nil, nil
	}
	machine := &clusterv1.Machine{}
	err := c.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: name}, machine)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Machine %s: %w", name, err)
	}
	if machine.Spec.ClusterName != cluster {
		return nil, nil
	}
	return machine, nil
}

// Lines returns the view for people, one line an element.
func (v *View) Lines() []string {
	infra := v.cluster.Infra
	endpoint := "none yet"
	if infra.Spec.ControlPlaneEndpoint.Host != "" {
		endpoint = infra.Spec.ControlPlaneEndpoint.WithDefaultPort().HostPort()
	}
	lines := []string{fmt.Sprintf("Cluster %s/%s: its endpoint is %s", infra.Namespace, v.cluster.Cluster.Name, endpoint)}
	add := func(format string, args ...any) { lines = append(lines, "  "+fmt.Sprintf(format, args...)) }
	if t := infra.EndpointType(); t != "" {
		add("Type: %s", t)
	}
	ref := v.hostRef()
	if ref == nil {
		add("No host has it as its address, so this command can't move it")
		return append(lines, v.conditions()...)
	}
	state := "does not exist"
	if host := v.cluster.EndpointHost; host != nil {
		state = "not connected"
		if host.IsConnected() {
			state = "connected"
		}
	}
	add("Host: %s (%s), since %s", ref.Name, state, ref.ChosenAt.UTC().Format(timeFormat))
	if move := v.cluster.LastMove(); move != nil {
		end := "not completed"
		if !move.CompletedAt.IsZero() {
			end = "completed at " + move.CompletedAt.UTC().Format(timeFormat)
		}
		add("Last move: from %s (%s), %s", move.From, move.Cause, end)
	}
	lines = append(lines, v.conditions()...)
	candidates := failover.Candidates(v.cluster)
	lines = append(lines, fmt.Sprintf("Other control-plane hosts: %d", len(candidates)))
	for _, candidate := range candidates {
		if candidate.Obstacle != "" {
			add("%s: can't have it: %s", candidate.Host, candidate.Obstacle)
			continue
		}
		add("%s: can have it, as %s", candidate.Host, candidate.Address)
	}
	return lines
}

// conditions returns what the manager says about the endpoint.
func (v *View) conditions() []string {
	var lines []string
	for _, kind := range []string{infrav1.ControlPlaneEndpointReadyCondition, infrav1.ControlPlaneEndpointFollowedCondition} {
		c := meta.FindStatusCondition(v.cluster.Infra.Status.Conditions, kind)
		if c == nil {
			continue
		}
		line := fmt.Sprintf("  %s: %s, %s since %s", c.Type, c.Status, c.Reason, c.LastTransitionTime.UTC().Format(timeFormat))
		if c.Message != "" {
			line += ": " + c.Message
		}
		lines = append(lines, line)
	}
	return lines
}
