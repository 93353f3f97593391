package plan

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// desiredLog returns the log that the host is asked for, or nil. A paused cluster is no reason not
// to ask: nothing changes on the host.
func desiredLog(host *infrav1.ElementalHost) *protocol.LogRequest {
	request := host.Spec.LogRequest
	if request == nil || host.Spec.Fence != nil || Paused(host) || !host.Supports(infrav1.OperationType(protocol.CapabilityLogs)) {
		return nil
	}
	return &protocol.LogRequest{ID: request.ID, Operation: protocol.OperationType(request.Operation)}
}
