package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// setups is the API with two control-plane hosts, and a confirmed restore that sets up the control
// plane of the first one again.
type setups struct {
	*harness
	a, other *agent
	restore  *infrav1.ElementalEtcdRestore
}

const setupID = "claim-m1.1"

func newSetups(t *testing.T) *setups {
	t.Helper()
	s := &setups{harness: start(t)}
	token := s.fleet()
	ctx := context.Background()
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "c"}}
	kcp.Spec.Version = "v1.36.3"
	kcp.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachineTemplate", Name: "c"}
	kcp.Spec.KubeadmConfigSpec.InitConfiguration.NodeRegistration = bootstrapv1.NodeRegistrationOptions{Name: "{{ ds.meta_data.local_hostname }}"}
	s.must(s.admin.Create(ctx, kcp))
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "c"}}
	s.must(s.admin.Patch(ctx, cluster, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"controlPlaneRef":{"apiGroup":"controlplane.cluster.x-k8s.io","kind":"KubeadmControlPlane","name":"c"}}}`))))
	s.cachedSoon(cluster)
	s.a, s.other = s.controlPlane(token, "m1"), s.controlPlane(token, "m2")
	s.restore = &infrav1.ElementalEtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "r"}}
	s.restore.Spec = infrav1.ElementalEtcdRestoreSpec{
		ClusterName: "c", Confirm: "c", RebuildControlPlane: new(true),
		Source:  infrav1.EtcdRestoreSource{Snapshot: &infrav1.EtcdRestoreSnapshot{HostName: s.a.name, ID: "1"}},
		Request: &infrav1.EtcdRestoreRequest{ID: setupID, HostName: s.a.name, SHA256: strings.Repeat("a", 64)},
	}
	s.must(s.admin.Create(ctx, s.restore))
	s.askToRebuild(s.a)
	return s
}

// controlPlane returns a host that was bootstrapped with the data of its Machine.
func (s *setups) controlPlane(token, machine string) *agent {
	s.tb.Helper()
	a := s.enrolled(token)
	c := s.chain(a.name, machine)
	c.claim.Role = infrav1.RoleControlPlane
	c.machine.Spec.Version = "v1.36.3"
	c.create(s.harness)
	got := a.reportOperation(protocol.OperationBootstrap, "claim-"+machine, protocol.StateSucceeded)
	if got.status != http.StatusNoContent {
		s.tb.Fatalf("reporting the bootstrap: %d %s", got.status, got.body)
	}
	hello := enrolRequest().Hello
	hello.Capabilities = append(hello.Capabilities, protocol.CapabilityEtcdRestore, protocol.CapabilityControlPlaneRebuild)
	if got := a.report(protocol.Report{Hello: &hello}); got.status != http.StatusNoContent {
		s.tb.Fatalf("reporting capabilities: %d %s", got.status, got.body)
	}
	s.cachedSoon(s.host(a.name))
	return a
}

// askToRebuild makes the host's spec have the restore.
func (s *setups) askToRebuild(a *agent) {
	s.tb.Helper()
	s.cachedSoon(s.patch(a.name, func(h *infrav1.ElementalHost) {
		h.Spec.EtcdRestore = &infrav1.HostEtcdRestore{
			ID: setupID, RestoreName: "r", SnapshotID: "1", SHA256: strings.Repeat("a", 64), RebuildControlPlane: new(true),
		}
	}))
}

// reconfirm replaces the restore by a changed one.
func (s *setups) reconfirm(change func(*infrav1.ElementalEtcdRestoreSpec)) {
	s.tb.Helper()
	ctx := context.Background()
	s.must(s.admin.Delete(ctx, s.restore))
	changed := &infrav1.ElementalEtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "r"}, Spec: *s.restore.Spec.DeepCopy()}
	change(&changed.Spec)
	s.must(s.admin.Create(ctx, changed))
}

func (s *setups) want(a *agent, id string) answer {
	return a.call(http.MethodPost, protocol.PathControlPlaneSetup, protocol.ControlPlaneSetupRequest{ID: id})
}

// A host gets the keys of the authorities once more for its own confirmed restore that rebuilds the
// control plane, while that goes on, and never otherwise.
func TestThreat98_SetupOnlyForAConfirmedRebuild(t *testing.T) {
	s := newSetups(t)
	g := NewWithT(t)
	for range 2 { // after a power cut it asks again
		got := s.want(s.a, setupID)
		g.Expect(got.status).To(Equal(http.StatusOK), got.body)
		var setup protocol.ControlPlaneSetup
		s.must(json.Unmarshal([]byte(got.body), &setup))
		g.Expect(string(setup.BootstrapData)).To(Equal("#cloud-config of m1"))
		g.Expect(setup.Format).To(Equal(protocol.FormatCloudConfig))
		g.Expect(setup.KubeadmConfig).To(ContainSubstring("kubernetesVersion: v1.36.3"))
		g.Expect(got.header.Get("Cache-Control")).To(Equal("no-store"))
	}
	g.Expect(s.logs.text()).To(ContainSubstring(`"decision":"ControlPlaneSetupServed"`))
	g.Expect(s.a.bootstrap("claim-m1").status).To(Equal(http.StatusNotFound), "bootstrap data is served once")

	refused := func(what string, got answer) {
		t.Helper()
		g.Expect(got.status).To(Equal(http.StatusNotFound), "%s: %s", what, got.body)
		g.Expect(got.body).NotTo(ContainSubstring("bootstrapData"), what)
	}
	refused("another operation", s.want(s.a, "claim-m1.2"))
	refused("another host", s.want(s.other, setupID))
	s.askToRebuild(s.other)
	refused("another host that is asked too", s.want(s.other, setupID))
	for what, change := range map[string]func(*infrav1.ElementalEtcdRestoreSpec){
		"unconfirmed":     func(r *infrav1.ElementalEtcdRestoreSpec) { r.Confirm = "" },
		"not begun":       func(r *infrav1.ElementalEtcdRestoreSpec) { r.Request = nil },
		"another request": func(r *infrav1.ElementalEtcdRestoreSpec) { r.Request.ID = "claim-m1.2" },
		"ended":           func(r *infrav1.ElementalEtcdRestoreSpec) { r.Request.Result = infrav1.EtcdRestoreFailed },
		"of another host": func(r *infrav1.ElementalEtcdRestoreSpec) { r.Request.HostName = s.other.name },
		"of data only":    func(r *infrav1.ElementalEtcdRestoreSpec) { r.RebuildControlPlane = nil },
	} {
		s.reconfirm(change)
		refused(what, s.want(s.a, setupID))
	}
	s.reconfirm(func(*infrav1.ElementalEtcdRestoreSpec) {})
	g.Expect(s.want(s.a, setupID).status).To(Equal(http.StatusOK))

	s.cachedSoon(s.patch(s.a.name, func(h *infrav1.ElementalHost) { h.Spec.EtcdRestore.RebuildControlPlane = nil }))
	refused("the host's request is of data only", s.want(s.a, setupID))
	s.askToRebuild(s.a)
	g.Expect(s.a.reportOperation(protocol.OperationEtcdRestore, setupID, protocol.StateFailed).status).To(Equal(http.StatusNoContent))
	s.cachedSoon(s.host(s.a.name))
	refused("the host's restore has ended", s.want(s.a, setupID))
}

// A host learns nothing of the management cluster from what stands in the way there.
func TestSetupWithoutAControlPlane(t *testing.T) {
	s := newSetups(t)
	g := NewWithT(t)
	s.must(s.admin.Delete(t.Context(), &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "c"}}))
	got := s.want(s.a, setupID)
	g.Expect(got.status).To(Equal(http.StatusServiceUnavailable), got.body)
	g.Expect(got.body).NotTo(ContainSubstring("KubeadmControlPlane"))
	g.Expect(got.header.Get("Retry-After")).NotTo(BeEmpty())
}
