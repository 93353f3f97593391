package endpoint

import (
	"cmp"
	"net"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	port = 6443
	// failuresInARow make an endpoint unreachable.
	failuresInARow = 2
)

// host is a machine with what is on its disk and what is in its memory.
type host struct {
	name    string
	address string
	// on: it has power. online: its agent reaches the manager.
	on, online bool

	// node is nil on a clean host.
	node *node
	// plan is the last that the agent got, also after a reboot.
	plan protocol.Plan
	// ended are operations, and how; of those that are reported the manager has
	// acknowledged it.
	ended    map[operation]protocol.OperationState
	reported map[operation]bool
	// rejects is the endpoint that nobody else gets to.
	rejects string
	probe   probe

	// told is what the manager has acknowledged, as far as the agent knows.
	told        protocol.EndpointReport
	toldAddress string
	// underway are messages that have not yet arrived, in their order.
	underway []message
	// heard is when the manager last heard of it.
	heard time.Time
}

// node is what a bootstrap makes of a host.
type node struct {
	cluster      string
	controlPlane bool
	// member of etcd: its API server runs.
	member bool
	// kubeconfigs name this endpoint.
	kubeconfigs string
	// certificate of the API server is good for these.
	certificate []string
}

// probe is how a host finds the endpoint.
type probe struct {
	endpoint string
	failures int
	known    bool
	reached  bool
	since    time.Time
	ready    bool
	readyAt  time.Time
}

// message is a report on its way.
type message struct {
	arrives time.Time
	address string
	report  protocol.Report
}

// operation names one.
type operation struct {
	kind protocol.OperationType
	id   string
}

func hostPort(address string) string { return net.JoinHostPort(address, strconv.Itoa(port)) }

// agent has the host's agent do what it does at every turn.
func (w *world) agent(h *host) {
	if !h.on {
		return
	}
	if h.online {
		h.heard = w.clock.Now()
		if !w.oneIn(4) {
			h.plan = w.planOf(h)
		}
	}
	w.operate(h)
	w.keep(h)
	w.lookAround(h)
	if h.online {
		w.send(h)
	}
}

// operate runs the plan's operation, at most once.
func (w *world) operate(h *host) {
	op := h.plan.Operation
	if op == nil {
		return
	}
	key := operation{op.Type, op.ID}
	if _, done := h.ended[key]; done {
		return
	}
	switch op.Type {
	case protocol.OperationBootstrap:
		if h.node != nil || w.oneIn(3) {
			return
		}
		h.ended[key] = w.bootstrap(h, op)
	case protocol.OperationReset:
		w.note("%s is reset", h.name)
		h.node, h.rejects, h.probe = nil, "", probe{}
		h.ended[key] = protocol.StateSucceeded
	default:
	}
}

// bootstrap makes a Node of the host with the endpoint that its Machine's data
// names, if that answers.
func (w *world) bootstrap(h *host, op *protocol.Operation) protocol.OperationState {
	c, data := w.clusters[op.ClusterName], w.data[op.MachineName]
	if c == nil || data.endpoint == "" {
		return protocol.StateFailed
	}
	made := &node{cluster: c.name, controlPlane: data.controlPlane, member: data.controlPlane, kubeconfigs: data.endpoint, certificate: []string{h.address}}
	switch {
	case data.controlPlane && !c.begun:
		c.begun = true
		c.objects = [3]string{data.endpoint, data.endpoint, data.endpoint}
	case !w.reaches(h, data.endpoint, c):
		w.note("%s can't join %s by %s", h.name, c.name, data.endpoint)
		return protocol.StateFailed
	}
	if data.controlPlane && c.user != "" {
		made.certificate = append(made.certificate, c.user)
	}
	w.note("%s joins %s by %s", h.name, c.name, data.endpoint)
	h.node = made
	return protocol.StateSucceeded
}

// keep follows, publishes and rejects as the plan says, online or not. Now and
// then the agent is interrupted half-way.
func (w *world) keep(h *host) {
	desired := h.plan.Desired.Endpoint
	if desired == nil {
		h.rejects = ""
		return
	}
	if h.node == nil {
		return
	}
	endpoint := net.JoinHostPort(desired.Host, strconv.Itoa(int(desired.Port)))
	if slices.Contains(desired.Former, h.node.kubeconfigs) {
		h.node.kubeconfigs = endpoint
	}
	if w.oneIn(6) {
		return
	}
	if c := w.clusters[h.node.cluster]; desired.Publish && c != nil && w.serves(h) {
		for i := range c.objects {
			if slices.Contains(desired.Former, c.objects[i]) && !c.since[i].After(desired.Since) {
				c.objects[i], c.since[i] = endpoint, desired.Since
			}
			if w.oneIn(6) {
				break
			}
		}
	}
	h.rejects = desired.Reject
}

