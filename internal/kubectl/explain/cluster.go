package explain

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/remedy"
)

// Cluster explains a Cluster: its endpoint, and what its machines, their remediations and upgrades,
// and the restores of its etcd wait for.
func (e *Explainer) Cluster(ctx context.Context, namespace, name string) (*Report, error) {
	cluster, infra, err := e.cluster(ctx, namespace, name)
	switch {
	case err != nil:
		return nil, err
	case cluster == nil:
		return nil, fmt.Errorf("there is no Cluster %s in namespace %s; name another, or give --namespace", name, namespace)
	case infra == nil:
		return nil, fmt.Errorf("the infrastructureRef of Cluster %s names no ElementalCluster that exists; create it or correct the reference", name)
	}
	r := &Report{Kind: "Cluster", Namespace: namespace, Name: name}
	r.endpoint(infra)
	r.clusterProblems(infra, remedy.Subject{Namespace: namespace, Cluster: name, Host: endpointHost(infra)})
	if err := e.machines(ctx, r); err != nil {
		return nil, err
	}
	if err := e.remediations(ctx, r); err != nil {
		return nil, err
	}
	if err := e.restores(ctx, r); err != nil {
		return nil, err
	}
	r.Summary = "it waits for nothing"
	if n := len(r.Problems); n > 0 {
		r.Summary = fmt.Sprintf("%d things are not as desired", n)
		if n == 1 {
			r.Summary = "one thing is not as desired"
		}
	}
	return r, nil
}

func endpointHost(c *infrav1.ElementalCluster) string {
	if ref := c.Spec.ControlPlaneEndpointPolicy.HostRef; ref != nil {
		return ref.Name
	}
	return ""
}

// endpoint adds the facts of the endpoint: who has filled it, and whether it moves.
func (r *Report) endpoint(c *infrav1.ElementalCluster) {
	endpoint := "none yet"
	if c.Spec.ControlPlaneEndpoint.Host != "" {
		endpoint = c.Spec.ControlPlaneEndpoint.WithDefaultPort().HostPort()
	}
	r.fact("Endpoint", endpoint)
	r.fact("Endpoint type", string(c.EndpointType()))
	r.fact("Endpoint host", endpointHost(c))
	if s := c.Status.Endpoint; s != nil && s.LastMove != nil {
		move := s.LastMove
		state := "completed at " + move.CompletedAt.UTC().Format(timeFormat)
		if move.CompletedAt.IsZero() {
			state = "since " + move.StartedAt.UTC().Format(timeFormat) + ", not completed"
		}
		r.fact("Last move", fmt.Sprintf("%s to %s (%s), %s", move.From, move.To, move.Cause, state))
	}
}

// clusterProblems adds the conditions of an ElementalCluster that are not as desired.
func (r *Report) clusterProblems(c *infrav1.ElementalCluster, s remedy.Subject) {
	object := "ElementalCluster " + c.Name
	if len(c.Status.Conditions) == 0 {
		r.unseen(object)
		return
	}
	for i := range c.Status.Conditions {
		condition := c.Status.Conditions[i]
		desired := metav1.ConditionTrue
		if condition.Type == clusterv1.PausedCondition {
			desired = metav1.ConditionFalse
		}
		// Ready repeats the reason of another condition, except for a deletion.
		repeats := condition.Type == infrav1.ReadyCondition && c.DeletionTimestamp.IsZero()
		if condition.Status != desired && !repeats {
			r.problem(object, condition, s)
		}
	}
}

// machines counts the machines of the cluster, and adds what the first of them wait for.
func (e *Explainer) machines(ctx context.Context, r *Report) error {
	list := &infrav1.ElementalMachineList{}
	counts := map[bool]int{}
	ready := map[bool]int{}
	waiting := 0
	err := each(ctx, e.Client, list, func() error {
		for i := range list.Items {
			m := &list.Items[i]
			_, isControlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]
			counts[isControlPlane]++
			if meta.IsStatusConditionTrue(m.Status.Conditions, infrav1.ReadyCondition) {
				ready[isControlPlane]++
			}
			before := len(r.Problems)
			s := remedy.Subject{Namespace: m.Namespace, Machine: machineName(m), Cluster: r.Name}
			if m.Spec.HostRef != nil {
				s.Host = m.Spec.HostRef.Name
			}
			r.machineProblems("Machine "+s.Machine, m, s)
			if len(r.Problems) > before {
				waiting++
				if e.limit(waiting) < waiting {
					r.Problems = r.Problems[:before]
				}
			}
		}
		return nil
	}, client.InNamespace(r.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: r.Name})
	if err != nil {
		return err
	}
	r.fact("Control-plane machines", fmt.Sprintf("%d of %d ready", ready[true], counts[true]))
	r.fact("Worker machines", fmt.Sprintf("%d of %d ready", ready[false], counts[false]))
	if shown := e.limit(waiting); shown < waiting {
		r.fact("Machines that wait", fmt.Sprintf("%d, of which the first %d are below; --all shows all", waiting, shown))
	}
	return nil
}

// machineName returns the name of the Machine of an ElementalMachine.
func machineName(m *infrav1.ElementalMachine) string {
	for _, ref := range m.OwnerReferences {
		if ref.Kind == "Machine" {
			return ref.Name
		}
	}
	return m.Name
}

// remediations adds what the remediations of the cluster's machines wait for.
func (e *Explainer) remediations(ctx context.Context, r *Report) error {
	list := &infrav1.ElementalRemediationList{}
	return each(ctx, e.Client, list, func() error {
		for i := range list.Items {
			m := &list.Items[i]
			object := "ElementalRemediation " + m.Name
			c := meta.FindStatusCondition(m.Status.Conditions, infrav1.ReadyCondition)
			switch {
			case c == nil:
				r.unseen(object)
			case c.Status != metav1.ConditionTrue:
				r.problem(object, *c, remedy.Subject{Namespace: m.Namespace, Machine: m.Name, Cluster: r.Name})
			}
		}
		return nil
	}, client.InNamespace(r.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: r.Name})
}
