package hooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// Options are what the hooks need.
type Options struct {
	// Client reads from the cache. It must have the index MachineByCluster.
	Client client.Reader
	// Selectors compiles selectors; nil compiles them without a cache.
	Selectors *selector.Compiler
}

// Server is where the hooks are served: the manager's webhook server.
type Server interface {
	Register(path string, hook http.Handler)
}

// hooks answers the hooks.
type hooks struct {
	client    client.Reader
	selectors *selector.Compiler
}

// Names of handlers, which are parts of their paths.
const (
	canUpdateMachineName    = "can-update-machine"
	canUpdateMachineSetName = "can-update-machine-set"
	updateMachineName       = "update-machine"
)

// Register serves the hooks, and the discovery of them.
func Register(at Server, o Options) {
	h := &hooks{client: o.Client, selectors: o.Selectors}
	s := &server{slots: make(chan struct{}, maxConcurrent)}
	at.Register(path(runtimehooksv1.Discovery, ""), serve(s, discover))
	at.Register(path(runtimehooksv1.CanUpdateMachine, canUpdateMachineName), serve(s, h.canUpdateMachine))
	at.Register(path(runtimehooksv1.CanUpdateMachineSet, canUpdateMachineSetName), serve(s, h.canUpdateMachineSet))
	at.Register(path(runtimehooksv1.UpdateMachine, updateMachineName), serve(s, h.updateMachine))
}

// discover lists the hooks. No hook is ignored if it can't be called: an update that nobody
// makes would count as done.
func discover(_ context.Context, _ *runtimehooksv1.DiscoveryRequest, answer *runtimehooksv1.DiscoveryResponse) error {
	add := func(hook runtimecatalog.Hook, name string) {
		answer.Handlers = append(answer.Handlers, runtimehooksv1.ExtensionHandler{
			Name: name,
			RequestHook: runtimehooksv1.GroupVersionHook{
				APIVersion: runtimehooksv1.GroupVersion.String(), Hook: groupVersionHook(hook).Hook,
			},
			TimeoutSeconds: new(int32(runtimehooksv1.DefaultHandlersTimeoutSeconds)),
			FailurePolicy:  new(runtimehooksv1.FailurePolicyFail),
		})
	}
	add(runtimehooksv1.CanUpdateMachine, canUpdateMachineName)
	add(runtimehooksv1.CanUpdateMachineSet, canUpdateMachineSetName)
	add(runtimehooksv1.UpdateMachine, updateMachineName)
	return nil
}

// isOurs reports whether the reference is to an object of the given kind of this provider.
func isOurs(ref clusterv1.ContractVersionedObjectReference, kind string) bool {
	return ref.APIGroup == infrav1.GroupVersion.Group && ref.Kind == kind
}

// mode returns the mode of the Machine's cluster.
func (h *hooks) mode(ctx context.Context, namespace, clusterName string) (infrav1.InPlaceMode, error) {
	cluster := &clusterv1.Cluster{}
	if err := h.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, cluster); err != nil {
		return "", fmt.Errorf("getting Cluster: %w", err)
	}
	if !isOurs(cluster.Spec.InfrastructureRef, "ElementalCluster") {
		return infrav1.InPlaceOff, nil
	}
	infra := &infrav1.ElementalCluster{}
	if err := h.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster.Spec.InfrastructureRef.Name}, infra); err != nil {
		return "", fmt.Errorf("getting ElementalCluster: %w", err)
	}
	if !ownership.NamesInfraCluster(cluster, infra) {
		return infrav1.InPlaceOff, nil
	}
	return inplace.ModeOf(infra), nil
}

// host returns the host of an ElementalMachine; nil if it has none.
func (h *hooks) host(ctx context.Context, namespace, machine string) (*infrav1.ElementalMachine, *infrav1.ElementalHost, error) {
	m := &infrav1.ElementalMachine{}
	if err := h.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machine}, m); err != nil {
		return nil, nil, fmt.Errorf("getting ElementalMachine: %w", err)
	}
	ref := m.Spec.HostRef
	if ref == nil {
		return m, nil, nil
	}
	host := &infrav1.ElementalHost{}
	if err := h.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, host); err != nil {
		return nil, nil, fmt.Errorf("getting ElementalHost: %w", err)
	}
	if host.Spec.Claim == nil || host.Spec.Claim.ID != ref.ClaimID {
		return m, nil, nil
	}
	return m, host, nil
}

// refuse returns the answer to a change that can't be made in place: no patch, after which
// Cluster API replaces Machines, or an error, which stops it.
func refuse(ctx context.Context, mode infrav1.InPlaceMode, obstacle string, answer runtimehooksv1.ResponseObject) error {
	ctrl.LoggerFrom(ctx).Info("A change can't be made in place", "mode", mode, "obstacle", obstacle)
	if mode == infrav1.InPlaceRequired {
		return errors.New("spec.inPlace.mode of the ElementalCluster is Required, and the change can't be made in place: " + obstacle)
	}
	answer.SetMessage("the change can't be made in place: " + obstacle)
	return nil
}
