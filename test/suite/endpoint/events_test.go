package endpoint

import (
	"reflect"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// randomEvent runs a random event, then a few steps.
func (s *simulation) randomEvent() {
	s.T.Helper()
	events := []func(){
		s.powerFails, s.powerFails, s.powerFails, s.powerFails, s.powerReturns, s.powerReturns, s.powerReturns,
		s.agentGoesOffline, s.agentComesOnline, s.agentComesOnline,
		s.machineIsDeleted, s.machineIsDeleted, s.machineIsDeleted, s.machineIsDeleted, s.machineIsDeleted, s.scale,
		s.addressChanges, s.certificatesAreRenewed, s.certificatesAreRenewed, s.moveIsRequested, s.moveIsRequested, s.moveIsRequested, s.networkBreaks, s.networkHeals, s.siteIsCutOff,
		s.managerCrashes, s.managerCrashes, s.managerIsDeposed, s.cacheStalls, s.cacheStalls, s.clockJumps,
		s.hostIsCordoned,
	}
	if s.constrained {
		events = append(events, s.heldHostIsReleased, s.hostIsCordoned, s.hostIsCordoned, s.hostIsMaintained, s.hostIsMaintained)
	}
	event, _ := pick(s, events)
	event()
	for range 1 + s.rand.IntN(8) {
		s.step(time.Duration(2+s.rand.IntN(8)) * time.Second)
	}
}

// pickHost returns a suitable host, most often the host of the endpoint.
func (s *simulation) pickHost(suits func(*host) bool) (*host, bool) {
	var hosts []*host
	for _, h := range s.hosts {
		if !suits(h) {
			continue
		}
		hosts = append(hosts, h)
		if ref := s.checker.spec.ControlPlaneEndpointPolicy.HostRef; ref != nil && ref.Name == h.name {
			hosts = append(hosts, h, h, h, h)
		}
	}
	return pick(s, hosts)
}

// powerFails powers off a host that etcd's majority does not depend on.
func (s *simulation) powerFails() {
	h, ok := s.pickHost(func(h *host) bool {
		if !h.on || h.node == nil {
			return false
		}
		on, off := s.members(h.node.cluster)
		return !h.node.member || len(on)-1 > len(off)+1
	})
	if ok {
		s.record("%s dies", h.name)
		h.on, h.probe, h.inFlight = false, probe{}, nil
	}
}

// powerReturns boots a host; its agent still has the last plan.
func (s *simulation) powerReturns() {
	if h, ok := s.pickHost(func(h *host) bool { return !h.on }); ok {
		s.record("%s returns", h.name)
		h.on = true
	}
}

func (s *simulation) agentGoesOffline() {
	if h, ok := s.pickHost(func(h *host) bool { return h.online && h.node != nil }); ok {
		s.record("%s goes offline", h.name)
		h.online = false
	}
}

func (s *simulation) agentComesOnline() {
	if h, ok := s.pickHost(func(h *host) bool { return !h.online }); ok {
		s.record("%s comes online", h.name)
		h.online = true
	}
}

// siteIsCutOff takes all agents offline for longer than a failover takes.
func (s *simulation) siteIsCutOff() {
	var cut []*host
	for _, h := range s.hosts {
		if h.online {
			h.online = false
			cut = append(cut, h)
		}
	}
	s.record("the site is cut off")
	moves := s.checker.moves
	s.step(2 * disconnectedAfter)
	for range 6 {
		wasCut, before := s.isCutOff(), s.checker.moves
		s.step(2 * probeInterval)
		if wasCut && s.checker.moves > before {
			s.checker.violated("the endpoint moved while all agents were disconnected")
		}
	}
	if s.checker.moves > moves+1 {
		s.checker.violated("the endpoint moved more than once while all agents were offline")
	}
	for _, h := range cut {
		h.online = true
	}
}

// isCutOff reports whether the manager counts all hosts as disconnected.
func (s *simulation) isCutOff() bool {
	return !slices.ContainsFunc(all[*infrav1.ElementalHost](s.state), func(h *infrav1.ElementalHost) bool {
		return h.Status.Connection.State == infrav1.ConnectionConnected
	})
}

// machineIsDeleted deletes a Machine of any cluster, as a rollout does.
func (s *simulation) machineIsDeleted() {
	ref := s.checker.spec.ControlPlaneEndpointPolicy.HostRef
	var machines []*clusterv1.Machine
	for _, m := range all[*clusterv1.Machine](s.state) {
		if !m.DeletionTimestamp.IsZero() {
			if util.IsControlPlaneMachine(m) {
				return
			}
			continue
		}
		// At least two control planes stay: one of two may be dead.
		if on, _ := s.members(m.Spec.ClusterName); util.IsControlPlaneMachine(m) && len(on) < 3 {
			continue
		}
		machines = append(machines, m)
		if o := s.hostOf(m.Name); o != nil && ref != nil && o.Name == ref.Name {
			machines = append(machines, m, m, m, m)
		}
	}
	if m, ok := pick(s, machines); ok {
		s.record("%s is deleted", m.Name)
		s.remove(m)
	}
}

// scale changes the number of control planes.
func (s *simulation) scale() {
	c := s.clusters["c"]
	n, _ := pick(s, []int{3, 3, 5})
	s.setReplicas(c, n)
	s.record("the control plane is scaled to %d", c.controlPlanes)
}

// addressChanges gives a host another address, sometimes with a new certificate.
func (s *simulation) addressChanges() {
	h, ok := s.pickHost(func(h *host) bool { return h.on && (h.node == nil || h.node.cluster == "c") })
	if !ok {
		return
	}
	was := h.address
	h.address = s.address()
	if h.node != nil && s.oneIn(2) {
		h.node.certificate = append(slices.Clone(h.node.certificate), h.address)
	}
	s.record("%s has %s instead of %s", h.name, h.address, was)
	// Another host may get the old address.
	other, ok := pick(s, slices.DeleteFunc(slices.Clone(s.hosts), func(h *host) bool { return h.node != nil || !h.on }))
	if ok && other != h && s.oneIn(2) {
		s.record("%s has %s instead of %s", other.name, was, other.address)
		other.address = was
	}
}

// certificatesAreRenewed adds the hosts' addresses to the certificates of their API
// servers.
func (s *simulation) certificatesAreRenewed() {
	for _, h := range s.hosts {
		if h.on && h.node != nil && h.node.controlPlane && !slices.Contains(h.node.certificate, h.address) {
			s.record("%s has a certificate for %s", h.name, h.address)
			h.node.certificate = append(slices.Clone(h.node.certificate), h.address)
		}
	}
}

// moveIsRequested requests a move to a random host or to any, even an unsuitable one.
func (s *simulation) moveIsRequested() {
	to := ""
	if s.oneIn(2) {
		h, _ := pick(s, s.hosts)
		to = h.name
	}
	s.requestMove(to)
}

func (s *simulation) requestMove(to string) {
	s.record("a user requests a move to %q", to)
	change(s, "c", func(o *infrav1.ElementalCluster) {
		if o.Annotations == nil {
			o.Annotations = map[string]string{}
		}
		o.Annotations[infrav1.MoveEndpointAnnotation] = to
	})
}

// networkBreaks cuts a healthy host, mostly the endpoint's, off from all other hosts.
func (s *simulation) networkBreaks() {
	h, ok := s.pickHost(func(h *host) bool { return h.on && h.node != nil && h.node.member })
	if !ok {
		return
	}
	s.record("no other host reaches %s", h.name)
	for _, other := range s.hosts {
		if other != h {
			s.cut[[2]string{h.name, other.name}] = true
		}
	}
}

func (s *simulation) networkHeals() {
	clear(s.cut)
}

// managerCrashes makes one of the next writes fail, before or after it reaches the API
// server.
func (s *simulation) managerCrashes() {
	moment := controllertest.BeforeWrite
	if s.oneIn(2) {
		moment = controllertest.AfterWrite
	}
	s.manager.client.FailWrite(1+s.rand.IntN(4), moment)
}

// managerIsDeposed starts a second manager while the first one is about to carry out a
// requested move. The first one continues after the endpoint may have moved twice.
func (s *simulation) managerIsDeposed() {
	deposed := s.manager
	s.requestMove("")
	deposed.stalled = map[reflect.Type]time.Time{}
	deposed.refresh()
	s.manager = s.startManager()
	s.record("another manager takes over")
	s.await(s.checker.moves + 1)
	s.requestMove("")
	s.await(s.checker.moves + 1)
	deposed.reconcileStale()
}

// await runs a few steps until the endpoint has moved so often.
func (s *simulation) await(moves int64) {
	const steps = 10
	for range steps {
		if s.checker.moves >= moves {
			return
		}
		s.step(probeInterval)
	}
}

// cacheStalls stops updates of some kinds in the manager's cache for some seconds.
func (s *simulation) cacheStalls() {
	for _, list := range watched() {
		if s.oneIn(2) {
			kind := itemType(list)
			s.record("the cache of %s stalls", kind)
			s.manager.stalled[kind] = s.clock.Now().Add(time.Duration(5+s.rand.IntN(40)) * time.Second)
		}
	}
}

// clockJumps sets the clock forward by up to three hours or back by up to a minute.
func (s *simulation) clockJumps() {
	jump := time.Duration(s.rand.IntN(3*60)) * time.Minute
	if s.oneIn(2) {
		jump = -time.Duration(s.rand.IntN(60)) * time.Second
	}
	s.record("the clock jumps by %s", jump)
	s.clock.SetTime(s.clock.Now().Add(jump))
}

// heal ends all faults.
func (s *simulation) heal() {
	s.record("all faults end")
	for _, h := range s.hosts {
		h.on, h.online = true, true
	}
	s.certificatesAreRenewed()
	for _, o := range s.heldHosts() {
		s.releaseHeld(o)
	}
	for _, h := range s.hosts {
		change(s, h.name, func(o *infrav1.ElementalHost) { o.Spec.Cordon, o.Spec.Maintenance = nil, nil })
	}
	clear(s.cut)
	s.manager.stalled = map[reflect.Type]time.Time{}
	s.manager.client.Forget()
}
