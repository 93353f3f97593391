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

// happen has one thing happen, and a few turns pass.
func (w *world) happen() {
	w.T.Helper()
	event, _ := pick(w, []func(){
		w.powerFails, w.powerFails, w.powerFails, w.powerFails, w.powerReturns, w.powerReturns, w.powerReturns,
		w.agentLeaves, w.agentReturns, w.agentReturns,
		w.machineIsDeleted, w.machineIsDeleted, w.machineIsDeleted, w.machineIsDeleted, w.machineIsDeleted, w.scale,
		w.addressChanges, w.certificatesAreRenewed, w.certificatesAreRenewed, w.somebodyAsks, w.somebodyAsks, w.somebodyAsks, w.linkBreaks, w.linksHeal, w.siteIsCutOff,
		w.managerCrashes, w.managerCrashes, w.managerIsDeposed, w.cacheStalls, w.cacheStalls, w.clockJumps,
	})
	event()
	for range 1 + w.rand.IntN(8) {
		w.turn(time.Duration(2+w.rand.IntN(8)) * time.Second)
	}
}

// victim is a host of the cluster, most often the endpoint's own.
func (w *world) victim(suits func(*host) bool) (*host, bool) {
	var hosts []*host
	for _, h := range w.hosts {
		if !suits(h) {
			continue
		}
		hosts = append(hosts, h)
		if ref := w.referee.spec.ControlPlaneEndpointPolicy.HostRef; ref != nil && ref.Name == h.name {
			hosts = append(hosts, h, h, h, h)
		}
	}
	return pick(w, hosts)
}

// powerFails takes power from a host whose etcd can do without it.
func (w *world) powerFails() {
	h, ok := w.victim(func(h *host) bool {
		if !h.on || h.node == nil {
			return false
		}
		on, off := w.members(h.node.cluster)
		return !h.node.member || len(on)-1 > len(off)+1
	})
	if ok {
		w.note("%s dies", h.name)
		h.on, h.probe, h.underway = false, probe{}, nil
	}
}

// powerReturns boots a host with the plan that it had.
func (w *world) powerReturns() {
	if h, ok := w.victim(func(h *host) bool { return !h.on }); ok {
		w.note("%s returns", h.name)
		h.on = true
	}
}

func (w *world) agentLeaves() {
	if h, ok := w.victim(func(h *host) bool { return h.online && h.node != nil }); ok {
		w.note("%s goes offline", h.name)
		h.online = false
	}
}

func (w *world) agentReturns() {
	if h, ok := w.victim(func(h *host) bool { return !h.online }); ok {
		w.note("%s comes online", h.name)
		h.online = true
	}
}

// siteIsCutOff takes all agents offline, for longer than a failover takes.
func (w *world) siteIsCutOff() {
	var cut []*host
	for _, h := range w.hosts {
		if h.online {
			h.online = false
			cut = append(cut, h)
		}
	}
	moves := w.referee.moves
	w.note("the site is cut off")
	w.turn(2 * silence)
	for range 6 {
		w.turn(2 * beat)
	}
	if w.referee.moves > moves+1 {
		w.referee.violated("the endpoint moved though nobody was there to say anything")
	}
	for _, h := range cut {
		h.online = true
	}
}

// machineIsDeleted deletes a Machine of any cluster, as a rollout does.
func (w *world) machineIsDeleted() {
	ref := w.referee.spec.ControlPlaneEndpointPolicy.HostRef
	var machines []*clusterv1.Machine
	for _, m := range all[*clusterv1.Machine](w.is) {
		if !m.DeletionTimestamp.IsZero() {
			if util.IsControlPlaneMachine(m) {
				return
			}
			continue
		}
		// Nobody takes the last but one: it may be the only one to be well.
		if on, _ := w.members(m.Spec.ClusterName); util.IsControlPlaneMachine(m) && len(on) < 3 {
			continue
		}
		machines = append(machines, m)
		if o := w.hostOf(m.Name); o != nil && ref != nil && o.Name == ref.Name {
			machines = append(machines, m, m, m, m)
		}
	}
	if m, ok := pick(w, machines); ok {
		w.note("%s is deleted", m.Name)
		w.remove(m)
	}
}

// scale changes how many control planes there are.
func (w *world) scale() {
	c := w.clusters["c"]
	c.controlPlanes, _ = pick(w, []int{3, 3, 5})
	w.note("%d control planes are wanted", c.controlPlanes)
}

