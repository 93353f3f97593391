package race

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// referee follows every change of hosts, as the API server orders them, and
// notes what must never be.
type referee struct {
	mu sync.Mutex
	// owner is the claim of each bound host; hosts are those of each machine.
	owner map[string]infrav1.HostClaim
	hosts map[string]string
	// violations are what must never be; claims counts bindings.
	violations []string
	claims     int
	// claimed gets each host whose claim changed.
	claimed chan *infrav1.ElementalHost
	done    chan struct{}
}

// follow watches the hosts of a namespace until ctx ends.
func follow(ctx context.Context, c client.WithWatch, namespace string) (*referee, error) {
	hosts := &infrav1.ElementalHostList{}
	if err := c.List(ctx, hosts, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing hosts: %w", err)
	}
	w, err := c.Watch(ctx, &infrav1.ElementalHostList{}, client.InNamespace(namespace), &client.ListOptions{Raw: since(hosts.ResourceVersion)})
	if err != nil {
		return nil, fmt.Errorf("watching hosts: %w", err)
	}
	r := &referee{owner: map[string]infrav1.HostClaim{}, hosts: map[string]string{}, claimed: make(chan *infrav1.ElementalHost, 10*fleet), done: make(chan struct{})}
	for i := range hosts.Items {
		r.see(&hosts.Items[i])
	}
	go func() {
		defer close(r.done)
		defer w.Stop()
		for e := range w.ResultChan() {
			if host, ok := e.Object.(*infrav1.ElementalHost); ok && e.Type != watch.Deleted {
				r.see(host)
			}
		}
	}()
	return r, nil
}

func (r *referee) see(host *infrav1.ElementalHost) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, wasBound := r.owner[host.Name]
	is := host.Spec.Claim
	isBound := is != nil && is.Phase == infrav1.ClaimBound
	switch {
	case wasBound && is != nil && is.ID != was.ID:
		r.violations = append(r.violations, fmt.Sprintf("host %s went from machine %s to machine %s without a release", host.Name, was.MachineName, is.MachineName))
	case wasBound && is == nil:
		r.violations = append(r.violations, fmt.Sprintf("host %s was taken from machine %s without a release", host.Name, was.MachineName))
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

// bound returns how many hosts are bound; verdict what must never have been.
func (r *referee) bound() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.owner)
}

func (r *referee) verdict() (violations []string, claims int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.violations, r.claims
}
