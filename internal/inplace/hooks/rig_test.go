package hooks_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/desiredstate"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace/hooks"
)

const (
	former = "v1.35.4"
	wanted = "v1.36.3"
)

// rig has the hooks of a manager whose cluster c has the Machine m on the host h.
type rig struct {
	*WithT

	client client.Client
	mux    *http.ServeMux
}

// Register implements hooks.Server.
func (r *rig) Register(path string, hook http.Handler) { r.mux.Handle(path, hook) }

func newRig(tb testing.TB, mode infrav1.InPlaceMode) *rig {
	tb.Helper()
	r := &rig{WithT: NewWithT(tb), mux: http.NewServeMux()}
	scheme := runtime.NewScheme()
	r.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	r.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	host := &infrav1.ElementalHost{ObjectMeta: meta("h")}
	host.Spec.Claim = &infrav1.HostClaim{ID: "claim", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound}
	host.Status.Inventory = &infrav1.HostInventory{Architecture: "amd64"}
	host.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"NodeUpgrade", "NodeImage"}}
	r.client = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&infrav1.ElementalMachine{}, &infrav1.ElementalHost{}, &clusterv1.Machine{}).
		WithIndex(&clusterv1.Machine{}, index.MachineByCluster, func(o client.Object) []string { return []string{o.GetLabels()[clusterv1.ClusterNameLabel]} }).
		WithIndex(&infrav1.ElementalHost{}, index.HostByCluster, func(o client.Object) []string {
			return []string{o.(*infrav1.ElementalHost).Spec.Claim.ClusterName}
		}).
		WithObjects(
			&clusterv1.Cluster{ObjectMeta: meta("c"), Spec: clusterv1.ClusterSpec{InfrastructureRef: reference("ElementalCluster", "c")}},
			&infrav1.ElementalCluster{ObjectMeta: meta("c"), Spec: infrav1.ElementalClusterSpec{InPlace: infrav1.InPlace{Mode: mode}}},
			newMachine(former),
			newInfra(),
			host,
			&infrav1.ElementalKubernetesRelease{ObjectMeta: meta(wanted), Spec: infrav1.ElementalKubernetesReleaseSpec{
				Version: wanted, Bundles: []infrav1.KubernetesBundle{{Architecture: "amd64"}},
			}},
		).Build()
	hooks.Register(r, hooks.Options{Client: r.client})
	return r
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "n", Name: name} }

func reference(kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: kind, Name: name}
}

func newMachine(version string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: meta("m"), Spec: clusterv1.MachineSpec{ClusterName: "c", Version: version, InfrastructureRef: reference("ElementalMachine", "m")}}
	m.UID = "uid"
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c", "set": "s"}
	return m
}

func newInfra() *infrav1.ElementalMachine {
	m := &infrav1.ElementalMachine{ObjectMeta: meta("m"), Spec: infrav1.ElementalMachineSpec{
		ProviderID: "elemental://n/h", HostRef: &infrav1.HostReference{Name: "h", ClaimID: "claim"},
	}}
	m.TypeMeta = metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "ElementalMachine"}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "uid"}}
	return m
}

// newConfig returns the KubeadmConfig that KubeadmControlPlane itself computes for a version. For
// the former version it has a feature gate.
func newConfig(tb testing.TB, version string) *bootstrapv1.KubeadmConfig {
	tb.Helper()
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: meta("c"), Spec: controlplanev1.KubeadmControlPlaneSpec{Version: version}}
	kcp.Spec.KubeadmConfigSpec.JoinConfiguration.NodeRegistration.Name = "{{ ds.meta_data.local_hostname }}"
	kcp.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{Path: "/etc/x", Content: "secret"}}
	config, err := desiredstate.ComputeDesiredKubeadmConfig(kcp, &clusterv1.Cluster{ObjectMeta: meta("c")}, true, "m", nil)
	NewWithT(tb).Expect(err).NotTo(HaveOccurred())
	config.TypeMeta = metav1.TypeMeta{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "KubeadmConfig"}
	config.OwnerReferences = nil
	return config
}

// sentMachine returns the Machine as Cluster API sends it: its spec and what people write.
func sentMachine(version string) clusterv1.Machine {
	is := newMachine(version)
	return clusterv1.Machine{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: is.Namespace, Name: is.Name, Labels: is.Labels},
		Spec:       is.Spec,
	}
}

// sent returns an object of another kind as Cluster API sends it.
func sent(tb testing.TB, object runtime.Object) runtime.RawExtension {
	tb.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	NewWithT(tb).Expect(err).NotTo(HaveOccurred())
	u := &unstructured.Unstructured{Object: content}
	u.SetOwnerReferences(nil)
	delete(u.Object, "status")
	return runtime.RawExtension{Object: u}
}

