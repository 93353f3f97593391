package server

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/listener"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/planinput"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/session"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/tunnels"
)

// Informers is the part of cache.Cache that the server needs.
type Informers interface {
	GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// eventHandler passes events of the cache to the packages that depend on them.
type eventHandler struct {
	hosts        *hoststore.Store
	sessions     *session.Tracker
	audit        *audit.Log
	certificates *listener.Certificates
	plans        *planinput.Notifier
	waker        waker
}

// waker is told of each host whose plan may have changed: the host's polls compute the plan
// again, and its tunnel is reviewed.
type waker struct {
	polls   *session.Tracker
	tunnels *tunnels.Reviewer
}

// Wake implements planinput.Waker and trust.Waker.
func (w waker) Wake(ctx context.Context, host types.NamespacedName) {
	w.polls.Wake(host)
	w.tunnels.Review(ctx, host)
}

// watch registers handlers for hosts, clusters, machines and registrations, and waits until
// they have received all existing objects. stop removes them.
func (h *eventHandler) watch(ctx context.Context, informers Informers) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	watched := []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&infrav1.ElementalHost{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { h.hostAdded(ctx, o) },
			UpdateFunc: func(before, after any) { h.hostChanged(ctx, before, after) },
			DeleteFunc: func(o any) { h.hostDeleted(ctx, o) },
		}},
		{&infrav1.ElementalCluster{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { h.infraClusterChanged(ctx, nil, o) },
			UpdateFunc: func(before, after any) { h.infraClusterChanged(ctx, before, after) },
			DeleteFunc: func(o any) { h.infraClusterChanged(ctx, nil, o) },
		}},
		{&clusterv1.Cluster{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { h.clusterChanged(ctx, nil, o) },
			UpdateFunc: func(before, after any) { h.clusterChanged(ctx, before, after) },
			DeleteFunc: func(o any) { h.clusterDeleted(ctx, o) },
		}},
		{&clusterv1.Machine{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { h.machineAdded(ctx, o) },
			UpdateFunc: func(before, after any) { h.machineUpdated(ctx, before, after) },
		}},
		{&infrav1.ElementalMachine{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { h.elementalMachineChanged(ctx, nil, o) },
			UpdateFunc: func(before, after any) { h.elementalMachineChanged(ctx, before, after) },
		}},
		{&infrav1.ElementalRegistration{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { h.registrationChanged(nil, o) },
			UpdateFunc: h.registrationChanged,
			DeleteFunc: func(o any) { h.registrationChanged(nil, o) },
		}},
	}
	// They fill at the same time. A new leader serves hosts only when all of them are full.
	for _, w := range watched {
		if _, err := informers.GetInformer(ctx, w.object, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("starting informer: %w", err)
		}
	}
	for _, w := range watched {
		informer, err := informers.GetInformer(ctx, w.object, cache.BlockUntilSynced(false))
		if err != nil {
			stop()
			return nil, fmt.Errorf("getting informer: %w", err)
		}
		registered, err := informer.AddEventHandler(w.handler)
		if err != nil {
			stop()
			return nil, fmt.Errorf("watching: %w", err)
		}
		stops = append(stops, func() { _ = informer.RemoveEventHandler(registered) })
		if !toolscache.WaitFor(ctx, "", registered.HasSyncedChecker()) {
			stop()
			return nil, fmt.Errorf("waiting for the cache: %w", ctx.Err())
		}
	}
	return stop, nil
}

func (h *eventHandler) hostAdded(ctx context.Context, object any) {
	if host, ok := object.(*infrav1.ElementalHost); ok {
		h.plans.HostAdded(ctx, host)
	}
	h.hostSeen(ctx, object)
}

func (h *eventHandler) hostChanged(ctx context.Context, before, after any) {
	old, oldOK := before.(*infrav1.ElementalHost)
	changed, newOK := after.(*infrav1.ElementalHost)
	if oldOK && newOK && old.UID == changed.UID {
		h.audit.RecordSpecChange(ctx, old, changed)
		h.plans.HostChanged(ctx, old, changed)
	}
	h.hostSeen(ctx, after)
}

func (h *eventHandler) hostDeleted(ctx context.Context, object any) {
	host, ok := unwrap(object).(*infrav1.ElementalHost)
	if !ok {
		return
	}
	h.hosts.ObserveCache(host, true)
	h.sessions.Forget(client.ObjectKeyFromObject(host))
	h.waker.Wake(ctx, client.ObjectKeyFromObject(host))
	h.plans.HostChanged(ctx, host, &infrav1.ElementalHost{ObjectMeta: host.ObjectMeta})
}

// hostSeen handles a host that was created or changed.
func (h *eventHandler) hostSeen(ctx context.Context, object any) {
	host, ok := object.(*infrav1.ElementalHost)
	if !ok {
		return
	}
	key := client.ObjectKeyFromObject(host)
	h.hosts.ObserveCache(host, false)
	if host.IsHandedOver() {
		h.sessions.Forget(key)
	}
	if host.Spec.Lock != nil {
		// The boots that led to the lock must not lock the host again once it is unlocked.
		h.sessions.ForgetBoots(key)
	}
	if c := host.Status.Connection; c != nil && c.State == infrav1.ConnectionConnected && !host.IsHandedOver() {
		h.sessions.Expect(key)
	}
	h.waker.Wake(ctx, key)
}

func (h *eventHandler) infraClusterChanged(ctx context.Context, before, after any) {
	changed, ok := unwrap(after).(*infrav1.ElementalCluster)
	if !ok {
		return
	}
	old, _ := before.(*infrav1.ElementalCluster)
	h.plans.InfraClusterChanged(ctx, old, changed)
}

func (h *eventHandler) clusterChanged(ctx context.Context, before, after any) {
	if changed, ok := after.(*clusterv1.Cluster); ok {
		old, _ := before.(*clusterv1.Cluster)
		h.plans.ClusterChanged(ctx, old, changed)
	}
}

func (h *eventHandler) clusterDeleted(ctx context.Context, object any) {
	if cluster, ok := unwrap(object).(*clusterv1.Cluster); ok {
		h.plans.ClusterDeleted(ctx, cluster)
	}
}

func (h *eventHandler) elementalMachineChanged(ctx context.Context, before, after any) {
	if changed, ok := after.(*infrav1.ElementalMachine); ok {
		old, _ := before.(*infrav1.ElementalMachine)
		h.plans.MachineChanged(ctx, old, changed)
	}
}

func (h *eventHandler) machineAdded(ctx context.Context, object any) {
	if machine, ok := object.(*clusterv1.Machine); ok {
		h.plans.MachineAdded(ctx, machine)
	}
}

func (h *eventHandler) machineUpdated(ctx context.Context, before, after any) {
	old, oldOK := before.(*clusterv1.Machine)
	changed, newOK := after.(*clusterv1.Machine)
	if oldOK && newOK {
		h.plans.MachineUpdated(ctx, old, changed)
	}
}

// registrationChanged handles a registration that was created or deleted, or whose spec
// changed.
func (h *eventHandler) registrationChanged(before, after any) {
	registration, ok := unwrap(after).(*infrav1.ElementalRegistration)
	if !ok {
		return
	}
	if old, ok := before.(*infrav1.ElementalRegistration); ok && old.Generation == registration.Generation {
		return
	}
	h.certificates.RegistrationsChanged()
	h.sessions.WakeNamespace(registration.Namespace)
}

// unwrap returns the object of a deletion, which may have been missed by the watch.
func unwrap(object any) any {
	if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		return missed.Obj
	}
	return object
}
