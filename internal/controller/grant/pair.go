package grant

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// pair is a host of the pool, and the object that it is granted as.
type pair struct {
	pool *infrav1.ElementalHost
	// granted is nil if the object does not exist.
	granted *infrav1.ElementalHost
	// keep says that the host stays granted.
	keep bool
}

// belongs reports whether the two objects name each other. Somebody may have made one alone.
func (p *pair) belongs() bool { return p.granted != nil && p.pool.IsGrantedTo(p.granted) }

func (p *pair) inUse() bool { return p.belongs() && p.granted.Spec.Claim != nil }

// phase is blank once the host is back.
func (p *pair) phase() infrav1.HostGrantPhase {
	if p.pool.Spec.GrantedTo == nil {
		return ""
	}
	return p.pool.Spec.GrantedTo.Phase
}

// isLost reports whether the granted object is not there, or is another one.
func (p *pair) isLost() bool { return p.phase() == infrav1.HostGrantGranted && !p.belongs() }

func (p *pair) isReturning() bool {
	return p.phase() == infrav1.HostGrantReturning || p.belongs() && p.granted.IsReturning()
}

// keep decides which hosts stay granted: those that match, up to the count. Hosts in use come
// first, because the others can go back at once.
func keep(s *scope) {
	left := count(s.grant)
	sorted := slices.Clone(s.pairs)
	slices.SortStableFunc(sorted, func(a, b *pair) int {
		return cmp.Or(yesFirst(a.inUse(), b.inUse()), yesFirst(b.isReturning(), a.isReturning()), cmp.Compare(a.pool.Name, b.pool.Name))
	})
	for _, p := range sorted {
		isDeleted := p.granted != nil && !p.granted.DeletionTimestamp.IsZero()
		p.keep = left > 0 && s.selector.Matches(labels.Set(p.pool.Labels)) && p.phase() != infrav1.HostGrantReturning && !isDeleted
		if p.keep {
			left--
		}
	}
}

func yesFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// count is how many hosts the grant may have; none once it is being deleted.
func count(grant *infrav1.ElementalHostGrant) int {
	if grant.Spec.Count == nil || !grant.DeletionTimestamp.IsZero() {
		return 0
	}
	return int(*grant.Spec.Count)
}

// newGranted returns the granted object: who the host is, and the labels that it has in the pool.
// Requests, cordons and annotations of the pool's operators stay there.
func newGranted(pool *infrav1.ElementalHost) *infrav1.ElementalHost {
	to := pool.Spec.GrantedTo
	granted := &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: to.Namespace, Name: to.Name, Labels: map[string]string{}, Finalizers: []string{infrav1.GrantedHostFinalizer}},
		Spec: infrav1.ElementalHostSpec{
			HostID: pool.Spec.HostID, Identity: pool.Spec.Identity.DeepCopy(), Approval: pool.Spec.Approval, Hostname: pool.Spec.Hostname,
			GrantedFrom: &infrav1.HostGrantedFrom{Namespace: pool.Namespace, Name: pool.Name},
		},
	}
	for name, value := range pool.Labels {
		if name != infrav1.RegistrationLabel && name != clusterv1.ClusterNameLabel {
			granted.Labels[name] = value
		}
	}
	return granted
}

// hasFacts reports whether the host has reported anything as this object.
func hasFacts(h *infrav1.ElementalHost) bool {
	return h.Status.Inventory != nil || h.Status.Connection != nil || h.Status.Cleanliness != nil
}

// addFacts adds what the machine has reported as another object, except for what it has reported as
// this one. Results of operations and failures belong to whoever has asked for them.
func addFacts(from, to *infrav1.ElementalHost) {
	source := from.DeepCopy().Status
	to.Status.Inventory, to.Status.Agent = cmp.Or(to.Status.Inventory, source.Inventory), cmp.Or(to.Status.Agent, source.Agent)
	to.Status.Connection, to.Status.Cleanliness = cmp.Or(to.Status.Connection, source.Connection), cmp.Or(to.Status.Cleanliness, source.Cleanliness)
	if len(to.Status.Addresses) == 0 {
		to.Status.Addresses = source.Addresses
	}
}

// forgetFacts makes room for the facts of the time after.
func forgetFacts(h *infrav1.ElementalHost) {
	h.Status.Inventory, h.Status.Addresses, h.Status.Agent, h.Status.Connection, h.Status.Cleanliness = nil, nil, nil, nil, nil
}

// bar gives the pool's object what bars the host: its lock, its fence and its rejection.
func bar(pool, granted *infrav1.ElementalHost) {
	if granted.Spec.Approval != infrav1.ApprovalApproved {
		pool.Spec.Approval = granted.Spec.Approval
	}
	if granted.Spec.Lock != nil {
		pool.Spec.Lock = granted.Spec.Lock.DeepCopy()
	}
	if granted.Spec.Fence != nil && pool.Spec.Fence == nil {
		pool.Spec.Fence = granted.Spec.Fence.DeepCopy()
	}
}

// isGrantable reports whether a host of the pool may be granted: it is available, nobody has asked
// anything of it, and its machine has proved to have the key.
func isGrantable(s *scope, host *infrav1.ElementalHost) bool {
	id := host.Spec.Identity
	return s.selector.Matches(labels.Set(host.Labels)) && host.Spec.GrantedFrom == nil && host.Spec.Claim == nil && host.Spec.Adoption == nil && host.Spec.LogRequest == nil &&
		hoststatus.Available(host).IsTrue() && id != nil && id.KeyFingerprint != "" && id.KeyFingerprint == host.Status.KeyFingerprint &&
		(host.Spec.Reboot == nil || isDone(host, infrav1.OperationReboot, host.Spec.Reboot.ID)) &&
		(host.Spec.OSUpgrade == nil || isDone(host, infrav1.OperationUpgrade, host.Spec.OSUpgrade.ID))
}

// isDone reports whether a requested operation has ended.
func isDone(host *infrav1.ElementalHost, kind infrav1.OperationType, id string) bool {
	op := host.Operation(kind, id)
	return op != nil && op.State != infrav1.OperationRunning
}