// machineRequest returns a request for the wanted version, as KubeadmControlPlane makes it.
func machineRequest(tb testing.TB) *runtimehooksv1.CanUpdateMachineRequest {
	tb.Helper()
	objects := func(version string) runtimehooksv1.CanUpdateMachineRequestObjects {
		return runtimehooksv1.CanUpdateMachineRequestObjects{
			Machine:               sentMachine(version),
			InfrastructureMachine: sent(tb, newInfra()),
			BootstrapConfig:       sent(tb, newConfig(tb, version)),
		}
	}
	return &runtimehooksv1.CanUpdateMachineRequest{Current: objects(former), Desired: objects(wanted)}
}

// setRequest returns a request for the wanted version, as a MachineDeployment makes it.
func setRequest(tb testing.TB) *runtimehooksv1.CanUpdateMachineSetRequest {
	tb.Helper()
	objects := func(version string) runtimehooksv1.CanUpdateMachineSetRequestObjects {
		set := clusterv1.MachineSet{TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet"}, ObjectMeta: meta("s"), Spec: clusterv1.MachineSetSpec{
			ClusterName: "c", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"set": "s"}},
		}}
		set.Spec.Template.Spec = newMachine(version).Spec
		set.Spec.Template.Spec.InfrastructureRef = reference("ElementalMachineTemplate", "t-"+version)
		template := &infrav1.ElementalMachineTemplate{
			TypeMeta: metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "ElementalMachineTemplate"}, ObjectMeta: meta("t"),
		}
		template.Spec.Template.Spec = &infrav1.ElementalMachineSpec{}
		config := &bootstrapv1.KubeadmConfigTemplate{
			TypeMeta: metav1.TypeMeta{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "KubeadmConfigTemplate"}, ObjectMeta: meta("t"),
		}
		config.Spec.Template.Spec.JoinConfiguration.NodeRegistration.Name = "x"
		return runtimehooksv1.CanUpdateMachineSetRequestObjects{
			MachineSet:                    set,
			InfrastructureMachineTemplate: sent(tb, template),
			BootstrapConfigTemplate:       sent(tb, config),
		}
	}
	return &runtimehooksv1.CanUpdateMachineSetRequest{Current: objects(former), Desired: objects(wanted)}
}

// call calls a hook as Cluster API does, and decodes the answer.
func (r *rig) call(hook runtimecatalog.Hook, name string, request, answer any) {
	body, err := json.Marshal(request)
	r.Expect(err).NotTo(HaveOccurred())
	r.post(hook, name, body, answer)
}

func (r *rig) post(hook runtimecatalog.Hook, name string, body []byte, answer any) {
	catalog := runtimecatalog.New()
	r.Expect(runtimehooksv1.AddToCatalog(catalog)).To(Succeed())
	gvh, err := catalog.GroupVersionHook(hook)
	r.Expect(err).NotTo(HaveOccurred())
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, runtimecatalog.GVHToPath(gvh, name)+"?timeout=10s", bytes.NewReader(body)))
	r.Expect(w.Code).To(Equal(http.StatusOK))
	r.Expect(json.NewDecoder(w.Body).Decode(answer)).To(Succeed())
}

func (r *rig) canUpdateMachine(q *runtimehooksv1.CanUpdateMachineRequest) *runtimehooksv1.CanUpdateMachineResponse {
	answer := &runtimehooksv1.CanUpdateMachineResponse{}
	r.call(runtimehooksv1.CanUpdateMachine, "can-update-machine", q, answer)
	return answer
}

func (r *rig) canUpdateMachineSet(q *runtimehooksv1.CanUpdateMachineSetRequest) *runtimehooksv1.CanUpdateMachineSetResponse {
	answer := &runtimehooksv1.CanUpdateMachineSetResponse{}
	r.call(runtimehooksv1.CanUpdateMachineSet, "can-update-machine-set", q, answer)
	return answer
}

func (r *rig) updateMachine(tb testing.TB) *runtimehooksv1.UpdateMachineResponse {
	tb.Helper()
	answer := &runtimehooksv1.UpdateMachineResponse{}
	r.call(runtimehooksv1.UpdateMachine, "update-machine", updateRequest(tb), answer)
	return answer
}

// updateRequest returns a request to update the Machine to the wanted version.
func updateRequest(tb testing.TB) *runtimehooksv1.UpdateMachineRequest {
	tb.Helper()
	return &runtimehooksv1.UpdateMachineRequest{Desired: runtimehooksv1.UpdateMachineRequestObjects{
		Machine: sentMachine(wanted), InfrastructureMachine: sent(tb, newInfra()), BootstrapConfig: sent(tb, newConfig(tb, wanted)),
	}}
}

// long returns a body of that size that is not JSON until its end.
func long(size int) []byte { return []byte(`{"settings":{"x":"` + strings.Repeat("x", size) + `"}}`) }
