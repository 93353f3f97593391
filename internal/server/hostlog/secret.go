package hostlog

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// writeSecret writes the log that the host's status describes. A Secret that has the answer to
// this request stays as it is.
func (r *Receiver) writeSecret(ctx context.Context, host *infrav1.ElementalHost, text []byte) error {
	answer := host.Status.Log
	wanted := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: host.Namespace, Name: answer.SecretName,
			Labels: map[string]string{infrav1.HostLogLabel: "true"},
			Annotations: map[string]string{
				infrav1.LogRequestAnnotation: answer.ID,
				infrav1.LogExpiresAnnotation: answer.ExpiresAt.UTC().Format(time.RFC3339),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(host, infrav1.GroupVersion.WithKind("ElementalHost"))},
		},
		Type: infrav1.HostLogSecretType, Data: map[string][]byte{infrav1.HostLogKey: printable(text)},
	}
	err := r.Client.Create(ctx, wanted)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Secret %s: %w", wanted.Name, err)
	}
	is := &corev1.Secret{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(wanted), is); err != nil {
		if apierrors.IsNotFound(err) {
			return problem.Busy(time.Second) // it has just expired
		}
		return fmt.Errorf("reading Secret %s: %w", wanted.Name, err)
	}
	if !infrav1.IsLogOf(is, host) {
		p := problem.New(http.StatusConflict, problem.Blank, "There is another Secret in place of the log's")
		p.Detail = "Secret " + is.Name + " is not this host's: delete or rename it"
		return p
	}
	if is.Annotations[infrav1.LogRequestAnnotation] == answer.ID {
		return nil
	}
	changed := is.DeepCopy()
	changed.Labels, changed.Annotations, changed.Data = wanted.Labels, wanted.Annotations, wanted.Data
	if err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(is, client.MergeFromWithOptimisticLock{})); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return problem.Busy(time.Second)
		}
		return fmt.Errorf("writing Secret %s: %w", wanted.Name, err)
	}
	return nil
}
