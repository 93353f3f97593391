package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacconfig "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// namePrefix starts the names of the bindings; the ClusterRole's name follows.
	namePrefix = "elemental-access:"
	// label is on all bindings of the provider. A binding without it is not the provider's,
	// whatever its name is.
	label = "infrastructure.cluster.x-k8s.io/elemental-access"
	// fieldManager is the field manager of the bindings.
	fieldManager = client.FieldOwner("elemental-access")
)

// binding is a ClusterRoleBinding as it has to be.
type binding struct {
	role     string
	subjects []rbacv1.Subject
}

func (b binding) name() string { return namePrefix + b.role }

func (b binding) roleRef() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role}
}

// wanted returns the bindings of spec.access, which may be nil. It is pure.
func wanted(access *infrav1.Access) []binding {
	if access == nil {
		return nil
	}
	out := make([]binding, 0, len(access.Bindings))
	for _, of := range access.Bindings {
		b := binding{role: of.ClusterRole}
		for _, user := range of.Users {
			b.subjects = append(b.subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
		}
		for _, group := range of.Groups {
			b.subjects = append(b.subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
		}
		out = append(out, b)
	}
	return out
}

// findings are the names that apply reports of a workload cluster.
type findings struct {
	// written are the bindings that were created or changed.
	written []string
	// taken are the bindings whose names are taken by bindings without the label.
	taken []string
	// missing are ClusterRoles that don't exist.
	missing []string
}

// apply makes the provider's bindings in the workload cluster equal to these. An error of one
// binding does not keep apply from the next, unless the cluster does not answer.
func apply(ctx context.Context, workload client.Client, bindings []binding) (findings, error) {
	list := &rbacv1.ClusterRoleBindingList{}
	if err := workload.List(ctx, list, client.HasLabels{label}); err != nil {
		return findings{}, fmt.Errorf("listing ClusterRoleBindings: %w", err)
	}
	existing := map[string]*rbacv1.ClusterRoleBinding{}
	for i := range list.Items {
		// A label alone makes nothing the provider's.
		if is := &list.Items[i]; strings.HasPrefix(is.Name, namePrefix) {
			existing[is.Name] = is
		}
	}
	var out findings
	var failures []error
	for _, b := range bindings {
		is := existing[b.name()]
		delete(existing, b.name())
		err := out.ensure(ctx, workload, b, is)
		if err == nil {
			err = out.checkRole(ctx, workload, b)
		}
		if err != nil && !isAnswer(err) {
			return out, err
		}
		failures = append(failures, err)
	}
	for _, is := range existing {
		failures = append(failures, remove(ctx, workload, is))
	}
	return out, errors.Join(failures...)
}

// ensure makes one binding as it has to be. is is nil if the provider has none of its name.
func (f *findings) ensure(ctx context.Context, workload client.Client, b binding, is *rbacv1.ClusterRoleBinding) error {
	switch {
	case is == nil:
		return f.create(ctx, workload, b)
	case is.RoleRef != b.roleRef():
		// It is immutable.
		if err := remove(ctx, workload, is); err != nil {
			return err
		}
		return f.create(ctx, workload, b)
	case slices.Equal(is.Subjects, b.subjects):
		return nil
	}
	// With the version it fails if somebody has replaced the binding meanwhile.
	config := rbacconfig.ClusterRoleBinding(b.name()).WithResourceVersion(is.ResourceVersion).WithLabels(map[string]string{label: ""}).
		WithRoleRef(rbacconfig.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(b.role))
	for _, subject := range b.subjects {
		config.WithSubjects(rbacconfig.Subject().WithAPIGroup(subject.APIGroup).WithKind(subject.Kind).WithName(subject.Name))
	}
	if err := workload.Apply(ctx, config, fieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying ClusterRoleBinding %s: %w", b.name(), err)
	}
	f.written = append(f.written, b.name())
	return nil
}

// create creates a binding. Server-side apply would take over one that is there.
func (f *findings) create(ctx context.Context, workload client.Client, b binding) error {
	object := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: b.name(), Labels: map[string]string{label: ""}}, RoleRef: b.roleRef(), Subjects: b.subjects,
	}
	switch err := workload.Create(ctx, object, fieldManager); {
	case apierrors.IsAlreadyExists(err):
		f.taken = append(f.taken, b.name())
	case err != nil:
		return fmt.Errorf("creating ClusterRoleBinding %s: %w", b.name(), err)
	default:
		f.written = append(f.written, b.name())
	}
	return nil
}

// checkRole notes that the binding's ClusterRole does not exist.
func (f *findings) checkRole(ctx context.Context, workload client.Client, b binding) error {
	role := &metav1.PartialObjectMetadata{}
	role.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	switch err := workload.Get(ctx, client.ObjectKey{Name: b.role}, role); {
	case apierrors.IsNotFound(err):
		f.missing = append(f.missing, b.role)
	case err != nil:
		return fmt.Errorf("getting ClusterRole %s: %w", b.role, err)
	}
	return nil
}

// remove deletes the binding that was read, not another one of its name.
func remove(ctx context.Context, workload client.Client, is *rbacv1.ClusterRoleBinding) error {
	err := workload.Delete(ctx, is, client.Preconditions{UID: &is.UID, ResourceVersion: &is.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting ClusterRoleBinding %s: %w", is.Name, err)
	}
	return nil
}

// isAnswer reports whether the workload cluster's API server has answered with the error.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}
