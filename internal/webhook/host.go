package webhook

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rights"
)

// The match conditions of this webhook are in config/webhook: it is called only for
// changes that need a verb or that RequestLog records, and not for those of the manager itself.
// The manager has the verbs all the same: its name is another one if it is installed in another
// namespace.
//
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementalhost,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,versions=v1beta2,name=audit.elementalhost.infrastructure.cluster.x-k8s.io,sideEffects=NoneOnDryRun,admissionReviewVersions=v1
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=approve;release;erase;install;restore;grant;logs

// RequestLog records which user requests a change of a host, confirms a restore, grants hosts, or
// changes what the hosts of a registration run. source is the
// address of the webhook's caller, which should be the API server's. before is an empty object if
// the user creates the object.
type RequestLog interface {
	RecordRequest(ctx context.Context, user, source string, before, after *infrav1.ElementalHost)
	RecordRestore(ctx context.Context, user, source string, before, after *infrav1.ElementalEtcdRestore)
	RecordGrant(ctx context.Context, user, source string, before, after *infrav1.ElementalHostGrant)
	RecordRegistration(ctx context.Context, user, source string, before, after *infrav1.ElementalRegistration)
}

// sourceKey is the context key of the address of the webhook's caller.
type sourceKey struct{}

// withSource adds the address of the caller to the context of a request. API servers do not
// authenticate themselves to webhooks, so whoever reaches the port can name any user.
func withSource(ctx context.Context, r *http.Request) context.Context {
	return context.WithValue(ctx, sourceKey{}, r.RemoteAddr)
}

// sourceOf returns what withSource has added.
func sourceOf(ctx context.Context) string {
	source, _ := ctx.Value(sourceKey{}).(string)
	return source
}

// hostValidator denies changes that their user lacks a verb for, and records all others. Only
// admission knows the user: the object and its watch don't name who changed it.
type hostValidator struct {
	reviews  Reviewer
	requests RequestLog
}

var _ admission.Validator[*infrav1.ElementalHost] = hostValidator{}

func (v hostValidator) ValidateCreate(ctx context.Context, host *infrav1.ElementalHost) (admission.Warnings, error) {
	return nil, v.validate(ctx, &infrav1.ElementalHost{}, host)
}

func (v hostValidator) ValidateUpdate(ctx context.Context, oldHost, newHost *infrav1.ElementalHost) (admission.Warnings, error) {
	return nil, v.validate(ctx, oldHost, newHost)
}

func (hostValidator) ValidateDelete(context.Context, *infrav1.ElementalHost) (admission.Warnings, error) {
	return nil, nil
}

func (v hostValidator) validate(ctx context.Context, before, after *infrav1.ElementalHost) error {
	verbs := rights.OfHost(before.Spec, after.Spec)
	if controllerutil.ContainsFinalizer(before, infrav1.GrantedHostFinalizer) && !controllerutil.ContainsFinalizer(after, infrav1.GrantedHostFinalizer) &&
		!slices.Contains(verbs, rights.Grant) {
		verbs = append(verbs, rights.Grant) // without it the host would not go back to its pool
	}
	if err := requireVerbs(ctx, v.reviews, hostResource, after, verbs); err != nil {
		return err
	}
	return recordWith(ctx, v.requests.RecordRequest, before, after)
}

// recordWith records a request by a method of RequestLog, unless it is a dry run.
func recordWith[T any](ctx context.Context, record func(ctx context.Context, user, source string, before, after T), before, after T) error {
	req, err := admission.RequestFromContext(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("reading the admission request: %w", err))
	}
	if !ptr.Deref(req.DryRun, false) {
		record(ctx, req.UserInfo.Username, sourceOf(ctx), before, after)
	}
	return nil
}
