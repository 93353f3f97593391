package facts

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// What the API server would refuse counts as unknown, and a host can't fill its object.
func TestReportedPreflight(t *testing.T) {
	g := NewWithT(t)
	report := func(in *protocol.Preflight) *infrav1.HostPreflight {
		host := &infrav1.ElementalHost{}
		SetReported(host, &protocol.Report{Inventory: &protocol.Inventory{Preflight: in}}, time.Now())
		return host.Status.Inventory.Preflight
	}
	g.Expect(report(nil)).To(BeNil(), "an old agent does not report it")
	g.Expect(report(&protocol.Preflight{})).To(Equal(&infrav1.HostPreflight{}))
	g.Expect(report(&protocol.Preflight{
		Swap: protocol.FeatureEnabled, BridgeNetfilter: protocol.FeatureMissing, IPForwarding: protocol.FeatureDisabled, CgroupVersion: 2,
		TakenPorts: []int32{6443, 2379}, RuntimeSocket: protocol.FeatureEnabled, NameServers: protocol.FeatureMissing, KubeletCgroupV1: protocol.FeatureDisabled, FreeBytes: 1 << 40,
	})).To(Equal(&infrav1.HostPreflight{
		Swap: infrav1.FeatureEnabled, BridgeNetfilter: infrav1.FeatureMissing, IPForwarding: infrav1.FeatureDisabled, CgroupVersion: 2,
		TakenPorts: []int32{2379, 6443}, RuntimeSocket: infrav1.FeatureEnabled, NameServers: infrav1.FeatureMissing, KubeletCgroupV1: infrav1.FeatureDisabled, FreeBytes: 1 << 40,
	}))
	g.Expect(report(&protocol.Preflight{
		Swap: "On", BridgeNetfilter: "\n", CgroupVersion: 3, TakenPorts: []int32{-1, 0, 65536, 80, 80}, FreeBytes: -1,
	})).To(Equal(&infrav1.HostPreflight{TakenPorts: []int32{80}}))
	many := &protocol.Preflight{}
	for port := range int32(1000) {
		many.TakenPorts = append(many.TakenPorts, port+1)
	}
	g.Expect(report(many).TakenPorts).To(HaveLen(protocol.MaxTakenPorts))
}
