package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/objects"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/remedy"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// Reasons why the first control-plane machine of a cluster can't have a host.
const (
	notTheEndpoint = "not the endpoint host"
	notReserved    = "not reserved for the cluster yet"
)

// hosts returns what rules out each host of the namespace for a machine without one.
func (e *Explainer) hosts(ctx context.Context, m placement.Machine, s remedy.Subject) (*Hosts, error) {
	constraints := m.Constraints(ctx, e.Selectors)
	if err := constraints.Selector.Err(); err != nil {
		return &Hosts{Remedy: fmt.Sprintf("No host can be selected: %v. Make another ElementalMachineTemplate with a valid hostSelector", err)}, nil
	}
	required, err := e.required(ctx, m)
	if err != nil {
		return nil, err
	}
	found := &Hosts{Required: required}
	groups := map[string]*Group{}
	list := &infrav1.ElementalHostList{}
	err = each(ctx, e.Client, list, func() error {
		for i := range list.Items {
			e.judge(found, groups, constraints, &list.Items[i], m.Cluster.Name)
		}
		return ctx.Err()
	}, client.InNamespace(s.Namespace))
	if err != nil {
		return nil, err
	}
	found.RuledOut = sorted(groups)
	switch {
	case found.Total == 0:
		found.Remedy, err = e.enrolment(ctx, s.Namespace)
	case found.Matching > 0 && m.MayClaim():
		found.Remedy = "The manager claims one of them within seconds; if it does not, look at it: kubectl -n elemental-system get pods"
	case found.Matching > 0:
		found.Remedy = "The machine gets one of them when the wait above ends"
	}
	return found, err
}

// required returns the host that the machine must have; blank if any host will do, or if
// another machine of the cluster has it already.
func (e *Explainer) required(ctx context.Context, m placement.Machine) (string, error) {
	name := m.RequiredHost()
	host, err := objects.Get(ctx, e.Client, m.Machine.Namespace, name, &infrav1.ElementalHost{})
	if err != nil || host == nil {
		return name, err
	}
	if claim := host.Spec.Claim; claim != nil && claim.Phase == infrav1.ClaimBound && claim.ClusterName == m.Cluster.Name {
		return "", nil
	}
	return name, nil
}

// judge counts a host. Only the first hosts of each reason are kept.
func (e *Explainer) judge(found *Hosts, groups map[string]*Group, constraints placement.Constraints, host *infrav1.ElementalHost, cluster string) {
	found.Total++
	term, ok := constraints.FirstTerm(host)
	if required := found.Required; required != "" {
		claim := host.Spec.Claim
		switch {
		case host.Name != required:
			term, ok = placement.Term{Reason: notTheEndpoint, Message: "the address of host " + required + " is the endpoint"}, false
		case claim == nil || claim.ClusterName != cluster:
			term, ok = placement.Term{Reason: notReserved}, false
		}
	}
	if ok {
		found.Matching++
		if e.limit(found.Matching) == found.Matching {
			found.MatchingNames = append(found.MatchingNames, host.Name)
		}
		return
	}
	reason := term.Reason
	if term.Field != "" {
		reason += " " + term.Field
	}
	group, subject := groups[reason], subjectOfHost(host)
	if group == nil {
		group = &Group{Reason: reason}
		groups[reason] = group
		group.subject = subject
		group.subject.Labels = wantedLabels(constraints, host, term)
	} else if group.subject.Labels == "" {
		common := remedy.Subject{Namespace: host.Namespace}
		if group.subject.Registration == subject.Registration {
			common.Registration = subject.Registration
		}
		group.subject = common
	}
	if term.Reason == placement.NotDeclared {
		group.subject.Cluster = cluster
	}
	group.Count++
	if e.limit(group.Count) == group.Count {
		group.Hosts = append(group.Hosts, Term{Name: host.Name, Message: term.Message})
	}
}

// sorted returns the groups with their remedies, the largest first. The remedy of a group of
// one host names it, and that of a group that lacks labels names its first host.
func sorted(groups map[string]*Group) []Group {
	all := make([]Group, 0, len(groups))
	for _, group := range groups {
		group.Remedy = remedyFor(group.Reason, group.subject)
		all = append(all, *group)
	}
	slices.SortFunc(all, func(a, b Group) int { return cmp.Or(b.Count-a.Count, cmp.Compare(a.Reason, b.Reason)) })
	return all
}

// remedyFor is remedy.For with the reasons of this package.
func remedyFor(reason string, s remedy.Subject) string {
	switch reason {
	case notTheEndpoint:
		return "Nothing to do for these hosts: machines after the first one may have them"
	case notReserved:
		return remedy.Wait + " when the ElementalCluster has reserved the host; until then its condition ControlPlaneEndpointReady says why not"
	default:
		return remedy.For(reason, s)
	}
}
