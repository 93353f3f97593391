package hostlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
)

// interval is the time between two looks at the host.
const interval = time.Second

// errWithdrawn is the error of Wait if the request was withdrawn or replaced.
var errWithdrawn = errors.New("somebody has withdrawn the request, or the host did not answer in time")

// Wait waits until the host has answered a request.
func Wait(ctx context.Context, c client.Reader, times clock.WithTicker, host client.ObjectKey, id string) (*infrav1.HostLog, error) {
	for {
		is, err := change.Host(ctx, c, host.Namespace, host.Name)
		if err != nil {
			return nil, err
		}
		isPending := is.Spec.LogRequest != nil && is.Spec.LogRequest.ID == id
		switch {
		case isPending:
		case is.Status.Log != nil && is.Status.Log.ID == id:
			return is.Status.Log, nil
		default:
			return nil, errWithdrawn
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-times.After(interval):
		}
	}
}

// Read reads a log from its Secret.
func Read(ctx context.Context, c client.Reader, host *infrav1.ElementalHost, log *infrav1.HostLog) ([]byte, error) {
	if log.SecretName == "" {
		return nil, refuse(host, fmt.Sprintf("it has no log of a %s: the log begins with the first operation after an update of the agent, or after an enrolment",
			log.Operation), "Look at the agent's journal on the host: journalctl -u elemental-agent")
	}
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: log.SecretName}, secret)
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("the log is in Secret %s until %s, which you may not read; somebody who may read it can show it to you, or give you the right: "+
			"kubectl -n %s create role %s --verb=get --resource=secrets --resource-name=%s, and a RoleBinding: %w",
			log.SecretName, log.ExpiresAt.UTC().Format(time.RFC3339), host.Namespace, log.SecretName, log.SecretName, err)
	case err != nil:
		return nil, fmt.Errorf("reading the log: %w", err)
	case !infrav1.IsLogOf(secret, host) || secret.Annotations[infrav1.LogRequestAnnotation] != log.ID:
		return nil, fmt.Errorf("the log in Secret %s is another one by now: repeat the command", log.SecretName)
	}
	return secret.Data[infrav1.HostLogKey], nil
}