// addressChanges gives a host another address; its certificate may be made anew.
func (w *world) addressChanges() {
	h, ok := w.victim(func(h *host) bool { return h.on && (h.node == nil || h.node.cluster == "c") })
	if !ok {
		return
	}
	was := h.address
	h.address = w.address()
	if h.node != nil && w.oneIn(2) {
		h.node.certificate = append(slices.Clone(h.node.certificate), h.address)
	}
	w.note("%s has %s, no more %s", h.name, h.address, was)
	// Somebody else may get it.
	other, ok := pick(w, slices.DeleteFunc(slices.Clone(w.hosts), func(h *host) bool { return h.node != nil || !h.on }))
	if ok && other != h && w.oneIn(2) {
		w.note("%s has %s, no more %s", other.name, was, other.address)
		other.address = was
	}
}

// certificatesAreRenewed makes the certificates of all API servers good for their
// hosts' addresses.
func (w *world) certificatesAreRenewed() {
	for _, h := range w.hosts {
		if h.on && h.node != nil && h.node.controlPlane && !slices.Contains(h.node.certificate, h.address) {
			w.note("%s has a certificate for %s", h.name, h.address)
			h.node.certificate = append(slices.Clone(h.node.certificate), h.address)
		}
	}
}

// somebodyAsks for a move, of a host that may not be fit.
func (w *world) somebodyAsks() {
	to := ""
	if w.oneIn(2) {
		h, _ := pick(w, w.hosts)
		to = h.name
	}
	w.askFor(to)
}

func (w *world) askFor(to string) {
	w.note("somebody asks to move to %q", to)
	change(w, "c", func(o *infrav1.ElementalCluster) {
		if o.Annotations == nil {
			o.Annotations = map[string]string{}
		}
		o.Annotations[infrav1.MoveEndpointAnnotation] = to
	})
}

// linkBreaks keeps the endpoint's host, which is well, from all others.
func (w *world) linkBreaks() {
	h, ok := w.victim(func(h *host) bool { return h.on && h.node != nil && h.node.member })
	if !ok {
		return
	}
	w.note("nobody reaches %s", h.name)
	for _, other := range w.hosts {
		if other != h {
			w.cut[[2]string{h.name, other.name}] = true
		}
	}
}

func (w *world) linksHeal() {
	clear(w.cut)
}

// managerCrashes has one of the next writes fail, before or after it arrives.
func (w *world) managerCrashes() {
	moment := controllertest.BeforeWrite
	if w.oneIn(2) {
		moment = controllertest.AfterWrite
	}
	w.manager.client.FailWrite(1+w.rand.IntN(4), moment)
}

// managerIsDeposed has another take over while the first is about to move the
// endpoint because somebody asked; the first goes on when the endpoint may have
// moved twice.
func (w *world) managerIsDeposed() {
	deposed := w.manager
	w.askFor("")
	deposed.stalled = map[reflect.Type]time.Time{}
	deposed.refresh()
	w.manager = w.startManager()
	w.note("another manager takes over")
	w.await(w.referee.moves + 1)
	w.askFor("")
	w.await(w.referee.moves + 1)
	deposed.late()
}

// await waits a while for the endpoint to have moved so often.
func (w *world) await(moves int64) {
	const turns = 10
	for range turns {
		if w.referee.moves >= moves {
			return
		}
		w.turn(beat)
	}
}

// cacheStalls has the manager see nothing new of some kinds for a while.
func (w *world) cacheStalls() {
	for _, list := range watched() {
		if w.oneIn(2) {
			kind := itemType(list)
			w.note("nothing new is seen of %s", kind)
			w.manager.stalled[kind] = w.clock.Now().Add(time.Duration(5+w.rand.IntN(40)) * time.Second)
		}
	}
}

// clockJumps sets the managers' clock ahead by hours, or back a little.
func (w *world) clockJumps() {
	jump := time.Duration(w.rand.IntN(3*60)) * time.Minute
	if w.oneIn(2) {
		jump = -time.Duration(w.rand.IntN(60)) * time.Second
	}
	w.note("the clock jumps by %s", jump)
	w.clock.SetTime(w.clock.Now().Add(jump))
}

// heal ends all that is wrong.
func (w *world) heal() {
	w.note("everything heals")
	for _, h := range w.hosts {
		h.on, h.online = true, true
	}
	w.certificatesAreRenewed()
	clear(w.cut)
	w.manager.stalled = map[reflect.Type]time.Time{}
	w.manager.client.Forget()
}
