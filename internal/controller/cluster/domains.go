package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

const (
	// maxDomains is how many failure domains Cluster API takes.
	maxDomains = 100
	// domainsDelay gathers changes of other clusters' hosts: a look at the fleet
	// for each of them would be many.
	domainsDelay = 5 * time.Second
)

// urgency is how soon a cluster has to look at a change.
type urgency int

const (
	none urgency = iota
	slight
	urgent
)

// reconcileDomains publishes the failure domains that hosts' labels name
// (contract InfraCluster, status.failureDomains).
func (r *Reconciler) reconcileDomains(ctx context.Context, s *scope) (ctrl.Result, error) {
	label := domainLabel(s.infraCluster)
	hosts, err := r.labelledHosts(ctx, s, label)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(hosts) == 0 && len(s.infraCluster.Status.FailureDomains) == 0 {
		return ctrl.Result{}, nil
	}
	// What the control plane lacks is the endpoint's to say.
	endpoint := s.endpoint
	request, known, err := r.request(ctx, s)
	s.endpoint = endpoint
	if err != nil {
		return ctrl.Result{}, err
	}
	if vip := s.infraCluster.Spec.ControlPlaneEndpointPolicy.VIP; vip != nil {
		request.Able = kubevip.Able(vip, s.infraCluster.Spec.ControlPlaneEndpoint.Host)
	}
	d := domains{label: label, cluster: s.cluster.Name, request: request, known: known}
	d.reserved, d.onlyReserved = reservation(s)
	if d.inUse, err = r.domainsInUse(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	s.infraCluster.Status.FailureDomains = d.of(hosts)
	return ctrl.Result{}, nil
}

func domainLabel(c *infrav1.ElementalCluster) string {
	return cmp.Or(c.Spec.FailureDomains.HostLabel, infrav1.DefaultFailureDomainLabel)
}

// labelledHosts returns the namespace's hosts that are in a failure domain. They
// are the cache's own and must not be changed.
func (r *Reconciler) labelledHosts(ctx context.Context, s *scope, label string) ([]*infrav1.ElementalHost, error) {
	options := []client.ListOption{client.InNamespace(s.infraCluster.Namespace), client.UnsafeDisableDeepCopy, client.HasLabels{label}}
	if r.WatchFilter != "" {
		options = append(options, client.MatchingLabels{clusterv1.WatchLabel: r.WatchFilter})
	}
	list := &infrav1.ElementalHostList{}
	if err := r.Client.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing hosts with label %s: %w", label, err)
	}
	hosts := make([]*infrav1.ElementalHost, len(list.Items))
	for i := range list.Items {
		hosts[i] = &list.Items[i]
	}
	return hosts, nil
}

// reservation returns the host that the first control-plane machine has to take,
// and whether there has to be one: its failure domain is the only one that the
// control-plane provider may choose then. It picks among several by lot, and
// machines get hosts in their own domain only.
func reservation(s *scope) (name string, only bool) {
	if ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return "", false
	}
	spec := s.infraCluster.Spec
	policy := spec.ControlPlaneEndpointPolicy
	switch {
	case policy.HostRef != nil:
		return policy.HostRef.Name, true
	case policy.Type == infrav1.EndpointTypeVIP || policy.Type == infrav1.EndpointTypeExternal:
		return "", false
	default:
		return "", spec.ControlPlaneEndpoint.Host == "" && !s.cluster.Spec.ControlPlaneEndpoint.IsValid()
	}
}

