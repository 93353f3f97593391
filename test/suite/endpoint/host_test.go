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

// host is a machine with its agent: the state on disk and the state in memory.
type host struct {
	name    string
	address string
	// zone is the failure domain. isServer: machines of the control plane may have the
	// host.
	zone     string
	isServer bool
	// on means that the host has power, online that its agent reaches the manager.
	on, online bool

	// node is nil on a clean host.
	node *node
	// plan is the last plan that the agent received. It survives reboots.
	plan protocol.Plan
	// ended has the results of operations. reported has the operations whose result the
	// manager has acknowledged.
	ended    map[operation]protocol.OperationState
	reported map[operation]bool
	// rejects is the endpoint at which the host refuses connections of other hosts.
	rejects string
	probe   probe
	// missed is the endpoint that the host last found unreachable, and missedAt is when.
	missed   string
	missedAt time.Time

	// acked and ackedAddress are the report and the address that the manager has
	// acknowledged, as far as the agent knows.
	acked        protocol.EndpointReport
	ackedAddress string
	// repeats: the agent reports everything again, because it was disconnected or got no
	// response to its last report.
	repeats bool
	// inFlight has the messages that have not arrived yet, in order.
	inFlight []message
	// knowsQuestion: the agent reports the endpoint when it is asked.
	knowsQuestion bool
	// asked: the manager has asked for a report, and the host has sent none since.
	asked bool
	// isQuestioned: the manager has asked for a report and has received none since.
	isQuestioned bool
	// answeredAt is when the manager last received the answer to a question.
	answeredAt time.Time
	// isMute: the host sends no reports. It polls and probes.
	isMute bool
	// lastContact is the time of the manager's last contact with the host.
	lastContact time.Time
}

// node is the Node that a bootstrap made on a host.
type node struct {
	cluster      string
	controlPlane bool
	// member means that the host is an etcd member and runs an API server.
	member bool
	// kubeconfigs is the endpoint in the kubeconfig files.
	kubeconfigs string
	// certificate has the addresses in the certificate of the API server.
	certificate []string
}

// probe is the state of a host's endpoint probe.
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

// operation identifies an operation.
type operation struct {
	kind protocol.OperationType
	id   string
}

func hostPort(address string) string { return net.JoinHostPort(address, strconv.Itoa(port)) }

// agent runs one step of the host's agent.
func (s *simulation) agent(h *host) {
	if !h.on || !h.online {
		s.manager.contacts.lose(h)
		h.repeats = true
	}
	if !h.on {
		return
	}
	if h.online {
		h.lastContact = s.clock.Now()
		s.manager.contacts.poll(h)
		if !s.oneIn(4) {
			h.plan = s.planOf(h)
		}
	}
	s.runOperation(h)
	s.applyEndpoint(h)
	s.probeEndpoint(h)
	if h.online {
		s.send(h)
	}
}

// runOperation runs the plan's operation, at most once.
func (s *simulation) runOperation(h *host) {
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
		if h.node != nil || s.oneIn(3) {
			return
		}
		h.ended[key] = s.bootstrap(h, op)
	case protocol.OperationReset:
		s.record("%s is reset", h.name)
		h.node, h.rejects, h.probe = nil, "", probe{}
		h.ended[key] = protocol.StateSucceeded
	default:
	}
}

// bootstrap makes the host a Node. It fails if the endpoint in the bootstrap data
// can't be reached.
func (s *simulation) bootstrap(h *host, op *protocol.Operation) protocol.OperationState {
	c, data := s.clusters[op.ClusterName], s.data[op.MachineName]
	if c == nil || data.endpoint == "" {
		return protocol.StateFailed
	}
	made := &node{cluster: c.name, controlPlane: data.controlPlane, member: data.controlPlane, kubeconfigs: data.endpoint, certificate: []string{h.address}}
	switch {
	case data.controlPlane && !c.initialized:
		c.initialized = true
		c.objects = [3]string{data.endpoint, data.endpoint, data.endpoint}
	case !s.reaches(h, data.endpoint, c):
		s.record("%s can't join %s by %s", h.name, c.name, data.endpoint)
		return protocol.StateFailed
	}
	if data.controlPlane && c.user != "" {
		made.certificate = append(made.certificate, c.user)
	}
	s.record("%s joins %s by %s", h.name, c.name, data.endpoint)
	h.node = made
	return protocol.StateSucceeded
}

// applyEndpoint updates kubeconfigs, publishes the endpoint and rejects connections
// according to the plan, online or not. Sometimes the agent is interrupted half-way.
func (s *simulation) applyEndpoint(h *host) {
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
	if s.oneIn(6) {
		return
	}
	if c := s.clusters[h.node.cluster]; desired.Publish && c != nil && s.serves(h) {
		for i := range c.objects {
			if slices.Contains(desired.Former, c.objects[i]) && !c.since[i].After(desired.Since) {
				c.objects[i], c.since[i] = endpoint, desired.Since
			}
			if s.oneIn(6) {
				break
			}
		}
	}
	h.rejects = desired.Reject
}

