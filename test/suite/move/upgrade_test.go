//go:build embedded

package move

import (
	"strings"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/upgrade"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
)

const version = "v1.36.3"

// beginUpgrade has Cluster API ask for an upgrade of the host, which is in the midst of it then.
func (s *side) beginUpgrade(h *infrav1.ElementalHost) {
	s.T.Helper()
	s.Create(&infrav1.ElementalKubernetesRelease{ObjectMeta: s.Meta(version), Spec: infrav1.ElementalKubernetesReleaseSpec{
		Version: version, Bundles: []infrav1.KubernetesBundle{{Architecture: "amd64", SHA256: strings.Repeat("a", 64), SizeBytes: 1}},
	}})
	s.Report(h, func(status *infrav1.ElementalHostStatus) {
		status.Agent.Capabilities = append(status.Agent.Capabilities, "NodeUpgrade")
		status.Inventory = &infrav1.HostInventory{Architecture: "amd64"}
	})
	controllertest.Change(s.Fixture, &clusterv1.Machine{ObjectMeta: s.Meta(h.Name)}, func(m *clusterv1.Machine) {
		m.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: "", runtimev1.PendingHooksAnnotation: "UpdateMachine"}
		m.Spec.Version = version
	})
	controllertest.Change(s.Fixture, &infrav1.ElementalMachine{ObjectMeta: s.Meta(h.Name)}, func(m *infrav1.ElementalMachine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.UpdateInProgressAnnotation, "")
	})
	s.upgrade(h.Name)
	s.Refresh(h)
	s.reportUpgrade(h, infrav1.OperationRunning)
}

// endUpgrade sees that the host is asked for the same upgrade as before the move, which ends well.
func (s *side) endUpgrade(name string, requested *infrav1.HostNodeUpgrade) {
	s.T.Helper()
	m := &infrav1.ElementalMachine{ObjectMeta: s.Meta(name)}
	s.upgrade(name)
	s.ExpectCondition(m, infrav1.KubernetesUpToDateCondition, metav1.ConditionFalse, infrav1.UpgradingReason)
	s.Expect(s.host(name).Spec.NodeUpgrade).To(Equal(requested), "no other request")
	s.reportUpgrade(s.host(name), infrav1.OperationSucceeded)
	s.upgrade(name)
	s.ExpectCondition(m, infrav1.KubernetesUpToDateCondition, metav1.ConditionTrue, infrav1.KubernetesUpToDateReason)
	s.Expect(s.host(name).Spec.NodeUpgrade).To(Equal(requested))
	owner := &clusterv1.Machine{ObjectMeta: s.Meta(name)}
	s.Refresh(owner)
	s.Expect(inplace.IsAsked(owner)).To(BeTrue(), "Cluster API goes on with the update")
	s.Expect(s.Exists(&infrav1.ElementalKubernetesRelease{ObjectMeta: s.Meta(version)})).To(BeTrue())
}

// upgrade reconciles the upgrade of a machine once.
func (s *side) upgrade(name string) {
	s.T.Helper()
	r := &upgrade.Reconciler{Client: s.Client, APIReader: s.Admin, Recorder: s.Recorder, Clock: s.Clock}
	_, err := r.Reconcile(s.Ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: s.Namespace, Name: name}})
	s.Expect(err).NotTo(HaveOccurred())
}

// reportUpgrade reports the state of the host's upgrade at the step kubeadm.
func (s *side) reportUpgrade(h *infrav1.ElementalHost, state infrav1.OperationState) {
	s.T.Helper()
	s.Expect(h.Spec.NodeUpgrade).NotTo(BeNil())
	s.Report(h, func(status *infrav1.ElementalHostStatus) {
		controllertest.SetOperation(status, infrav1.HostOperation{
			Type: infrav1.OperationNodeUpgrade, ID: h.Spec.NodeUpgrade.ID, State: state, Step: "kubeadm",
		})
	})
}
