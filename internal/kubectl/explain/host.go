package explain

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/hostlog"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/objects"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/remedy"
)

// Host explains an ElementalHost.
func (e *Explainer) Host(ctx context.Context, namespace, name string) (*Report, error) {
	host, err := objects.Get(ctx, e.Client, namespace, name, &infrav1.ElementalHost{})
	if err != nil {
		return nil, err
	}
	if host == nil {
		return nil, fmt.Errorf("there is no ElementalHost %s in namespace %s; name another, or give --namespace", name, namespace)
	}
	host = e.derived(host)
	r := &Report{Kind: "ElementalHost", Namespace: namespace, Name: name, Summary: "its state is " + stateOfHost(host)}
	if claim := host.Spec.Claim; claim != nil {
		r.fact("Claim", fmt.Sprintf("%s, %sCluster %s", claim.Phase, machineOf(claim), claim.ClusterName))
	}
	if host.Spec.Identity != nil {
		r.fact("Key", host.Spec.Identity.KeyFingerprint)
	}
	if host.Status.Agent != nil {
		r.fact("Agent", host.Status.Agent.Version)
	}
	for i := range host.Status.Operations {
		op := &host.Status.Operations[i]
		r.fact("Operation "+string(op.Type), strings.TrimSuffix(fmt.Sprintf("%s at step %s", op.State, op.Step), " at step "))
	}
	switch offered := hoststatus.Available(host); {
	case offered.IsTrue() && host.IsAdoptable():
		r.fact("Offered to machines", "of Cluster "+host.Spec.Adoption.ClusterName+" only, to take over its Node")
	case offered.IsTrue():
		r.fact("Offered to machines", "yes")
	default:
		r.fact("Offered to machines", "no: "+offered.Reason())
	}
	r.hostProblems(host)
	r.Machines, err = e.waiting(ctx, host)
	return r, err
}

func machineOf(claim *infrav1.HostClaim) string {
	if claim.MachineName == "" {
		return ""
	}
	return "Machine " + claim.MachineName + " of "
}

// derived returns the host with the conditions that follow from what it has now, as the
// manager would write them.
func (e *Explainer) derived(host *infrav1.ElementalHost) *infrav1.ElementalHost {
	host = host.DeepCopy()
	hoststatus.Update(host, metav1.NewTime(e.Clock.Now()))
	return host
}

func stateOfHost(host *infrav1.ElementalHost) string {
	if ready := meta.FindStatusCondition(host.Status.Conditions, infrav1.ReadyCondition); ready != nil {
		return ready.Reason
	}
	return "unknown"
}

// subjectOfHost is the host with the machine that has claimed it.
func subjectOfHost(host *infrav1.ElementalHost) remedy.Subject {
	s := remedy.Subject{Namespace: host.Namespace, Host: host.Name, Output: remedy.OutputOnHost}
	if hostlog.Answers(host) {
		s.Output = remedy.OutputByLogs
	}
	if ref := host.Spec.RegistrationRef; ref != nil {
		s.Registration = ref.Name
	}
	if claim := host.Spec.Claim; claim != nil {
		s.Cluster, s.Machine = claim.ClusterName, claim.MachineName
	}
	return s
}

// hostProblems adds the conditions of the host that are not as desired. A condition that
// says what the claim says is no problem.
func (r *Report) hostProblems(host *infrav1.ElementalHost) {
	s := subjectOfHost(host)
	for _, conditionType := range []string{
		infrav1.ApprovedCondition, infrav1.KeyAcceptedCondition, infrav1.ConnectedCondition, infrav1.MachineExistsCondition,
		infrav1.CleanCondition, infrav1.BootstrappedCondition, infrav1.AvailableCondition, infrav1.PreparedCondition,
		infrav1.ClockSynchronizedCondition, infrav1.AgentCurrentCondition, infrav1.CertificatesValidCondition,
	} {
		c := meta.FindStatusCondition(host.Status.Conditions, conditionType)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		switch c.Reason {
		case infrav1.InUseReason, infrav1.NotClaimedReason, infrav1.ClaimedReason, infrav1.ReservedReason:
			continue
		case infrav1.NotReportedReason:
			// Hosts of which nobody has heard have a problem of their own.
			if !host.IsConnected() || conditionType == infrav1.PreparedCondition {
				continue
			}
		}
		r.problem("ElementalHost "+host.Name, *c, s)
	}
	if c := meta.FindStatusCondition(host.Status.Conditions, clusterv1.PausedCondition); c != nil && c.Status == metav1.ConditionTrue {
		r.problem("ElementalHost "+host.Name, *c, s)
	}
}

// waiting returns the machines of the namespace without a host, and what rules this host out
// for the first of them.
func (e *Explainer) waiting(ctx context.Context, host *infrav1.ElementalHost) (*Machines, error) {
	found := &Machines{}
	list := &infrav1.ElementalMachineList{}
	err := each(ctx, e.Client, list, func() error {
		for i := range list.Items {
			machine := &list.Items[i]
			if machine.Spec.HostRef != nil || !machine.DeletionTimestamp.IsZero() {
				continue
			}
			found.Waiting++
			if e.limit(found.Waiting) < found.Waiting {
				continue
			}
			term, err := e.term(ctx, machine.DeepCopy(), host)
			if err != nil {
				return err
			}
			found.Examined = append(found.Examined, term)
		}
		return nil
	}, client.InNamespace(host.Namespace))
	if err != nil {
		return nil, err
	}
	return found, nil
}

// term returns what rules the host out for the machine.
func (e *Explainer) term(ctx context.Context, machine *infrav1.ElementalMachine, host *infrav1.ElementalHost) (Term, error) {
	m, err := e.complete(ctx, machine)
	if err != nil {
		return Term{}, err
	}
	s := subjectOf(m)
	if m.Owner == nil || m.Cluster == nil {
		return Term{Name: s.Machine, Reason: infrav1.WaitingForOwnerReason, Remedy: remedy.For(infrav1.WaitingForOwnerReason, s)}, nil
	}
	required, err := e.required(ctx, m)
	if err != nil {
		return Term{}, err
	}
	found := &Hosts{Required: required}
	groups := map[string]*Group{}
	e.judge(found, groups, m.Constraints(ctx, e.Selectors), host, m.Cluster.Name)
	for _, group := range sorted(groups) {
		return Term{Name: m.Owner.Name, Reason: group.Reason, Message: group.Hosts[0].Message, Remedy: group.Remedy}, nil
	}
	return Term{Name: m.Owner.Name}, nil
}
