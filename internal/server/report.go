package server

import (
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// report records facts. It answers when they are durable, but for progress and
// for evidence that flaps, which may wait. A loss of either does no harm: hosts
// tell everything again when they connect anew.
func (s *Server) report(w http.ResponseWriter, r *http.Request, who caller) error {
	key := client.ObjectKeyFromObject(who.host)
	if after, ok := s.presence.allowReport(key); !ok {
		return errTooMany(after)
	}
	begin := s.clock.Now()
	in, err := decode[protocol.Report](w, r)
	if err != nil {
		return err
	}
	ops, err := operationsOf(in.Operations)
	if err != nil {
		return err
	}
	endpoint, err := endpointOf(in.Endpoint, s.clock.Now())
	if err != nil {
		return err
	}
	ctx := r.Context()
	var endpointChanged bool
	var recorded []infrav1.HostOperation
	_, err = s.hosts.update(ctx, key, func(host *infrav1.ElementalHost) error {
		if !holds(host, who.fingerprint) {
			return errUnknownHost()
		}
		setFacts(host, &in, s.clock.Now())
		if recorded, err = s.setOperations(host, key, ops); err != nil {
			return err
		}
		endpointChanged, err = s.setEndpoint(ctx, host, endpoint)
		return err
	})
	if err != nil {
		return err
	}
	for _, op := range recorded {
		s.presence.progressWritten(key, op)
	}
	if endpointChanged {
		s.presence.evidenceWritten(key, endpoint, true)
	}
	s.metrics.reportSeconds.Observe(s.clock.Since(begin).Seconds())
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// setFacts sets what the report has; nil and empty mean unchanged.
func setFacts(host *infrav1.ElementalHost, in *protocol.Report, now time.Time) {
	if in.Hello != nil {
		host.Status.Agent = agentOf(*in.Hello, host.Status.Agent, now)
	}
	if in.AgentUpdate != nil {
		if update := updateOf(*in.AgentUpdate); update != nil {
			if host.Status.Agent == nil {
				host.Status.Agent = &infrav1.HostAgent{}
			}
			host.Status.Agent.Update = update
		}
	}
	if in.Inventory != nil {
		host.Status.Inventory = inventoryOf(*in.Inventory)
	}
	if addresses := addressesOf(in.Addresses); len(addresses) > 0 {
		host.Status.Addresses = addresses
	}
	if in.Cleanliness != nil {
		host.Status.Cleanliness = cleanlinessOf(*in.Cleanliness)
	}
}

// setOperations records operations, except for progress that has to wait.
func (s *Server) setOperations(host *infrav1.ElementalHost, key types.NamespacedName, ops []reported) ([]infrav1.HostOperation, error) {
	var recorded []infrav1.HostOperation
	for _, op := range ops {
		before := slices.Clone(host.Status.Operations)
		if err := record(host, op.HostOperation, s.clock.Now()); err != nil {
			return nil, err
		}
		if equality.Semantic.DeepEqual(before, host.Status.Operations) {
			continue
		}
		if op.State == infrav1.OperationRunning && s.presence.deferProgress(key, op.HostOperation) {
			host.Status.Operations = before
			continue
		}
		if len(op.erased) > 0 {
			host.Status.Erasure = &infrav1.HostErasure{OperationID: op.ID, Disks: op.erased}
		}
		recorded = append(recorded, op.HostOperation)
	}
	return recorded, nil
}