// probeEndpoint probes the endpoint and the host's own API server.
func (s *simulation) probeEndpoint(h *host) {
	desired := h.plan.Desired.Endpoint
	if desired == nil || !desired.Probe || h.node == nil {
		h.probe = probe{}
		return
	}
	now, p := s.clock.Now(), &h.probe
	endpoint := net.JoinHostPort(desired.Host, strconv.Itoa(int(desired.Port)))
	if p.endpoint != endpoint {
		*p = probe{endpoint: endpoint}
	}
	if ready := s.serves(h); ready != p.ready || p.readyAt.IsZero() {
		p.ready, p.readyAt = ready, now
	}
	if s.reaches(h, endpoint, s.clusters[h.node.cluster]) {
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
		h.missed, h.missedAt = endpoint, now
	}
}

// endpointReport returns the agent's report about the endpoint.
func (s *simulation) endpointReport(h *host) protocol.EndpointReport {
	desired := h.plan.Desired.Endpoint
	if desired == nil || h.node == nil {
		return protocol.EndpointReport{}
	}
	out := protocol.EndpointReport{Kubeconfigs: h.node.kubeconfigs, Rejects: h.rejects}
	if c := s.clusters[h.node.cluster]; desired.Publish && s.serves(h) && c.objects[0] == c.objects[1] && c.objects[1] == c.objects[2] {
		out.Workload = c.objects[0]
	}
	elapsed := func(since time.Time) int32 { return int32(max(s.clock.Since(since), 0) / time.Second) }
	if p := h.probe; desired.Probe {
		if p.known {
			out.Probe = &protocol.Probe{Endpoint: p.endpoint, Reachable: p.reached, ForSeconds: elapsed(p.since)}
		}
		out.APIServer = &protocol.APIServer{Ready: p.ready, ForSeconds: elapsed(p.readyAt), CertificateNames: h.node.certificate}
	}
	return out
}

// send reports changes. Messages may be lost, late or repeated, and their responses
// may be lost, but they never overtake each other.
func (s *simulation) send(h *host) {
	is := s.endpointReport(h)
	ops := unreported(h)
	if len(h.inFlight) == 0 && !h.isMute && !s.oneIn(5) && (h.answers() || h.repeats || len(ops) > 0 || h.address != h.ackedAddress || !reflect.DeepEqual(withoutDurations(is), h.acked)) {
		m := message{arrives: s.clock.Now(), address: h.address, report: protocol.Report{
			Endpoint: &is, Operations: ops,
			Addresses: []protocol.Address{{Type: protocol.AddressInternalIP, Address: h.address}},
		}}
		h.asked = false
		if s.oneIn(5) {
			m.arrives = m.arrives.Add(time.Duration(s.rand.IntN(20)) * time.Second)
		}
		h.inFlight = append(h.inFlight, m)
		if s.oneIn(5) {
			h.inFlight = append(h.inFlight, m)
		}
	}
	for len(h.inFlight) > 0 && !h.inFlight[0].arrives.After(s.clock.Now()) {
		m := h.inFlight[0]
		h.inFlight = h.inFlight[1:]
		s.manager.contacts.AllowRequest(s.manager.contacts.key(h))
		s.receive(h, m.report)
		s.answered(h)
		if h.repeats = s.oneIn(6); h.repeats {
			continue
		}
		h.acked, h.ackedAddress = withoutDurations(*m.report.Endpoint), m.address
		for _, op := range m.report.Operations {
			h.reported[operation{op.Type, op.ID}] = true
		}
	}
}

// answers reports whether the host has to answer a question. The agents of some hosts are
// of a version that does not know it.
func (h *host) answers() bool { return h.asked && h.knowsQuestion }

// answered records that the manager has received a report of the host, which answers a
// question.
func (s *simulation) answered(h *host) {
	if h.isQuestioned {
		h.isQuestioned, h.answeredAt = false, s.clock.Now()
	}
}

// unreported returns the operations whose result the manager has not acknowledged.
func unreported(h *host) []protocol.OperationReport {
	var out []protocol.OperationReport
	for op, state := range h.ended {
		if !h.reported[op] {
			out = append(out, protocol.OperationReport{Type: op.kind, ID: op.id, State: state})
		}
	}
	slices.SortFunc(out, func(a, b protocol.OperationReport) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Type, b.Type))
	})
	return out
}

// withoutDurations returns a report without the fields that change with time alone.
func withoutDurations(r protocol.EndpointReport) protocol.EndpointReport {
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

// install resets the host to the state after the agent's installation.
func (h *host) install() {
	h.node, h.rejects, h.probe, h.plan = nil, "", probe{}, protocol.Plan{}
	h.ended, h.reported = map[operation]protocol.OperationState{}, map[operation]bool{}
	h.acked, h.ackedAddress, h.inFlight = protocol.EndpointReport{}, h.address, nil
}
