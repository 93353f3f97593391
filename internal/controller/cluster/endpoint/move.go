package endpoint

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// maxFormerEndpoints is the API's limit of recorded former endpoints.
const maxFormerEndpoints = 16

// move makes the address of another host the endpoint. The patch is a compare-and-swap,
// so that only one of several managers moves the endpoint.
func (r *Reconciler) move(ctx context.Context, s *scope.Scope, c failover.Cluster, m failover.Move) error {
	policy, from := s.InfraCluster.Spec.ControlPlaneEndpointPolicy, s.InfraCluster.Spec.ControlPlaneEndpoint
	ctrl.LoggerFrom(ctx).Info("Moving the endpoint", "ElementalHost", klog.KObj(m.To), "cause", m.Cause,
		"from", from.HostPort(), "to", infrav1.ControlPlaneEndpoint{Host: m.Address, Port: from.Port}.HostPort())
	// Objects have times of whole seconds. chosenAt identifies a move, so it must be
	// later than the former one.
	chosenAt := r.Clock.Now().Truncate(time.Second)
	if before := policy.HostRef.ChosenAt.Time; !chosenAt.After(before) {
		chosenAt = before.Add(time.Second)
	}
	err := scope.PatchSpec(ctx, r.Client, s, "moving the endpoint to host "+m.To.Name, func(ec *infrav1.ElementalCluster) {
		replaceEndpoint(&ec.Spec, m.Address, policy.HostRef.Name, c.Uses)
		ec.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: m.To.Name, ChosenAt: metav1.NewTime(chosenAt)}
		if m.Cause == infrav1.MoveRequested {
			delete(ec.Annotations, infrav1.MoveEndpointAnnotation)
		}
	})
	if err != nil {
		return err
	}
	status := &s.InfraCluster.Status
	if status.Endpoint == nil {
		status.Endpoint = &infrav1.EndpointStatus{}
	}
	status.Endpoint.Moves++
	status.Endpoint.LastMove = &infrav1.EndpointMove{From: from.Host, To: m.Address, Cause: m.Cause, StartedAt: metav1.NewTime(chosenAt)}
	for _, o := range []client.Object{s.InfraCluster, s.Cluster} {
		r.Recorder.Eventf(o, m.To, corev1.EventTypeNormal, infrav1.EndpointMovingReason, "Move",
			"The control plane endpoint moves from %s to %s, the address of host %s (%s)", from.Host, m.Address, m.To.Name, m.Cause)
	}
	return nil
}

// replaceEndpoint makes an address the endpoint and records the former one.
// formerHost is the host of the former endpoint; blank if no host ever used it. Above
// the limit the oldest former endpoint that no host uses is dropped, else the oldest.
func replaceEndpoint(spec *infrav1.ElementalClusterSpec, to, formerHost string, isUsed func(infrav1.FormerEndpoint) bool) {
	from, policy := spec.ControlPlaneEndpoint.WithDefaultPort(), &spec.ControlPlaneEndpointPolicy
	spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: to, Port: from.Port}
	policy.Type = infrav1.EndpointTypeHost
	if from.Host == "" || address.Same(from.Host, to) {
		return
	}
	former := append([]infrav1.FormerEndpoint{{Host: from.Host, Port: from.Port, HostName: formerHost}},
		slices.DeleteFunc(slices.Clone(policy.FormerEndpoints), func(f infrav1.FormerEndpoint) bool {
			return address.Same(f.Host, from.Host) || address.Same(f.Host, to)
		})...)
	for len(former) > maxFormerEndpoints {
		drop := len(former) - 1
		for i := drop; i > 0; i-- {
			if !isUsed(former[i]) {
				drop = i
				break
			}
		}
		former = slices.Delete(former, drop, drop+1)
	}
	policy.FormerEndpoints = former
}

// refuseRequest removes the annotation that requests an impossible move.
func (r *Reconciler) refuseRequest(ctx context.Context, s *scope.Scope, why string) error {
	err := scope.PatchSpec(ctx, r.Client, s, "removing the request for a move", func(c *infrav1.ElementalCluster) {
		delete(c.Annotations, infrav1.MoveEndpointAnnotation)
	})
	if err != nil {
		return err
	}
	r.Recorder.Eventf(s.InfraCluster, nil, corev1.EventTypeWarning, infrav1.NoMoveCandidateReason, "Move",
		"The endpoint stays, and the annotation %s was removed: %s", infrav1.MoveEndpointAnnotation, why)
	return nil
}

// updateRejections records which former hosts have to reject connections to a former
// endpoint, and returns the progress of the move.
func (r *Reconciler) updateRejections(ctx context.Context, s *scope.Scope, c failover.Cluster, pending []string) (failover.Progress, error) {
	p := failover.AssessProgress(c, pending)
	if !p.StartRejecting && len(p.StopRejecting) == 0 {
		return p, nil
	}
	now := metav1.NewTime(r.Clock.Now().Truncate(time.Second))
	err := scope.PatchSpec(ctx, r.Client, s, "updating the rejection of former endpoints", func(c *infrav1.ElementalCluster) {
		former := c.Spec.ControlPlaneEndpointPolicy.FormerEndpoints
		if p.StartRejecting {
			former[0].RejectedSince = now
		}
		for _, i := range p.StopRejecting {
			former[i].RejectedSince = metav1.Time{}
		}
	})
	if err != nil {
		return failover.Progress{}, err
	}
	return failover.AssessProgress(c, pending), nil
}
