package certificates

import (
	"testing"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// A cluster whose host waits for an agent that can renew certificates is woken by that agent, which may
// change nothing else.
func TestNewAgentConcernsTheCluster(t *testing.T) {
	before := &infrav1.ElementalHost{}
	before.Status.Agent = &infrav1.HostAgent{Version: "v0.1.0", Capabilities: []string{string(infrav1.OperationBootstrap)}}
	after := before.DeepCopy()
	after.Status.Agent.Version = "v0.1.1"
	if concernsHost(before, after) {
		t.Error("another version alone wakes the cluster")
	}
	after.Status.Agent.Capabilities = append(after.Status.Agent.Capabilities, string(infrav1.OperationCertificateRenewal))
	if !concernsHost(before, after) {
		t.Error("an agent that can renew certificates does not wake the cluster")
	}
}
