package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// restoring returns a control-plane host that is asked to restore etcd.
func restoring() *infrav1.ElementalHost {
	host := &infrav1.ElementalHost{}
	host.Namespace, host.Name = "ns", "h"
	host.Spec.Approval = infrav1.ApprovalApproved
	host.Spec.Claim = &infrav1.HostClaim{ID: "claim", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
	host.Spec.EtcdRestore = &infrav1.HostEtcdRestore{ID: "claim.1", SnapshotID: "1", SHA256: strings.Repeat("a", 64), ReplaceHealthy: new(true)}
	host.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "EtcdRestore", "NodeUpgrade"}}
	host.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "claim", State: infrav1.OperationSucceeded}}
	return host
}

func TestEtcdRestore(t *testing.T) {
	t.Parallel()
	report := func(state infrav1.OperationState) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{Type: infrav1.OperationEtcdRestore, ID: "claim.1", State: state})
		}
	}
	for name, test := range map[string]struct {
		change func(*infrav1.ElementalHost)
		wanted bool
	}{
		"asked":    {func(*infrav1.ElementalHost) {}, true},
		"running":  {report(infrav1.OperationRunning), true},
		"finished": {report(infrav1.OperationSucceeded), false},
		"failed":   {report(infrav1.OperationFailed), false},
		"before an upgrade": {func(h *infrav1.ElementalHost) {
			h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: "claim.2", Role: infrav1.UpgradeControlPlane}
		}, true},
		"a worker":                      {func(h *infrav1.ElementalHost) { h.Spec.Claim.Role = infrav1.RoleWorker }, false},
		"an old agent":                  {func(h *infrav1.ElementalHost) { h.Status.Agent.Capabilities = []string{"Bootstrap"} }, false},
		"uploaded, an agent that can't": {func(h *infrav1.ElementalHost) { h.Spec.EtcdRestore.Uploaded = new(true) }, false},
		"in maintenance":                {func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{} }, false},
		"running, in maintenance": {func(h *infrav1.ElementalHost) {
			report(infrav1.OperationRunning)(h)
			h.Spec.Maintenance = &infrav1.HostMaintenance{}
		}, true},
		"withdrawn": {func(h *infrav1.ElementalHost) { h.Spec.EtcdRestore.WithdrawnAt = metav1.Now() }, false},
		"running, withdrawn": {func(h *infrav1.ElementalHost) {
			report(infrav1.OperationRunning)(h)
			h.Spec.EtcdRestore.WithdrawnAt = metav1.Now()
		}, true},
		"a paused host": {func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, false},
		"a fenced host": {func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := restoring()
			test.change(host)
			// The restore begins while its Cluster is paused.
			providerIDs := []string{"elemental://ns/h", "elemental://ns/w"}
			got := plan.For(host, plan.Site{}, plan.Cluster{Paused: true, ProviderIDs: providerIDs}).Operation
			if isWanted := got != nil && got.Type == protocol.OperationEtcdRestore; isWanted != test.wanted {
				t.Fatalf("got %+v", got)
			}
			want := &protocol.EtcdRestore{
				SnapshotID: "1", SHA256: strings.Repeat("a", 64), Cluster: protocol.EtcdCluster{Namespace: "ns", Name: "c"}, ReplaceHealthy: true,
				ProviderIDs: providerIDs,
			}
			if test.wanted && !cmp.Equal(got.EtcdRestore, want) {
				t.Error(cmp.Diff(want, got.EtcdRestore))
			}
		})
	}
}

// A reboot that belongs to a restore begins while the Cluster is paused for it; another one waits.
func TestRebootOfARestore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		restore string
		change  func(*infrav1.ElementalHost)
		wanted  bool
	}{
		"of a restore":  {"r", func(*infrav1.ElementalHost) {}, true},
		"of nothing":    {"", func(*infrav1.ElementalHost) {}, false},
		"a paused host": {"r", func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := restoring()
			host.Spec.Claim.Role, host.Spec.EtcdRestore = infrav1.RoleWorker, nil
			host.Spec.Reboot = &infrav1.HostReboot{ID: "claim.1", RestoreName: test.restore}
			host.Status.Agent.Capabilities = append(host.Status.Agent.Capabilities, "Reboot")
			test.change(host)
			op := plan.For(host, plan.Site{}, plan.Cluster{Paused: true}).Operation
			if isWanted := op != nil && op.Type == protocol.OperationReboot && op.ID == "claim.1"; isWanted != test.wanted {
				t.Errorf("got %+v", op)
			}
		})
	}
}

