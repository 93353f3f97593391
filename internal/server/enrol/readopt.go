package enrol

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hostname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/facts"
)

// readopt creates a pending host for a machine that reports to have been enrolled before, if
// a registration of its former namespace allows that. What the machine reports decides only
// the host's name and namespace; an administrator decides about its approval. Otherwise
// readopt returns the refusal of the token, so that the answer does not reveal which
// namespaces exist.
func (e *Enroller) readopt(ctx context.Context, caller Caller, refused error) (*infrav1.ElementalHost, error) {
	previous := caller.Request.Previous
	registrations, err := e.readoptingRegistrations(ctx, previous.Namespace)
	if err != nil {
		return nil, err
	}
	if len(registrations) == 0 {
		return nil, refused
	}
	hostID := newHostID()
	// WithSuffix removes characters that are invalid in a name.
	name := hostname.WithSuffix(previous.Name, "")
	if name == "" {
		name = hostname.WithSuffix("host", hostID)
	}
	host := &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: previous.Namespace, Name: name},
		Spec: infrav1.ElementalHostSpec{
			HostID:        hostID,
			Identity:      &infrav1.HostIdentity{KeyFingerprint: caller.Fingerprint, Generation: 1},
			Approval:      infrav1.ApprovalPending,
			PendingReason: infrav1.PendingReadopted,
		},
	}
	if len(registrations) == 1 {
		only := registrations[0]
		host.Spec.RegistrationRef = &infrav1.LocalReference{Name: only.Name}
		host.Labels = templateLabels(only)
		host.Annotations = maps.Clone(only.Spec.HostTemplate.Annotations)
	} else if filter, ok := registrations[0].Labels[clusterv1.WatchLabel]; ok {
		host.Labels = map[string]string{clusterv1.WatchLabel: filter}
	}
	release, err := e.reserve(ctx, host, index.ReadoptedHosts, registrations...)
	if err != nil {
		return nil, err
	}
	defer release()
	created, err := e.create(ctx, host)
	if err != nil {
		return nil, err
	}
	e.audit.Record(ctx, audit.Readopted, created, "keyFingerprint", caller.Fingerprint,
		"previously", klog.KRef(facts.Text(previous.Namespace), facts.Text(previous.Name)), "previousHostID", facts.Text(previous.HostID))
	return created, nil
}

// readoptingRegistrations returns the registrations of a namespace that allow re-adoption,
// sorted by name.
func (e *Enroller) readoptingRegistrations(ctx context.Context, namespace string) ([]*infrav1.ElementalRegistration, error) {
	// Of all namespaces, because the cache returns an error for one that it does not watch.
	var list infrav1.ElementalRegistrationList
	if err := e.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing registrations: %w", err)
	}
	var found []*infrav1.ElementalRegistration
	for i := range list.Items {
		r := &list.Items[i]
		if r.Namespace == namespace && r.Spec.Readoption == infrav1.ReadoptionPending && r.DeletionTimestamp.IsZero() {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *infrav1.ElementalRegistration) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}
