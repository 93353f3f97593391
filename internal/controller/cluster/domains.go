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
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
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
	soon
	urgent
)

// reconcileDomains publishes the failure domains that hosts' labels name
// (contract InfraCluster, status.failureDomains).
func (r *Reconciler) reconcileDomains(ctx context.Context, s *scope) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(s.infraCluster)
	r.spread.forget(key)
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
	found := spread{domains: d, found: d.among(hosts)}
	s.infraCluster.Status.FailureDomains = found.published()
	if known {
		r.spread.keep(key, found)
	}
	return ctrl.Result{}, nil
}

func domainLabel(c *infrav1.ElementalCluster) string {
	return cmp.Or(c.Spec.FailureDomains.HostLabel, infrav1.DefaultFailureDomainLabel)
}

// labelledHosts returns the namespace's hosts that are in a failure domain. They
// are the cache's own and must not be changed.
func (r *Reconciler) labelledHosts(ctx context.Context, s *scope, label string) ([]*infrav1.ElementalHost, error) {
	options := []client.ListOption{client.InNamespace(s.infraCluster.Namespace), client.UnsafeDisableDeepCopy, client.MatchingFields{index.HostByLabel: label}}
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
// their last host is gone: Cluster API spreads over what is listed. A Machine that
// is being deleted keeps none: its replacement, which is made the moment that it is
// gone, would find no host there.
func (r *Reconciler) domainsInUse(ctx context.Context, s *scope) ([]string, error) {
	machines := &clusterv1.MachineList{}
	err := r.Client.List(ctx, machines, client.InNamespace(s.cluster.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index.MachineByCluster: s.cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return nil, fmt.Errorf("listing control-plane Machines: %w", err)
	}
	var names []string
	for i := range machines.Items {
		if name := machines.Items[i].Spec.FailureDomain; name != "" && machines.Items[i].DeletionTimestamp.IsZero() {
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

// among returns the failure domains of hosts, by name. It is pure.
func (d domains) among(hosts []*infrav1.ElementalHost) map[string]domain {
	found := map[string]domain{}
	for _, host := range hosts {
		name := host.Labels[d.label]
		if name == "" || !admitted(host) || !d.mayHave(host) {
			continue
		}
		was, listed := found[name]
		is := domain{controlPlane: d.isOfControlPlane(host), host: host.Name}
		// Hosts are claimed by name, so the last one is there for the longest.
		if !listed || (is.controlPlane && !was.controlPlane) || (is.controlPlane == was.controlPlane && is.host > was.host) {
			found[name] = is
		}
	}
	for _, name := range d.inUse {
		found[name] = domain{controlPlane: true}
	}
	return found
}

// domain is a failure domain, of the control plane or not, and a host that makes it
// that; blank: there is a Machine of the control plane in it.
type domain struct {
	controlPlane bool
	host         string
}

// spread are the failure domains that a cluster has found, by name, and by what.
type spread struct {
	domains

	found map[string]domain
}

// published returns the failure domains sorted by name; those of the control plane go
// first where they are too many.
func (s spread) published() []clusterv1.FailureDomain {
	list := make([]clusterv1.FailureDomain, 0, len(s.found))
	for name, is := range s.found {
		list = append(list, clusterv1.FailureDomain{Name: name, ControlPlane: new(is.controlPlane)})
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

// admitted tells whether the host may be any cluster's.
func admitted(host *infrav1.ElementalHost) bool { return hoststatus.Admitted(host).IsTrue() }

// mayHave tells whether the host is free or the cluster's own.
func (d domains) mayHave(host *infrav1.ElementalHost) bool {
	return host.Spec.Claim == nil || host.Spec.Claim.ClusterName == d.cluster
}

// isOfControlPlane leaves out hosts that workers have: a domain with no others
// has no place for the control plane.
func (d domains) isOfControlPlane(host *infrav1.ElementalHost) bool {
	if !d.mayServe(host) {
		return false
	}
	_, matches := d.request.Matches(host)
	return matches
}

func (d domains) mayServe(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	return d.known && (claim == nil || claim.Role != infrav1.RoleWorker) && (!d.onlyReserved || host.Name == d.reserved)
}

// gains reports whether a host that the cluster may have makes a failure domain that
// is not there yet, or one of the control plane of one that is.
func (s spread) gains(ctx context.Context, host *infrav1.ElementalHost) bool {
	is, listed := s.found[host.Labels[s.label]]
	switch {
	case !listed:
		return true
	case is.controlPlane || !s.mayServe(host):
		return false
	default:
		why, matches := s.request.Again(ctx).Matches(host)
		return matches || why == placement.NotJudged
	}
}

// restsOn reports whether a failure domain may be another one without the host.
func (s spread) restsOn(host *infrav1.ElementalHost) bool {
	return s.found[host.Labels[s.label]].host == host.Name
}

// hostChanges wakes clusters when a host's admission, labels, claim or inventory
// change in a way that concerns them; what hosts report otherwise does not. A host
// that becomes another manager's is gone.
func (r *Reconciler) hostChanges() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.wake(ctx, q, nil, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { r.wake(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.wake(ctx, q, e.Object, nil) },
	}
}

func (r *Reconciler) wake(ctx context.Context, q queue, before, after client.Object) {
	was, is := r.watched(before), r.watched(after)
	one := cmp.Or(is, was)
	if one == nil || (was != nil && is != nil && sameForClusters(was, is)) {
		return
	}
	for _, c := range r.concerned(ctx, was, is) {
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}
		switch r.concern(ctx, c, was, is) {
		case urgent:
			q.Add(request)
		case soon:
			q.AddAfter(request, gatherDelay)
		case slight:
			q.AddAfter(request, domainsDelay)
		case none:
		}
	}
}

// watched returns a host that this manager looks at; nil for others and none.
func (r *Reconciler) watched(o client.Object) *infrav1.ElementalHost {
	host, ok := o.(*infrav1.ElementalHost)
	if !ok || (r.WatchFilter != "" && !labels.HasWatchLabel(host, r.WatchFilter)) {
		return nil
	}
	return host
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
	return admitted(was) == admitted(is) &&
		equality.Semantic.DeepEqual(was.Labels, is.Labels) &&
		equality.Semantic.DeepEqual(was.Spec.Claim, is.Spec.Claim) &&
		equality.Semantic.DeepEqual(was.Status.Inventory, is.Status.Inventory)
}

// concern tells what the change of a host, which was or is nil when it came or
// went, may mean to the cluster: an interface of a host that may have its virtual IP
// address is urgent; a failure domain that it does not have yet is looked at soon, as
// all hosts of one may come at a time; that one may have lost its last host, later.
func (r *Reconciler) concern(ctx context.Context, c *infrav1.ElementalCluster, was, is *infrav1.ElementalHost) urgency {
	label := domainLabel(c)
	found, known := r.spread.recall(client.ObjectKeyFromObject(c))
	known = known && found.label == label
	gains := func() bool {
		if known {
			return found.gains(ctx, is)
		}
		// If a look that is under way finds that the cluster lost it, the status
		// changes, and that is looked at again.
		return !offers(c, is.Labels[label])
	}
	switch {
	case isOwn(c, is) && is.Spec.Claim.Role != infrav1.RoleWorker && c.Spec.ControlPlaneEndpointPolicy.Type == infrav1.EndpointTypeVIP:
		return urgent
	case is != nil && admitted(is) && is.Labels[label] != "" && (is.Spec.Claim == nil || isOwn(c, is)) && gains():
		return soon
	case was != nil && admitted(was) && was.Labels[label] != "" && (!known || found.restsOn(was)):
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
