package webhook

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// The match conditions of this webhook are in config/webhook: it is called only for
// changes that RequestLog records, and not for those of the manager itself.
//
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementalhost,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,versions=v1beta2,name=audit.elementalhost.infrastructure.cluster.x-k8s.io,sideEffects=NoneOnDryRun,admissionReviewVersions=v1

// RequestLog records which user requests a change of a host. source is the address of the
// webhook's caller, which should be the API server's. before is an empty host if the user
// creates the host.
type RequestLog interface {
	RecordRequest(ctx context.Context, user, source string, before, after *infrav1.ElementalHost)
}

// sourceKey is the context key of the address of the webhook's caller.
type sourceKey struct{}

// withSource adds the address of the caller to the context of a request. API servers do not
// authenticate themselves to webhooks, so whoever reaches the port can name any user.
func withSource(ctx context.Context, r *http.Request) context.Context {
	return context.WithValue(ctx, sourceKey{}, r.RemoteAddr)
}

// hostRecorder records requests and denies none. Only admission knows the user: the
// object and its watch don't name who changed it.
type hostRecorder struct{ requests RequestLog }

var _ admission.Validator[*infrav1.ElementalHost] = hostRecorder{}

func (r hostRecorder) ValidateCreate(ctx context.Context, host *infrav1.ElementalHost) (admission.Warnings, error) {
	return nil, r.record(ctx, &infrav1.ElementalHost{}, host)
}

func (r hostRecorder) ValidateUpdate(ctx context.Context, oldHost, newHost *infrav1.ElementalHost) (admission.Warnings, error) {
	return nil, r.record(ctx, oldHost, newHost)
}

func (hostRecorder) ValidateDelete(context.Context, *infrav1.ElementalHost) (admission.Warnings, error) {
	return nil, nil
}

func (r hostRecorder) record(ctx context.Context, before, after *infrav1.ElementalHost) error {
	req, err := admission.RequestFromContext(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("reading the admission request: %w", err))
	}
	if ptr.Deref(req.DryRun, false) {
		return nil
	}
	source, _ := ctx.Value(sourceKey{}).(string)
	r.requests.RecordRequest(ctx, req.UserInfo.Username, source, before, after)
	return nil
}
