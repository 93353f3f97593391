package sites

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/bare"
)

// States counts sites by the reason of their condition KubernetesUpToDate.
func (c *Client) States(ctx context.Context) (map[string]int, error) {
	machines := &infrav1.ElementalMachineList{}
	if err := c.Admin.List(ctx, machines, client.InNamespace(c.Machines.Namespace)); err != nil {
		return nil, fmt.Errorf("reading the states of sites: %w", err)
	}
	states := map[string]int{}
	for i := range machines.Items {
		if is := upToDate(&machines.Items[i]); is != nil {
			states[is.Reason]++
		}
	}
	return states, nil
}

func upToDate(m *infrav1.ElementalMachine) *metav1.Condition {
	return meta.FindStatusCondition(m.Status.Conditions, infrav1.KubernetesUpToDateCondition)
}

// IsProvisioned reports whether the Machine of a site is provisioned.
func (c *Client) IsProvisioned(ctx context.Context, site int) (bool, error) {
	machine := &infrav1.ElementalMachine{}
	if err := c.Admin.Get(ctx, client.ObjectKey{Namespace: c.Machines.Namespace, Name: name(site)}, machine); err != nil {
		return false, fmt.Errorf("reading a site: %w", err)
	}
	return ptr.Deref(machine.Status.Initialization.Provisioned, false), nil
}

// strangers counts hosts that are not what they were before the upgrade: bound to a Machine, for
// which they were bootstrapped once, and never reset.
func (c *Client) strangers(ctx context.Context) (int, error) {
	hosts := &infrav1.ElementalHostList{}
	if err := c.Admin.List(ctx, hosts, client.InNamespace(c.Machines.Namespace)); err != nil {
		return 0, fmt.Errorf("looking for hosts that were reset: %w", err)
	}
	strangers := 0
	for i := range hosts.Items {
		h := &hosts.Items[i]
		if h.Spec.Claim == nil || inplace.Request(h) == nil || slices.ContainsFunc(h.Status.Operations, func(o infrav1.HostOperation) bool { return o.Type == infrav1.OperationReset }) {
			strangers++
		}
	}
	return strangers, nil
}

// Follow looks at all sites once, and writes what Cluster API writes next: the new version of a
// Machine that is marked, and the end of an update that is done. It returns the number of sites
// whose update has ended.
func (c *Client) Follow(ctx context.Context) (ended int, err error) {
	owners, machines := &clusterv1.MachineList{}, &infrav1.ElementalMachineList{}
	for _, list := range []client.ObjectList{owners, machines} {
		if err := c.Admin.List(ctx, list, client.InNamespace(c.Machines.Namespace)); err != nil {
			return 0, fmt.Errorf("reading sites: %w", err)
		}
	}
	done := map[string]bool{}
	for i := range machines.Items {
		is := upToDate(&machines.Items[i])
		done[machines.Items[i].Name] = is != nil && is.Status == metav1.ConditionTrue
	}
	var next []func(context.Context) error
	for i := range owners.Items {
		switch owner := &owners.Items[i]; {
		case inplace.IsAsked(owner) && done[owner.Name]:
			next = append(next, func(ctx context.Context) error { return c.end(ctx, owner.Name) })
		case inplace.IsMarked(owner.Annotations) && !inplace.IsAsked(owner):
			next = append(next, func(ctx context.Context) error { return c.ask(ctx, owner.Name) })
		case !inplace.IsMarked(owner.Annotations) && owner.Spec.Version == Wanted:
			ended++
		}
	}
	return ended, bare.Each(ctx, len(next), atOnce, func(ctx context.Context, i int) error { return next[i](ctx) })
}

// ask writes what a marked Machine is to be, and asks for its update.
func (c *Client) ask(ctx context.Context, name string) error {
	if err := patch(ctx, c, &infrav1.ElementalMachine{ObjectMeta: c.meta(name)}, func(m *infrav1.ElementalMachine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.UpdateInProgressAnnotation, "")
	}); err != nil {
		return err
	}
	return patch(ctx, c, &clusterv1.Machine{ObjectMeta: c.meta(name)}, func(m *clusterv1.Machine) {
		m.Spec.Version = Wanted
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, runtimev1.PendingHooksAnnotation, "UpdateMachine")
	})
}

// end removes the marks of a Machine that has been updated.
func (c *Client) end(ctx context.Context, name string) error {
	if err := c.node(ctx, name, Wanted, metav1.ConditionTrue); err != nil {
		return err
	}
	if err := patch(ctx, c, &infrav1.ElementalMachine{ObjectMeta: c.meta(name)}, func(m *infrav1.ElementalMachine) {
		delete(m.Annotations, clusterv1.UpdateInProgressAnnotation)
	}); err != nil {
		return err
	}
	return patch(ctx, c, &clusterv1.Machine{ObjectMeta: c.meta(name)}, func(m *clusterv1.Machine) {
		delete(m.Annotations, clusterv1.UpdateInProgressAnnotation)
		delete(m.Annotations, runtimev1.PendingHooksAnnotation)
	})
}