// An agent that can download snapshots learns that it has to.
func TestUploadedEtcdRestore(t *testing.T) {
	t.Parallel()
	host := restoring()
	host.Spec.EtcdRestore.Uploaded = new(true)
	host.Status.Agent.Capabilities = append(host.Status.Agent.Capabilities, "EtcdSnapshotFetch")
	op := plan.For(host, plan.Site{}, plan.Cluster{Paused: true}).Operation
	if op == nil || op.Type != protocol.OperationEtcdRestore || !op.EtcdRestore.Uploaded {
		t.Errorf("got %+v", op)
	}
}

// An agent that can set up the control plane again learns that it has to; another one gets nothing.
func TestRebuildingEtcdRestore(t *testing.T) {
	t.Parallel()
	host := restoring()
	host.Spec.EtcdRestore.RebuildControlPlane = new(true)
	if op := plan.For(host, plan.Site{}, plan.Cluster{Paused: true}).Operation; op != nil && op.Type == protocol.OperationEtcdRestore {
		t.Errorf("an old agent gets %+v", op)
	}
	host.Status.Agent.Capabilities = append(host.Status.Agent.Capabilities, "ControlPlaneRebuild")
	op := plan.For(host, plan.Site{}, plan.Cluster{Paused: true}).Operation
	if op == nil || op.Type != protocol.OperationEtcdRestore || !op.EtcdRestore.Rebuild {
		t.Errorf("got %+v", op)
	}
}

// A host that stands still does nothing else, and starts again once.
func TestControlPlaneHalt(t *testing.T) {
	t.Parallel()
	report := func(kind infrav1.OperationType, state infrav1.OperationState) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{Type: kind, ID: "claim.1", State: state})
		}
	}
	ended := func(h *infrav1.ElementalHost) { h.Spec.ControlPlaneHalt.Ended = new(true) }
	for name, test := range map[string]struct {
		changes []func(*infrav1.ElementalHost)
		want    protocol.OperationType
	}{
		"asked":           {nil, protocol.OperationControlPlaneHalt},
		"halted":          {[]func(*infrav1.ElementalHost){report(infrav1.OperationControlPlaneHalt, infrav1.OperationSucceeded)}, protocol.OperationControlPlaneHalt},
		"not halted":      {[]func(*infrav1.ElementalHost){report(infrav1.OperationControlPlaneHalt, infrav1.OperationFailed)}, protocol.OperationControlPlaneHalt},
		"ended":           {[]func(*infrav1.ElementalHost){ended}, protocol.OperationControlPlaneStart},
		"started":         {[]func(*infrav1.ElementalHost){ended, report(infrav1.OperationControlPlaneStart, infrav1.OperationSucceeded)}, protocol.OperationBootstrap},
		"an old agent":    {[]func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) { h.Status.Agent.Capabilities = []string{"Bootstrap"} }}, ""},
		"a fenced host":   {[]func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{} }}, ""},
		"a released host": {[]func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing }}, protocol.OperationReset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := restoring()
			host.Spec.EtcdRestore = nil
			host.Spec.ControlPlaneHalt = &infrav1.HostControlPlaneHalt{ID: "claim.1", RestoreName: "r"}
			host.Status.Agent.Capabilities = []string{"Bootstrap", "Reset", "ControlPlaneHalt"}
			for _, change := range test.changes {
				change(host)
			}
			var got protocol.OperationType
			if op := plan.For(host, plan.Site{}, plan.Cluster{}).Operation; op != nil {
				got = op.Type
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
