//go:build e2e

package e2e

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long reads of the management cluster are repeated.
const patience = 30 * time.Second

// patientClient repeats reads that the API server does not answer: on a busy machine that fails now
// and then, and says nothing about this provider. It is not for workload clusters, whose API servers
// must be reachable.
type patientClient struct{ client.Client }

func (c patientClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return patiently(ctx, func() error { return c.Client.Get(ctx, key, object, options...) })
}

func (c patientClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return patiently(ctx, func() error { return c.Client.List(ctx, list, options...) })
}

func patiently(ctx context.Context, read func() error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; {
		err := read()
		if err == nil || isAnswer(err) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// isAnswer reports whether an API server has answered, other than that it can't at the moment.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsTooManyRequests(err) &&
		!apierrors.IsServiceUnavailable(err) && !apierrors.IsInternalError(err)
}
