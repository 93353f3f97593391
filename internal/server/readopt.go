package server

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
)

// readopt shows a host that was enrolled before, and that is not known here, as a
// pending host, if a registration of the namespace it was in allows that. What it
// says of its past decides about nothing but its name and where it is shown: who
// lets it in is an administrator. Refused is what it is told otherwise, the same
// as for a bad token, so that nobody learns what namespaces there are.
func (s *Server) readopt(ctx context.Context, who enrolee, refused error) (*infrav1.ElementalHost, error) {
	previous := who.request.Previous
	registrations, err := s.readopting(ctx, previous.Namespace)
	if err != nil {
		return nil, err
	}
	if len(registrations) == 0 {
		return nil, refused
	}
	hostID := newHostID()
	// As much of it as is a name.
	name := hostname.WithSuffix(previous.Name, "")
	if name == "" {
		name = hostname.WithSuffix("host", hostID)
	}
	host := &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: previous.Namespace, Name: name},
		Spec: infrav1.ElementalHostSpec{
			HostID:        hostID,
			Identity:      &infrav1.HostIdentity{KeyFingerprint: who.fingerprint, Generation: 1},
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
	release, err := s.reserve(ctx, host, registrations...)
	if err != nil {
		return nil, err
	}
	defer release()
	created, err := s.create(ctx, host)
	if err != nil {
		return nil, err
	}
	s.audit(ctx, decidedReadopted, created, "keyFingerprint", who.fingerprint,
		"previously", klog.KRef(text(previous.Namespace), text(previous.Name)), "previousHostID", text(previous.HostID))
	return created, nil
}

// readopting returns the registrations of a namespace that let hosts come back,
// by name.
func (s *Server) readopting(ctx context.Context, namespace string) ([]*infrav1.ElementalRegistration, error) {
	// All that are watched: the cache takes a namespace that is not for an error.
	var list infrav1.ElementalRegistrationList
	if err := s.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing registrations: %w", err)
	}
	var found []*infrav1.ElementalRegistration
	for i := range list.Items {
		r := &list.Items[i]
		if r.Namespace == namespace && r.Spec.Readoption != infrav1.ReadoptionDenied && r.DeletionTimestamp.IsZero() {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *infrav1.ElementalRegistration) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}
