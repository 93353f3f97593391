package hooks_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A request is what Cluster API's own types make of a change, so a new version of Cluster API that
// sends something else changes a file in testdata.
func TestGoldenCanUpdateMachine(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *runtimehooksv1.CanUpdateMachineRequest){
		"version": func(*testing.T, *runtimehooksv1.CanUpdateMachineRequest) {},
		"image": func(t *testing.T, q *runtimehooksv1.CanUpdateMachineRequest) {
			t.Helper()
			*q = *imageRequest(t)
		},
		"image-and-version": func(t *testing.T, q *runtimehooksv1.CanUpdateMachineRequest) {
			t.Helper()
			q.Desired.InfrastructureMachine = imageRequest(t).Desired.InfrastructureMachine
		},
		"field": func(t *testing.T, q *runtimehooksv1.CanUpdateMachineRequest) {
			t.Helper()
			config := newConfig(t, wanted)
			config.Spec.Files[0].Content = "another secret"
			q.Desired.BootstrapConfig = sent(t, config)
		},
		"foreign": func(_ *testing.T, q *runtimehooksv1.CanUpdateMachineRequest) {
			for _, objects := range []*runtimehooksv1.CanUpdateMachineRequestObjects{&q.Current, &q.Desired} {
				objects.Machine.Spec.InfrastructureRef.APIGroup, objects.Machine.Spec.InfrastructureRef.Kind = "infrastructure.example.com", "FooMachine"
			}
		},
	} {
		q := machineRequest(t)
		change(t, q)
		goldenOfModes(t, runtimehooksv1.CanUpdateMachine, "can-update-machine", name, q)
	}
}

func TestGoldenCanUpdateMachineSet(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *runtimehooksv1.CanUpdateMachineSetRequest){
		"version": func(*testing.T, *runtimehooksv1.CanUpdateMachineSetRequest) {},
		"image": func(t *testing.T, q *runtimehooksv1.CanUpdateMachineSetRequest) {
			t.Helper()
			current, desired := &q.Current.MachineSet.Spec.Template.Spec, &q.Desired.MachineSet.Spec.Template.Spec
			desired.Version, desired.InfrastructureRef.Name = current.Version, "t-image"
			template := &infrav1.ElementalMachineTemplate{
				TypeMeta: metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "ElementalMachineTemplate"}, ObjectMeta: meta("t"),
			}
			template.Spec.Template.Spec = &infrav1.ElementalMachineSpec{OSImage: wantedImage}
			q.Desired.InfrastructureMachineTemplate = sent(t, template)
		},
		"field": func(t *testing.T, q *runtimehooksv1.CanUpdateMachineSetRequest) {
			t.Helper()
			config := &bootstrapv1.KubeadmConfigTemplate{
				TypeMeta: metav1.TypeMeta{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "KubeadmConfigTemplate"}, ObjectMeta: meta("t"),
			}
			config.Spec.Template.Spec.JoinConfiguration.NodeRegistration.Name = "x"
			config.Spec.Template.Spec.PreKubeadmCommands = []string{"secret"}
			q.Desired.BootstrapConfigTemplate = sent(t, config)
		},
		"foreign": func(_ *testing.T, q *runtimehooksv1.CanUpdateMachineSetRequest) {
			for _, objects := range []*runtimehooksv1.CanUpdateMachineSetRequestObjects{&q.Current, &q.Desired} {
				ref := &objects.MachineSet.Spec.Template.Spec.InfrastructureRef
				ref.APIGroup, ref.Kind = "infrastructure.example.com", "FooMachineTemplate"
			}
		},
	} {
		q := setRequest(t)
		change(t, q)
		goldenOfModes(t, runtimehooksv1.CanUpdateMachineSet, "can-update-machine-set", name, q)
	}
}

const wantedImage infrav1.OSImage = "oci:registry.example.com/os:2"

// imageRequest returns a request for another image and nothing else.
func imageRequest(t *testing.T) *runtimehooksv1.CanUpdateMachineRequest {
	t.Helper()
	q := machineRequest(t)
	infra := newInfra()
	infra.Spec.OSImage = wantedImage
	q.Desired.Machine, q.Desired.BootstrapConfig, q.Desired.InfrastructureMachine = q.Current.Machine, q.Current.BootstrapConfig, sent(t, infra)
	return q
}

