package server

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// watch has the API follow hosts, their clusters, Machines and registrations. Hosts
// that are there already come as additions. It returns what ends it.
func (s *Server) watch(ctx context.Context) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	for _, w := range []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&infrav1.ElementalHost{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { s.hostEvent(o, false) },
			UpdateFunc: func(before, o any) { s.hostChanged(ctx, before, o) },
			DeleteFunc: func(o any) { s.hostGone(ctx, o) },
		}},
		{&infrav1.ElementalCluster{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { s.clusterEvent(ctx, nil, o) },
			UpdateFunc: func(before, o any) { s.clusterEvent(ctx, before, o) },
			DeleteFunc: func(o any) { s.clusterEvent(ctx, nil, o) },
		}},
		{&clusterv1.Machine{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { s.machineAdded(ctx, o) },
		}},
		{&infrav1.ElementalRegistration{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { s.registrationEvent(nil, o) },
			UpdateFunc: s.registrationEvent,
			DeleteFunc: func(o any) { s.registrationEvent(nil, o) },
		}},
	} {
		informer, err := s.informers.GetInformer(ctx, w.object)
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
		if !toolscache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
			stop()
			return nil, fmt.Errorf("waiting for the cache: %w", ctx.Err())
		}
	}
	return stop, nil
}

// Informers is the part of cache.Cache that the API needs.
type Informers interface {
	GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

func (s *Server) hostChanged(ctx context.Context, before, after any) {
	was, isHost := before.(*infrav1.ElementalHost)
	is, areHosts := after.(*infrav1.ElementalHost)
	if isHost && areHosts && was.UID == is.UID {
		s.watched(ctx, was, is)
		s.membersChanged(ctx, was, is)
	}
	s.hostEvent(after, false)
}

func (s *Server) hostGone(ctx context.Context, object any) {
	s.hostEvent(object, true)
	if was, ok := unwrap(object).(*infrav1.ElementalHost); ok {
		s.membersChanged(ctx, was, &infrav1.ElementalHost{ObjectMeta: was.ObjectMeta})
	}
}

func (s *Server) hostEvent(object any, deleted bool) {
	host, ok := unwrap(object).(*infrav1.ElementalHost)
	if !ok {
		return
	}
	key := client.ObjectKeyFromObject(host)
	s.hosts.seen(host, deleted)
	if deleted {
		s.presence.forget(key)
		return
	}
	if host.Spec.Lock != nil {
		// Whoever is let in again is not judged by what led to the lock.
		s.presence.forgetBoots(key)
	}
	if c := host.Status.Connection; c != nil && c.State == infrav1.ConnectionConnected {
		s.presence.seen(key)
	}
	s.presence.wake(key)
}

// registrationEvent follows the URLs that hosts use.
func (s *Server) registrationEvent(before, after any) {
	registration, ok := unwrap(after).(*infrav1.ElementalRegistration)
	if !ok {
		return
	}
	if old, ok := before.(*infrav1.ElementalRegistration); ok && old.Generation == registration.Generation {
		return
	}
	s.certificates.invalidate()
	s.presence.wakeNamespace(registration.Namespace)
}

// unwrap returns the object of an event that may have come too late.
func unwrap(object any) any {
	if late, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		return late.Obj
	}
	return object
}
