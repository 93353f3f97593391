package host

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// endLogRequest withdraws a request for a log that the host has not answered in time: a host that
// returns after weeks must not send a log that nobody waits for.
func endLogRequest(host *infrav1.ElementalHost, now time.Time) (hoststatus.Event, bool) {
	request := host.Spec.LogRequest
	if request == nil || now.Before(request.Until.Time) {
		return hoststatus.Event{}, false
	}
	host.Spec.LogRequest = nil
	return hoststatus.Event{
		Type: corev1.EventTypeNormal, Reason: infrav1.LogRequestEndedReason,
		Message: fmt.Sprintf("The host has not sent the log of its last %s in time", request.Operation),
	}, true
}

// removeExpiredLog removes the Secret with the host's log when it has expired, then the status that
// tells of it. It does so also while the host is paused.
func (r *Reconciler) removeExpiredLog(ctx context.Context, host *infrav1.ElementalHost) error {
	log := host.Status.Log
	if log == nil || r.Clock.Now().Before(log.ExpiresAt.Time) {
		return nil
	}
	// Also without log.SecretName: an answer without a log may have replaced one with a log.
	if err := r.deleteLog(ctx, host, infrav1.LogSecretName(host)); err != nil {
		return err
	}
	host.Status.Log = nil
	return nil
}

// deleteLog deletes the Secret with the host's log if it has expired by its own account: the host
// may have sent another one that this cache does not show yet.
func (r *Reconciler) deleteLog(ctx context.Context, host *infrav1.ElementalHost, name string) error {
	secret := &corev1.Secret{}
	if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: name}, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if !infrav1.IsLogOf(secret, host) {
		return nil
	}
	expires, err := time.Parse(time.RFC3339, secret.Annotations[infrav1.LogExpiresAnnotation])
	if err == nil && r.Clock.Now().Before(expires) {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Removing a log that has expired", "secretName", name)
	err = r.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing Secret %s: %w", name, err)
	}
	return nil
}