// domainsInUse are those of the control plane's Machines. They stay, also when
// their last host is gone: Cluster API spreads over what is listed.
func (r *Reconciler) domainsInUse(ctx context.Context, s *scope) ([]string, error) {
	machines := &clusterv1.MachineList{}
	err := r.Client.List(ctx, machines, client.InNamespace(s.cluster.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index.MachineByCluster: s.cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return nil, fmt.Errorf("listing control-plane Machines: %w", err)
	}
	var names []string
	for i := range machines.Items {
		if name := machines.Items[i].Spec.FailureDomain; name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// domains knows what makes a failure domain one of the control plane.
type domains struct {
	label, cluster string
	// request of the control plane's machines, if it is known.
	request placement.Request
	known   bool
	// reserved is the host that the first machine takes; onlyReserved: no other may.
	reserved     string
	onlyReserved bool
	// inUse are those that control-plane Machines are in.
	inUse []string
}

// of returns the failure domains of hosts, sorted by name; those of the control
// plane go first where they are too many. It is pure.
func (d domains) of(hosts []*infrav1.ElementalHost) []clusterv1.FailureDomain {
	controlPlane := map[string]bool{}
	for _, host := range hosts {
		name := host.Labels[d.label]
		if name != "" && host.DeletionTimestamp.IsZero() && d.mayHave(host) {
			controlPlane[name] = controlPlane[name] || d.isOfControlPlane(host)
		}
	}
	for _, name := range d.inUse {
		controlPlane[name] = true
	}
	list := make([]clusterv1.FailureDomain, 0, len(controlPlane))
	for name, is := range controlPlane {
		list = append(list, clusterv1.FailureDomain{Name: name, ControlPlane: new(is)})
	}
	byName := func(a, b clusterv1.FailureDomain) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(list, func(a, b clusterv1.FailureDomain) int {
		if *a.ControlPlane != *b.ControlPlane {
			if *a.ControlPlane {
				return -1
			}
			return 1
		}
		return byName(a, b)
	})
	list = list[:min(len(list), maxDomains)]
	slices.SortFunc(list, byName)
	if len(list) == 0 {
		return nil
	}
	return list
}

// mayHave tells whether the host is free or the cluster's own.
func (d domains) mayHave(host *infrav1.ElementalHost) bool {
	return host.Spec.Claim == nil || host.Spec.Claim.ClusterName == d.cluster
}

// isOfControlPlane leaves out hosts that workers have: a domain with no others
// has no place for the control plane.
func (d domains) isOfControlPlane(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	if !d.known || (claim != nil && claim.Role == infrav1.RoleWorker) || (d.onlyReserved && host.Name != d.reserved) {
		return false
	}
	_, matches := d.request.Matches(host)
	return matches
}

// hostChanges wakes clusters when a host's labels, claim or interfaces change in
// a way that concerns them; what hosts report otherwise does not.
func (r *Reconciler) hostChanges() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.wake(ctx, q, nil, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { r.wake(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.wake(ctx, q, e.Object, nil) },
	}
}

func (r *Reconciler) wake(ctx context.Context, q queue, before, after client.Object) {
	was, _ := before.(*infrav1.ElementalHost)
	is, _ := after.(*infrav1.ElementalHost)
	one := cmp.Or(is, was)
	if one == nil || (was != nil && is != nil && sameForClusters(was, is)) {
		return
	}
	for _, c := range r.concerned(ctx, was, is) {
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}
		switch concern(c, was, is) {
		case urgent:
			q.Add(request)
		case slight:
			q.AddAfter(request, domainsDelay)
		case none:
		}
	}
}

// concerned returns the clusters that a host's change may concern: the host's own,
// and those whose failure domains its labels name.
func (r *Reconciler) concerned(ctx context.Context, was, is *infrav1.ElementalHost) []*infrav1.ElementalCluster {
	var clusters []*infrav1.ElementalCluster
	names := map[string]struct{}{}
	for _, host := range []*infrav1.ElementalHost{was, is} {
		if host == nil {
			continue
		}
		for label := range host.Labels {
			names[label] = struct{}{}
		}
	}
	one := cmp.Or(is, was)
	for label := range names {
		clusters = append(clusters, r.indexed(ctx, one.Namespace, index.ClusterByDomainLabel, label)...)
	}
	if is != nil && is.Spec.Claim != nil {
		clusters = append(clusters, r.indexed(ctx, is.Namespace, index.ClusterByName, is.Spec.Claim.ClusterName)...)
	}
	return clusters
}

// sameForClusters tells without looking at any cluster that none is concerned.
func sameForClusters(was, is *infrav1.ElementalHost) bool {
	return was.DeletionTimestamp.IsZero() == is.DeletionTimestamp.IsZero() &&
		equality.Semantic.DeepEqual(was.Labels, is.Labels) &&
		equality.Semantic.DeepEqual(was.Spec.Claim, is.Spec.Claim) &&
		slices.Equal(interfaces(was), interfaces(is))
}

// concern tells what the change of a host, which was or is nil when it came or
// went, may mean to the cluster: a failure domain that it does not have yet, or
// an interface of a host that may have its virtual IP address, is urgent; that a failure domain may have
// lost its last host is not.
func concern(c *infrav1.ElementalCluster, was, is *infrav1.ElementalHost) urgency {
	label := domainLabel(c)
	switch {
	case isOwn(c, is) && is.Spec.Claim.Role != infrav1.RoleWorker && c.Spec.ControlPlaneEndpointPolicy.Type == infrav1.EndpointTypeVIP:
		return urgent
	case is != nil && is.Labels[label] != "" && (is.Spec.Claim == nil || isOwn(c, is)) && !offers(c, is.Labels[label]):
		return urgent
	case was != nil && was.Labels[label] != "":
		return slight
	default:
		return none
	}
}

func isOwn(c *infrav1.ElementalCluster, host *infrav1.ElementalHost) bool {
	return host != nil && host.Spec.Claim != nil && host.Spec.Claim.ClusterName == c.Labels[clusterv1.ClusterNameLabel]
}

// offers reports whether the cluster has the failure domain for its control plane.
func offers(c *infrav1.ElementalCluster, domain string) bool {
	return slices.ContainsFunc(c.Status.FailureDomains, func(d clusterv1.FailureDomain) bool {
		return d.Name == domain && ptr.Deref(d.ControlPlane, false)
	})
}

func interfaces(host *infrav1.ElementalHost) []string {
	if host.Status.Inventory == nil {
		return nil
	}
	names := make([]string, len(host.Status.Inventory.NICs))
	for i := range host.Status.Inventory.NICs {
		names[i] = host.Status.Inventory.NICs[i].Name
	}
	return names
}
