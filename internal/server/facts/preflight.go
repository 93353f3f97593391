package facts

import (
	"slices"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// preflightOf converts and bounds the facts of the preflight. It returns nil for an agent that
// does not report them. An invalid fact counts as unknown.
func preflightOf(in *protocol.Preflight) *infrav1.HostPreflight {
	if in == nil {
		return nil
	}
	out := &infrav1.HostPreflight{
		Swap:            featureOf(in.Swap),
		BridgeNetfilter: featureOf(in.BridgeNetfilter),
		IPForwarding:    featureOf(in.IPForwarding),
		RuntimeSocket:   featureOf(in.RuntimeSocket),
		NameServers:     featureOf(in.NameServers),
		KubeletCgroupV1: featureOf(in.KubeletCgroupV1),
		FreeBytes:       max(in.FreeBytes, 0),
	}
	if in.CgroupVersion == 1 || in.CgroupVersion == 2 {
		out.CgroupVersion = in.CgroupVersion
	}
	for _, port := range in.TakenPorts {
		if port > 0 && port <= 65535 && !slices.Contains(out.TakenPorts, port) && len(out.TakenPorts) < protocol.MaxTakenPorts {
			out.TakenPorts = append(out.TakenPorts, port)
		}
	}
	slices.Sort(out.TakenPorts)
	return out
}

func featureOf(in protocol.FeatureState) infrav1.FeatureState {
	switch in {
	case protocol.FeatureEnabled, protocol.FeatureDisabled, protocol.FeatureMissing:
		return infrav1.FeatureState(in)
	default:
		return ""
	}
}
