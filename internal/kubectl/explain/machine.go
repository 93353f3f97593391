package explain

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/objects"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/remedy"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// Machine explains the Machine with the name, or the ElementalMachine.
func (e *Explainer) Machine(ctx context.Context, namespace, name string) (*Report, error) {
	m, err := e.machine(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	s := subjectOf(m)
	r := &Report{Kind: "Machine", Namespace: namespace, Name: s.Machine, Summary: stateOf(m.Machine)}
	r.fact("ElementalMachine", m.Machine.Name)
	r.fact("Cluster", s.Cluster)
	if m.Owner != nil {
		r.fact("Role", roleOf(m.Owner))
		r.fact("Failure domain", m.Owner.Spec.FailureDomain)
		r.fact("Version", m.Owner.Spec.Version)
	}
	r.fact("Host", s.Host)
	r.machineProblems("ElementalMachine "+m.Machine.Name, m.Machine, s)
	if s.Host == "" {
		if m.Owner != nil && m.Cluster != nil && m.Machine.DeletionTimestamp.IsZero() {
			r.Hosts, err = e.hosts(ctx, m, s)
		}
		for i := range r.Problems {
			if r.Problems[i].Reason == infrav1.NoHostReason {
				r.Problems[i].Remedy = "Make one of the hosts below available, or enrol another one"
			}
		}
		return r, err
	}
	host, err := objects.Get(ctx, e.Client, namespace, s.Host, &infrav1.ElementalHost{})
	if err != nil || host == nil {
		return r, err
	}
	ofMachine := r.Problems
	r.Problems = nil
	r.hostProblems(e.derived(host))
	// What the machine repeats of its host is left out: the host says more.
	for _, p := range r.Problems {
		ofMachine = slices.DeleteFunc(ofMachine, func(repeated Problem) bool { return repeated.Reason == p.Reason })
	}
	r.Problems = append(ofMachine, r.Problems...)
	return r, nil
}

// stateOf returns the reason of the condition Ready.
func stateOf(m *infrav1.ElementalMachine) string {
	ready := meta.FindStatusCondition(m.Status.Conditions, infrav1.ReadyCondition)
	switch {
	case meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.PausedCondition):
		return "it is paused"
	case ready == nil:
		return "no manager has looked at it"
	case ready.Status == metav1.ConditionTrue:
		return "it is " + ready.Reason + " and waits for nothing"
	default:
		return "it waits: " + ready.Reason
	}
}

func roleOf(m *clusterv1.Machine) string {
	if _, ok := m.Labels[clusterv1.MachineControlPlaneLabel]; ok {
		return "control plane"
	}
	return "worker"
}

func subjectOf(m placement.Machine) remedy.Subject {
	s := remedy.Subject{Namespace: m.Machine.Namespace, Machine: m.Machine.Name, Cluster: m.Machine.Labels[clusterv1.ClusterNameLabel]}
	if m.Owner != nil {
		s.Machine, s.Cluster = m.Owner.Name, m.Owner.Spec.ClusterName
	}
	if m.Machine.Spec.HostRef != nil {
		s.Host = m.Machine.Spec.HostRef.Name
	}
	return s
}

// machineProblems adds the conditions that are not as desired. While no host is claimed,
// nothing else about the machine can be.
func (r *Report) machineProblems(object string, m *infrav1.ElementalMachine, s remedy.Subject) {
	list := m.Status.Conditions
	if len(list) == 0 {
		r.unseen(object)
		return
	}
	if c := meta.FindStatusCondition(list, clusterv1.PausedCondition); c != nil && c.Status == metav1.ConditionTrue {
		r.problem(object, *c, s)
		return
	}
	types := []string{infrav1.HostClaimedCondition, infrav1.BootstrappedCondition, infrav1.KubernetesUpToDateCondition}
	if !m.DeletionTimestamp.IsZero() {
		types = []string{infrav1.ReadyCondition}
	}
	for _, conditionType := range types {
		c := meta.FindStatusCondition(list, conditionType)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		r.problem(object, *c, s)
		if conditionType == infrav1.HostClaimedCondition {
			return
		}
	}
}
