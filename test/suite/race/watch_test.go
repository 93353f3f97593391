package race

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// claimWatcher watches all changes of hosts in the order of the API server, and records violations
// of the invariants.
type claimWatcher struct {
	mu sync.Mutex
	// owner has the claim of each bound host by host name, hosts the host name by machine name.
	owner map[string]infrav1.HostClaim
	hosts map[string]string
	// violations describes violated invariants; claims counts bindings.
	violations []string
	claims     int
	// claimed receives each host with a claim whenever it changes.
	claimed chan *infrav1.ElementalHost
	done    chan struct{}
}

// watchClaims watches the hosts of a namespace until ctx ends.
func watchClaims(ctx context.Context, c client.WithWatch, namespace string) (*claimWatcher, error) {
	hosts := &infrav1.ElementalHostList{}
	if err := c.List(ctx, hosts, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing hosts: %w", err)
	}
	w, err := c.Watch(ctx, &infrav1.ElementalHostList{}, client.InNamespace(namespace), &client.ListOptions{Raw: watchFrom(hosts.ResourceVersion)})
	if err != nil {
		return nil, fmt.Errorf("watching hosts: %w", err)
	}
	r := &claimWatcher{owner: map[string]infrav1.HostClaim{}, hosts: map[string]string{}, claimed: make(chan *infrav1.ElementalHost, 10*fleetSize()), done: make(chan struct{})}
	for i := range hosts.Items {
		r.check(&hosts.Items[i])
	}
	go func() {
		defer close(r.done)
		defer w.Stop()
		for e := range w.ResultChan() {
			if host, ok := e.Object.(*infrav1.ElementalHost); ok && e.Type != watch.Deleted {
				r.check(host)
			}
		}
	}()
	return r, nil
}

// check compares a host with its former claim.
func (r *claimWatcher) check(host *infrav1.ElementalHost) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, wasBound := r.owner[host.Name]
	is := host.Spec.Claim
	isBound := is != nil && is.Phase == infrav1.ClaimBound
	switch {
	case wasBound && is != nil && is.ID != was.ID:
		r.violations = append(r.violations, fmt.Sprintf("host %s changed from machine %s to machine %s without a release", host.Name, was.MachineName, is.MachineName))
	case wasBound && is == nil:
		r.violations = append(r.violations, fmt.Sprintf("host %s lost the claim of machine %s without a release", host.Name, was.MachineName))
	}
	if wasBound && (!isBound || is.ID != was.ID) {
		delete(r.owner, host.Name)
		delete(r.hosts, was.MachineName)
	}
	if isBound && (!wasBound || is.ID != was.ID) {
		if other, ok := r.hosts[is.MachineName]; ok {
			r.violations = append(r.violations, fmt.Sprintf("machine %s has hosts %s and %s", is.MachineName, other, host.Name))
		}
		r.owner[host.Name], r.hosts[is.MachineName] = *is, host.Name
		r.claims++
	}
	if is != nil {
		r.claimed <- host
	}
}

// countBound returns the number of bound hosts.
func (r *claimWatcher) countBound() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.owner)
}

// results returns the violations and the number of claims.
func (r *claimWatcher) results() (violations []string, claims int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.violations, r.claims
}
