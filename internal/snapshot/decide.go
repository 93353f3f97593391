package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// delivery is how long a host may take for a snapshot before another host is asked. It
	// is longer than the agent tries (package internal/agent/snapshot).
	delivery = 15 * time.Minute
	// afterFailure is how long a host that reported a failure may try again before another
	// host is asked.
	afterFailure = time.Minute
	// grace is how long after its time a snapshot counts as overdue. Until then the former
	// one will do.
	grace = 30 * time.Minute
	// recheck is how often a cluster without a suitable host looks for one.
	recheck = time.Minute
)

// Cluster is what a decision depends on.
type Cluster struct {
	Infra *infrav1.ElementalCluster
	// Hosts are the hosts that are claimed for the cluster, by name.
	Hosts map[string]*infrav1.ElementalHost
	Now   time.Time
}

// Decision is what follows from a Cluster.
type Decision struct {
	// Record is what spec.etcdSnapshotRecord has to be.
	Record *infrav1.EtcdSnapshotRecord
	// Taken is the snapshot that was taken since the record was written, or nil, and TakenBy
	// is the host that has it.
	Taken   *infrav1.HostEtcdSnapshot
	TakenBy *infrav1.ElementalHost
	// GivenUp is the request that its host has not fulfilled, or nil. GivenUpBecause says why.
	GivenUp        *infrav1.EtcdSnapshotRequest
	GivenUpBecause string
	// Condition is EtcdSnapshotsReady; nil without spec.etcdSnapshots.
	Condition *metav1.Condition
	// RecheckAt is when to decide again if nothing changes; zero: never.
	RecheckAt time.Time
}

// Decide decides whether a snapshot is due and which host takes it. The decision follows
// from spec and from what hosts report, so that a new leader decides the same. A request
// stays until it is fulfilled or its host had enough time. Of several snapshots that are due
// only the last one is taken.
func Decide(c Cluster) Decision {
	policy := c.Infra.Spec.EtcdSnapshots
	if policy == nil {
		return Decision{}
	}
	var d Decision
	record := &infrav1.EtcdSnapshotRecord{}
	if former := c.Infra.Spec.EtcdSnapshotRecord; former != nil {
		record = former.DeepCopy()
	}
	d.fulfil(c, record)
	at := due(c.Infra.Namespace+"/"+c.Infra.Name, policy.Interval(), c.Now)
	d.RecheckAt = at.Add(policy.Interval())
	if isThere(c, record.Last) && !record.Last.ScheduledAt.Time.Before(at) {
		record.Request = nil
	} else {
		d.request(c, record, at)
	}
	if !equality.Semantic.DeepEqual(record, &infrav1.EtcdSnapshotRecord{}) {
		d.Record = record
	}
	d.setCondition(c, at)
	return d
}

// fulfil turns a request into the last snapshot once its host has reported the snapshot.
func (d *Decision) fulfil(c Cluster, record *infrav1.EtcdSnapshotRecord) {
	r := record.Request
	if r == nil || !isControlPlane(c.Hosts[r.HostName]) {
		return
	}
	host := c.Hosts[r.HostName]
	if d.Taken = host.EtcdSnapshot(infrav1.EtcdSnapshotID(r.ScheduledAt)); d.Taken == nil {
		return
	}
	d.TakenBy = host
	record.Last = &infrav1.EtcdSnapshotTaken{ScheduledAt: r.ScheduledAt, HostName: r.HostName, TakenAt: metav1.NewTime(c.Now.UTC().Truncate(time.Second))}
	record.Request = nil
}

// isThere reports whether a snapshot is still on its host. A host that has not reported its
// snapshots yet, as after a move or restore, is believed to have it.
func isThere(c Cluster, taken *infrav1.EtcdSnapshotTaken) bool {
	if taken == nil || !isControlPlane(c.Hosts[taken.HostName]) {
		return false
	}
	host := c.Hosts[taken.HostName]
	return host.Status.EtcdSnapshots == nil || host.EtcdSnapshot(infrav1.EtcdSnapshotID(taken.ScheduledAt)) != nil
}

// request asks a host for the snapshot of that time, unless one that was asked before still
// has time.
func (d *Decision) request(c Cluster, record *infrav1.EtcdSnapshotRecord, at time.Time) {
	former := record.Request
	if former != nil && isControlPlane(c.Hosts[former.HostName]) {
		if until := former.AskedAt.Add(patience(c, former)); c.Now.Before(until) {
			d.recheckBy(until)
			return
		}
	}
	last := ""
	switch {
	case former != nil:
		last = former.HostName
	case record.Last != nil:
		last = record.Last.HostName
	}
	isFirst := former == nil || former.ScheduledAt.Time.Before(at)
	host := next(candidates(c), last, endpointHost(c), isFirst)
	d.recheckBy(c.Now.Add(recheck))
	if host == nil {
		return
	}
	asked := &infrav1.EtcdSnapshotRequest{ScheduledAt: metav1.NewTime(at), HostName: host.Name, AskedAt: metav1.NewTime(c.Now.UTC().Truncate(time.Second))}
	if former != nil {
		if former.HostName == asked.HostName && former.ScheduledAt.Time.Equal(at) {
			return // nobody else can take it
		}
		d.GivenUp, d.GivenUpBecause = former, whyGivenUp(c, former)
	}
	record.Request = asked
}

// patience is how long the host of a request may take.
func patience(c Cluster, r *infrav1.EtcdSnapshotRequest) time.Duration {
	if failure(c, r) != "" {
		return afterFailure
	}
	return delivery
}

// failure returns why the host of a request could not take the snapshot, as the host says;
// blank if it says nothing.
func failure(c Cluster, r *infrav1.EtcdSnapshotRequest) string {
	host := c.Hosts[r.HostName]
	if !isControlPlane(host) || host.Status.EtcdSnapshots == nil {
		return ""
	}
	f := host.Status.EtcdSnapshots.Failure
	if f == nil || f.ID != infrav1.EtcdSnapshotID(r.ScheduledAt) {
		return ""
	}
	return f.Message
}

// whyGivenUp returns why a request ends without the snapshot.
func whyGivenUp(c Cluster, r *infrav1.EtcdSnapshotRequest) string {
	switch why := failure(c, r); {
	case why != "":
		return why
	case !isControlPlane(c.Hosts[r.HostName]):
		return "the host no longer belongs to the control plane"
	default:
		return "the host has not delivered it in time"
	}
}

// candidates are the hosts that may be asked.
func candidates(c Cluster) []*infrav1.ElementalHost {
	var out []*infrav1.ElementalHost
	for _, host := range c.Hosts {
		if isControlPlane(host) && obstacle(host) == "" {
			out = append(out, host)
		}
	}
	return out
}

// endpointHost is the name of the host whose address is the endpoint; blank for none.
func endpointHost(c Cluster) string {
	if ref := c.Infra.Spec.ControlPlaneEndpointPolicy.HostRef; ref != nil {
		return ref.Name
	}
	return ""
}

func (d *Decision) recheckBy(t time.Time) {
	if t.Before(d.RecheckAt) {
		d.RecheckAt = t
	}
}
