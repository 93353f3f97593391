package facts

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// setBundle sets what the host reports about the bundle that its spec names. A report of
// another bundle is ignored: it is of an earlier plan, or wrong. Only the state and the
// message are the host's word.
func setBundle(host *infrav1.ElementalHost, in protocol.BundleReport) {
	want := host.Spec.Bundle
	switch {
	case in == (protocol.BundleReport{}):
		host.Status.Bundle = nil
		return
	case want == nil || in.SHA256 != want.SHA256 || !host.IsBoundOrHeld():
		return
	}
	switch in.State {
	case protocol.BundleStaging, protocol.BundleStaged, protocol.BundleFailed:
		host.Status.Bundle = &infrav1.HostBundleStatus{
			SHA256: want.SHA256, Version: want.Version, State: infrav1.BundleState(in.State),
			Message: bounded(in.Message, protocol.MaxMessageBytes),
		}
	default:
	}
}