// UpdateMachine waits for the image, and for the cache to have it.
func TestUpdateMachineWaitsForTheImage(t *testing.T) {
	r := newRig(t, infrav1.InPlaceRequired)
	q := updateRequest(t)
	q.Desired.Machine = sentMachine(former)
	infra, machine, host := newInfra(), newMachine(former), &infrav1.ElementalHost{}
	infra.Spec.OSImage = wantedImage
	q.Desired.InfrastructureMachine = sent(t, infra)
	update := func() *runtimehooksv1.UpdateMachineResponse {
		answer := &runtimehooksv1.UpdateMachineResponse{}
		r.call(runtimehooksv1.UpdateMachine, "update-machine", q, answer)
		return answer
	}
	r.Expect(r.client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())
	machine.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: former}
	r.Expect(r.client.Status().Update(t.Context(), machine)).To(Succeed())
	r.Expect(update().Message).To(Equal("waiting for the cache"))
	r.Expect(r.client.Get(t.Context(), client.ObjectKeyFromObject(infra), infra)).To(Succeed())
	infra.Spec.OSImage = wantedImage
	r.Expect(r.client.Update(t.Context(), infra)).To(Succeed())
	r.Expect(update().Message).To(ContainSubstring("waiting for the manager's leader"))
	r.Expect(r.client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "h"}, host)).To(Succeed())
	host.Status.Inventory.OS.Image = "oci://registry.example.com/os:2"
	r.Expect(r.client.Status().Update(t.Context(), host)).To(Succeed())
	answer := update()
	r.Expect([]any{answer.Status, answer.RetryAfterSeconds}).To(Equal([]any{runtimehooksv1.ResponseStatusSuccess, int32(0)}))
}

func TestGoldenUpdateMachine(t *testing.T) {
	const hook = "update-machine"
	q := updateRequest(t)
	compareJSON(t, hook+"-version.request.json", q)
	r := newRig(t, infrav1.InPlaceRequired)
	machine, infra := newMachine(wanted), newInfra()
	r.Expect(r.client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())
	machine.Spec.Version = wanted
	r.Expect(r.client.Update(t.Context(), machine)).To(Succeed())
	r.Expect(r.client.Get(t.Context(), client.ObjectKeyFromObject(infra), infra)).To(Succeed())
	infra.Status.Conditions = []metav1.Condition{{
		Type: infrav1.KubernetesUpToDateCondition, Status: metav1.ConditionFalse, Reason: infrav1.UpgradingReason,
		Message: "Host h upgrades to Kubernetes v1.36.3 at step kubeadm", LastTransitionTime: metav1.Now(),
	}}
	r.Expect(r.client.Status().Update(t.Context(), infra)).To(Succeed())
	r.golden(t, runtimehooksv1.UpdateMachine, hook, "version", "in-progress")
	machine.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: wanted}
	r.Expect(r.client.Status().Update(t.Context(), machine)).To(Succeed())
	r.golden(t, runtimehooksv1.UpdateMachine, hook, "version", "done")

	q.Desired.Machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.example.com", Kind: "FooMachine", Name: "m"}
	compareJSON(t, hook+"-foreign.request.json", q)
	r.golden(t, runtimehooksv1.UpdateMachine, hook, "foreign", "refused")
}

// goldenOfModes compares the request, and its answers in both modes that change Machines in place.
func goldenOfModes(t *testing.T, hook runtimecatalog.Hook, handler, change string, request any) {
	t.Helper()
	compareJSON(t, handler+"-"+change+".request.json", request)
	for _, mode := range []infrav1.InPlaceMode{infrav1.InPlacePreferred, infrav1.InPlaceRequired} {
		t.Run(change+" "+string(mode), func(t *testing.T) {
			newRig(t, mode).golden(t, hook, handler, change, strings.ToLower(string(mode)))
		})
	}
}

// golden posts the golden request of a change, and compares the answer.
func (r *rig) golden(t *testing.T, hook runtimecatalog.Hook, handler, change, answer string) {
	t.Helper()
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", handler+"-"+change+".request.json"))
	r.Expect(err).NotTo(HaveOccurred())
	content := map[string]any{}
	r.post(hook, handler, body, &content)
	compareJSON(t, handler+"-"+change+"-"+answer+".response.json", readable(t, content))
}

// readable shows the patches of an answer, which are base64 on the wire.
func readable(t *testing.T, answer map[string]any) map[string]any {
	t.Helper()
	for _, field := range answer {
		patch, ok := field.(map[string]any)
		if !ok || patch["patch"] == nil {
			continue
		}
		text, err := json.Marshal(patch)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		decoded := runtimehooksv1.Patch{}
		NewWithT(t).Expect(json.Unmarshal(text, &decoded)).To(Succeed())
		patch["patch"] = json.RawMessage(decoded.Patch)
	}
	return answer
}

// compareJSON compares a value with a golden file, which has it indented.
func compareJSON(t *testing.T, name string, value any) {
	t.Helper()
	g := NewWithT(t)
	var got bytes.Buffer
	encoder := json.NewEncoder(&got)
	encoder.SetIndent("", "  ")
	g.Expect(encoder.Encode(value)).To(Succeed())
	path := filepath.Join("testdata", name)
	if *update {
		g.Expect(os.WriteFile(path, got.Bytes(), 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred(), "go test -update writes the golden files")
	g.Expect(got.String()).To(Equal(string(want)), name)
}
