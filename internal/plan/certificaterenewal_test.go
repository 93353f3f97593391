package plan_test

import (
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestCertificateRenewal(t *testing.T) {
	t.Parallel()
	report := func(kind infrav1.OperationType, id string, state infrav1.OperationState) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{Type: kind, ID: id, State: state})
		}
	}
	renewal := func(state infrav1.OperationState) func(*infrav1.ElementalHost) {
		return report(infrav1.OperationCertificateRenewal, "claim.1", state)
	}
	restore := func(h *infrav1.ElementalHost) {
		h.Spec.EtcdRestore = &infrav1.HostEtcdRestore{ID: "claim.2", SnapshotID: "1"}
	}
	maintenance := func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{} }
	for name, test := range map[string]struct {
		changes []func(*infrav1.ElementalHost)
		paused  bool
		wanted  bool
	}{
		"asked":                   {wanted: true},
		"running":                 {changes: []func(*infrav1.ElementalHost){renewal(infrav1.OperationRunning)}, wanted: true},
		"finished":                {changes: []func(*infrav1.ElementalHost){renewal(infrav1.OperationSucceeded)}},
		"failed":                  {changes: []func(*infrav1.ElementalHost){renewal(infrav1.OperationFailed)}},
		"in maintenance":          {changes: []func(*infrav1.ElementalHost){maintenance}},
		"running, in maintenance": {changes: []func(*infrav1.ElementalHost){maintenance, renewal(infrav1.OperationRunning)}, wanted: true},
		"while etcd is restored":  {changes: []func(*infrav1.ElementalHost){restore}},
		"a paused cluster":        {paused: true},
		"a worker":                {changes: []func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) { h.Spec.Claim.Role = infrav1.RoleWorker }}},
		"an old agent":            {changes: []func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) { h.Status.Agent.Capabilities = []string{"Bootstrap"} }}},
		"a paused host": {changes: []func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) {
			h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}}},
		"a fenced host": {changes: []func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{} }}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := restoring()
			host.Spec.EtcdRestore = nil
			host.Spec.CertificateRenewal = &infrav1.HostCertificateRenewal{ID: "claim.1"}
			host.Status.Agent.Capabilities = append(host.Status.Agent.Capabilities, "CertificateRenewal")
			for _, change := range test.changes {
				change(host)
			}
			got := plan.For(host, plan.Site{}, plan.Cluster{Paused: test.paused}).Operation
			if isWanted := got != nil && got.Type == protocol.OperationCertificateRenewal && got.ID == "claim.1"; isWanted != test.wanted {
				t.Errorf("got %+v", got)
			}
		})
	}
}