// lookAround probes the endpoint and the host's own API server.
func (w *world) lookAround(h *host) {
	desired := h.plan.Desired.Endpoint
	if desired == nil || !desired.Probe || h.node == nil {
		h.probe = probe{}
		return
	}
	now, p := w.clock.Now(), &h.probe
	endpoint := net.JoinHostPort(desired.Host, strconv.Itoa(int(desired.Port)))
	if p.endpoint != endpoint {
		*p = probe{endpoint: endpoint}
	}
	if ready := w.serves(h); ready != p.ready || p.readyAt.IsZero() {
		p.ready, p.readyAt = ready, now
	}
	if w.reaches(h, endpoint, w.clusters[h.node.cluster]) {
		if !p.known || !p.reached {
			p.since = now
		}
		p.failures, p.known, p.reached = 0, true, true
		return
	}
	if p.failures == 0 {
		p.since = now
	}
	p.failures++
	if p.failures >= failuresInARow {
		p.known, p.reached = true, false
	}
}

// says is what the agent has to report of the endpoint.
func (w *world) says(h *host) protocol.EndpointReport {
	desired := h.plan.Desired.Endpoint
	if desired == nil || h.node == nil {
		return protocol.EndpointReport{}
	}
	out := protocol.EndpointReport{Kubeconfigs: h.node.kubeconfigs, Rejects: h.rejects}
	if c := w.clusters[h.node.cluster]; desired.Publish && w.serves(h) && c.objects[0] == c.objects[1] && c.objects[1] == c.objects[2] {
		out.Workload = c.objects[0]
	}
	lasting := func(since time.Time) int32 { return int32(max(w.clock.Since(since), 0) / time.Second) }
	if p := h.probe; desired.Probe {
		if p.known {
			out.Probe = &protocol.Probe{Endpoint: p.endpoint, Reachable: p.reached, ForSeconds: lasting(p.since)}
		}
		out.APIServer = &protocol.APIServer{Ready: p.ready, ForSeconds: lasting(p.readyAt), CertificateNames: h.node.certificate}
	}
	return out
}

// send reports what has changed: messages are lost, late, repeated, or
// their answers are lost; they never overtake each other.
func (w *world) send(h *host) {
	is := w.says(h)
	ops := unreported(h)
	if len(h.underway) == 0 && !w.oneIn(5) && (len(ops) > 0 || h.address != h.toldAddress || !reflect.DeepEqual(timeless(is), h.told)) {
		m := message{arrives: w.clock.Now(), address: h.address, report: protocol.Report{
			Endpoint: &is, Operations: ops,
			Addresses: []protocol.Address{{Type: protocol.AddressInternalIP, Address: h.address}},
		}}
		if w.oneIn(5) {
			m.arrives = m.arrives.Add(time.Duration(w.rand.IntN(20)) * time.Second)
		}
		h.underway = append(h.underway, m)
		if w.oneIn(5) {
			h.underway = append(h.underway, m)
		}
	}
	for len(h.underway) > 0 && !h.underway[0].arrives.After(w.clock.Now()) {
		m := h.underway[0]
		h.underway = h.underway[1:]
		w.receive(h, m.report)
		if w.oneIn(6) {
			continue
		}
		h.told, h.toldAddress = timeless(*m.report.Endpoint), m.address
		for _, op := range m.report.Operations {
			h.reported[operation{op.Type, op.ID}] = true
		}
	}
}

// unreported are operations whose end the manager has not acknowledged.
func unreported(h *host) []protocol.OperationReport {
	var out []protocol.OperationReport
	for op, state := range h.ended {
		if !h.reported[op] {
			out = append(out, protocol.OperationReport{Type: op.kind, ID: op.id, State: state})
		}
	}
	slices.SortFunc(out, func(a, b protocol.OperationReport) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// timeless leaves out what passes by itself.
func timeless(r protocol.EndpointReport) protocol.EndpointReport {
	if r.Probe != nil {
		probe := *r.Probe
		probe.ForSeconds, r.Probe = 0, &probe
	}
	if r.APIServer != nil {
		server := *r.APIServer
		server.ForSeconds, r.APIServer = 0, &server
	}
	return r
}

// forget makes a host whose agent has just been installed.
func (h *host) forget() {
	h.node, h.rejects, h.probe, h.plan = nil, "", probe{}, protocol.Plan{}
	h.ended, h.reported = map[operation]protocol.OperationState{}, map[operation]bool{}
	h.told, h.toldAddress, h.underway = protocol.EndpointReport{}, h.address, nil
}
