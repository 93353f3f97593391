package hooks

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

// retryAfterSeconds is when Cluster API asks again.
const retryAfterSeconds = 5

// updateMachine answers whether the Machine's host has the desired version and image, and otherwise the
// message of the condition KubernetesUpToDate. An upgrade that failed on its host is no
// failure of the hook: Cluster API would hide the message.
func (h *hooks) updateMachine(ctx context.Context, q *runtimehooksv1.UpdateMachineRequest, answer *runtimehooksv1.UpdateMachineResponse) error {
	desired := &q.Desired.Machine
	if !isOurs(desired.Spec.InfrastructureRef, "ElementalMachine") {
		return errors.New("the Machine is not of this provider")
	}
	waiting := func(message string) error {
		answer.RetryAfterSeconds, answer.Message = retryAfterSeconds, message
		return nil
	}
	machine := &clusterv1.Machine{}
	if err := h.client.Get(ctx, client.ObjectKeyFromObject(desired), machine); err != nil {
		return fmt.Errorf("getting Machine: %w", err)
	}
	infra, host, err := h.host(ctx, desired.Namespace, desired.Spec.InfrastructureRef.Name)
	switch {
	case apierrors.IsNotFound(err):
		return waiting("waiting for the ElementalMachine and its host")
	case err != nil:
		return err
	case !ownership.IsInfraMachine(infra, machine) || host == nil:
		return waiting("the Machine has no host: see the condition HostClaimed of the ElementalMachine")
	}
	image, err := imageOf(q.Desired.InfrastructureMachine)
	switch {
	case err != nil:
		return err
	case machine.Spec.Version != desired.Spec.Version, infra.Spec.OSImage != image:
		return waiting("waiting for the cache")
	case inplace.IsUpToDate(machine, infra, host):
		return nil
	}
	c := meta.FindStatusCondition(infra.Status.Conditions, infrav1.KubernetesUpToDateCondition)
	if c == nil || c.Status == metav1.ConditionTrue {
		return waiting("waiting for the manager's leader to look at the ElementalMachine")
	}
	return waiting(c.Reason + ": " + c.Message)
}

// imageOf returns the image of an ElementalMachine in a request.
func imageOf(raw runtime.RawExtension) (infrav1.OSImage, error) {
	infrastructure, err := decode(raw, false)
	if err != nil {
		return "", fmt.Errorf("decoding the infrastructure: %w", err)
	}
	wanted := inplace.State{}
	err = objects{infrastructure: infrastructure}.addTo(&wanted)
	return wanted.Infrastructure.OSImage, err
}
