package hooks_test

import (
	"encoding/json"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	success = runtimehooksv1.ResponseStatusSuccess
	failure = runtimehooksv1.ResponseStatusFailure
)

func TestDiscovery(t *testing.T) {
	r := newRig(t, infrav1.InPlaceOff)
	answer := &runtimehooksv1.DiscoveryResponse{}
	r.call(runtimehooksv1.Discovery, "", &runtimehooksv1.DiscoveryRequest{}, answer)
	r.Expect(answer.Status).To(Equal(success))
	var names []string
	for _, h := range answer.Handlers {
		r.Expect(h.RequestHook.APIVersion).To(Equal("hooks.runtime.cluster.x-k8s.io/v1alpha1"))
		r.Expect(*h.FailurePolicy).To(Equal(runtimehooksv1.FailurePolicyFail))
		names = append(names, h.Name+" "+h.RequestHook.Hook)
	}
	r.Expect(names).To(Equal([]string{
		"can-update-machine CanUpdateMachine", "can-update-machine-set CanUpdateMachineSet", "update-machine UpdateMachine",
	}))
}

// expectEqual applies the patch as Cluster API does and compares.
func (r *rig) expectEqual(patch runtimehooksv1.Patch, current, desired any) {
	is, err := json.Marshal(current)
	r.Expect(err).NotTo(HaveOccurred())
	want, err := json.Marshal(desired)
	r.Expect(err).NotTo(HaveOccurred())
	if patch.IsDefined() {
		r.Expect(patch.PatchType).To(Equal(runtimehooksv1.JSONPatchType))
		p, err := jsonpatch.DecodePatch(patch.Patch)
		r.Expect(err).NotTo(HaveOccurred())
		is, err = p.Apply(is)
		r.Expect(err).NotTo(HaveOccurred())
	}
	spec := func(text []byte) any {
		object := map[string]any{}
		r.Expect(json.Unmarshal(text, &object)).To(Succeed())
		return object["spec"]
	}
	r.Expect(spec(is)).To(Equal(spec(want)))
}

func TestAVersionCanBeChangedInPlace(t *testing.T) {
	for _, mode := range []infrav1.InPlaceMode{infrav1.InPlacePreferred, infrav1.InPlaceRequired} {
		t.Run(string(mode), func(t *testing.T) {
			r := newRig(t, mode)
			q := machineRequest(t)
			a := r.canUpdateMachine(q)
			r.Expect(a.Status).To(Equal(success), a.Message)
			r.expectEqual(a.MachinePatch, q.Current.Machine, q.Desired.Machine)
			r.expectEqual(a.BootstrapConfigPatch, newConfig(t, former), newConfig(t, wanted))
			r.Expect(a.InfrastructureMachinePatch.IsDefined()).To(BeFalse())

			s := setRequest(t)
			b := r.canUpdateMachineSet(s)
			r.Expect(b.Status).To(Equal(success), b.Message)
			s.Desired.MachineSet.Spec.Template.Spec.InfrastructureRef = s.Current.MachineSet.Spec.Template.Spec.InfrastructureRef
			r.expectEqual(b.MachineSetPatch, s.Current.MachineSet, s.Desired.MachineSet)
			r.Expect(b.BootstrapConfigTemplatePatch.IsDefined()).To(BeFalse())
		})
	}
}

func TestASelectorCanBeChangedInPlace(t *testing.T) {
	r := newRig(t, infrav1.InPlaceRequired)
	host := &infrav1.ElementalHost{}
	r.Expect(r.client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "h"}, host)).To(Succeed())
	host.Labels = map[string]string{"site": "a"}
	r.Expect(r.client.Update(t.Context(), host)).To(Succeed())
	q := machineRequest(t)
	infra := newInfra()
	infra.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{"site": "a"}}
	q.Desired.InfrastructureMachine = runtime.RawExtension{Object: infra}
	a := r.canUpdateMachine(q)
	r.Expect(a.Status).To(Equal(success), a.Message)
	r.expectEqual(a.InfrastructureMachinePatch, newInfra(), infra)
}

// What can't be changed in place is replaced, or stops the rollout, and the message names it.
func TestOtherChangesAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*rig, *runtimehooksv1.CanUpdateMachineRequest)
		want   string
	}{
		"a file": {func(_ *rig, q *runtimehooksv1.CanUpdateMachineRequest) {
			config := newConfig(t, wanted)
			config.Spec.Files[0].Content = "another secret"
			q.Desired.BootstrapConfig = runtime.RawExtension{Object: config}
		}, "spec.files[0].content of the KubeadmConfig"},
		"a lower version": {func(_ *rig, q *runtimehooksv1.CanUpdateMachineRequest) { q.Desired.Machine.Spec.Version = "v1.34.0" }, "is lower than"},
		"no release": {func(r *rig, _ *runtimehooksv1.CanUpdateMachineRequest) {
			r.Expect(r.client.Delete(t.Context(), &infrav1.ElementalKubernetesRelease{ObjectMeta: meta(wanted)})).To(Succeed())
		}, "there is no ElementalKubernetesRelease v1.36.3"},
		"no host": {func(r *rig, _ *runtimehooksv1.CanUpdateMachineRequest) {
			infra := &infrav1.ElementalMachine{}
			r.Expect(r.client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "m"}, infra)).To(Succeed())
			infra.Spec.HostRef.ClaimID = "former"
			r.Expect(r.client.Update(t.Context(), infra)).To(Succeed())
		}, "ElementalMachine m has no host"},
	} {
		t.Run(name, func(t *testing.T) {
			for mode, status := range map[infrav1.InPlaceMode]runtimehooksv1.ResponseStatus{
				infrav1.InPlaceRequired: failure, infrav1.InPlacePreferred: success, infrav1.InPlaceOff: success,
			} {
				r := newRig(t, mode)
				q := machineRequest(t)
				tc.change(r, q)
				a := r.canUpdateMachine(q)
				r.Expect(a.Status).To(Equal(status))
				r.Expect([]bool{a.MachinePatch.IsDefined(), a.BootstrapConfigPatch.IsDefined(), a.InfrastructureMachinePatch.IsDefined()}).To(HaveEach(false))
				if mode != infrav1.InPlaceOff {
					r.Expect(a.Message).To(ContainSubstring(tc.want))
				}
				r.Expect(a.Message).NotTo(ContainSubstring("secret"))
			}
		})
	}
}

// All hosts of a MachineSet must be able to be upgraded.
func TestMachineSetWithAnOldAgent(t *testing.T) {
	r := newRig(t, infrav1.InPlaceRequired)
	machine, host := newMachine(former), &infrav1.ElementalHost{ObjectMeta: meta("h2")}
	machine.Name, machine.UID = "m2", "uid2"
	host.Spec.Claim = &infrav1.HostClaim{ID: "claim2", ClusterName: "c", MachineName: "m2", Phase: infrav1.ClaimBound}
	host.Status.Inventory = &infrav1.HostInventory{Architecture: "amd64"}
	r.Expect(r.client.Create(t.Context(), machine)).To(Succeed())
	r.Expect(r.client.Create(t.Context(), host)).To(Succeed())
	a := r.canUpdateMachineSet(setRequest(t))
	r.Expect(a.Status).To(Equal(failure))
	r.Expect(a.Message).To(ContainSubstring("host h2"))

	t.Log("A Machine of another MachineSet does not matter")
	machine.Labels["set"] = "another"
	r.Expect(r.client.Update(t.Context(), machine)).To(Succeed())
	r.Expect(r.canUpdateMachineSet(setRequest(t)).Status).To(Equal(success))

	t.Log("A template of another bootstrap configuration is refused")
	q := setRequest(t)
	config := &bootstrapv1.KubeadmConfigTemplate{TypeMeta: metav1.TypeMeta{Kind: "KubeadmConfigTemplate"}}
	config.Spec.Template.Spec.PreKubeadmCommands = []string{"x"}
	q.Desired.BootstrapConfigTemplate = runtime.RawExtension{Object: config}
	a = r.canUpdateMachineSet(q)
	r.Expect(a.Status).To(Equal(failure))
	r.Expect(a.Message).To(ContainSubstring("of the KubeadmConfigTemplate can't be changed in place"))
}

func TestOtherProvidersAreNotDisturbed(t *testing.T) {
	r := newRig(t, infrav1.InPlaceRequired)
	q := machineRequest(t)
	q.Current.Machine.Spec.InfrastructureRef.Kind, q.Current.Machine.Spec.ClusterName = "FooMachine", "unknown"
	a := r.canUpdateMachine(q)
	r.Expect(a.Status).To(Equal(success))
	r.Expect(a.MachinePatch.IsDefined()).To(BeFalse())

	s := setRequest(t)
	s.Desired.MachineSet.Spec.Template.Spec.InfrastructureRef.APIGroup = "infrastructure.example.com"
	b := r.canUpdateMachineSet(s)
	r.Expect(b.Status).To(Equal(success))
	r.Expect(b.MachineSetPatch.IsDefined()).To(BeFalse())
}

// The cluster's policy must be known: a replacement can't be undone.
func TestUnknownClusterIsAFailure(t *testing.T) {
	r := newRig(t, infrav1.InPlaceRequired)
	r.Expect(r.client.Delete(t.Context(), &infrav1.ElementalCluster{ObjectMeta: meta("c")})).To(Succeed())
	r.Expect(r.canUpdateMachine(machineRequest(t)).Status).To(Equal(failure))
	r.Expect(r.canUpdateMachineSet(setRequest(t)).Status).To(Equal(failure))
}

func TestUpdateMachine(t *testing.T) {
	r := newRig(t, infrav1.InPlaceRequired)
	inProgress := func(want string) {
		t.Helper()
		a := r.updateMachine(t)
		r.Expect(a.Status).To(Equal(success), a.Message)
		r.Expect(a.RetryAfterSeconds).To(BeNumerically(">", 0))
		r.Expect(a.Message).To(ContainSubstring(want))
	}
	inProgress("waiting for the cache")
	machine := newMachine(wanted)
	r.Expect(r.client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())
	machine.Spec.Version = wanted
	r.Expect(r.client.Update(t.Context(), machine)).To(Succeed())
	inProgress("waiting for the manager's leader")

	infra := newInfra()
	r.Expect(r.client.Get(t.Context(), client.ObjectKeyFromObject(infra), infra)).To(Succeed())
	set := func(status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		infra.Status.Conditions = []metav1.Condition{{
			Type: infrav1.KubernetesUpToDateCondition, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
		}}
		r.Expect(r.client.Status().Update(t.Context(), infra)).To(Succeed())
	}
	set(metav1.ConditionTrue, infrav1.KubernetesUpToDateReason, "Kubernetes v1.35.4")
	inProgress("waiting for the manager's leader")
	set(metav1.ConditionFalse, infrav1.UpgradeRolledBackReason, "The upgrade of host h failed")
	inProgress("RolledBack: The upgrade of host h failed")

	machine.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: wanted}
	r.Expect(r.client.Status().Update(t.Context(), machine)).To(Succeed())
	a := r.updateMachine(t)
	r.Expect([]any{a.Status, a.RetryAfterSeconds}).To(Equal([]any{success, int32(0)}))

	t.Log("A Machine without a host waits")
	r.Expect(r.client.Delete(t.Context(), &infrav1.ElementalHost{ObjectMeta: meta("h")})).To(Succeed())
	inProgress("waiting for the ElementalMachine and its host")
}

func TestUpdateOfAForeignMachineIsNeverDone(t *testing.T) {
	r := newRig(t, infrav1.InPlaceRequired)
	machine := newMachine(wanted)
	machine.Spec.InfrastructureRef.Kind = "FooMachine"
	answer := &runtimehooksv1.UpdateMachineResponse{}
	r.call(runtimehooksv1.UpdateMachine, "update-machine",
		&runtimehooksv1.UpdateMachineRequest{Desired: runtimehooksv1.UpdateMachineRequestObjects{Machine: *machine}}, answer)
	r.Expect(answer.Status).To(Equal(failure))
}

// Everybody who reaches the port can send anything.
func TestBadRequests(t *testing.T) {
	r := newRig(t, infrav1.InPlaceRequired)
	for name, body := range map[string][]byte{
		"no JSON": []byte("x"), "empty": nil, "wrong types": []byte(`{"current":[]}`), "too long": long(21 << 20),
		"infrastructure of a wrong type": []byte(`{"current":{"machine":{"metadata":{"namespace":"n","name":"m"},"spec":{"clusterName":"c","infrastructureRef":` +
			`{"apiGroup":"infrastructure.cluster.x-k8s.io","kind":"ElementalMachine","name":"m"}}},"infrastructureMachine":{"kind":"x","spec":{"hostName":[]}}}}`),
	} {
		answer := &runtimehooksv1.CanUpdateMachineResponse{}
		r.post(runtimehooksv1.CanUpdateMachine, "can-update-machine", body, answer)
		r.Expect(answer.Status).To(Equal(failure), name)
		r.Expect(answer.MachinePatch.IsDefined()).To(BeFalse(), name)
	}
}

// Cluster API waits for each answer in its reconcilers.
func BenchmarkCanUpdateMachine(b *testing.B) {
	const limit = 50 * time.Millisecond
	r := newRig(b, infrav1.InPlaceRequired)
	q := machineRequest(b)
	for b.Loop() {
		if a := r.canUpdateMachine(q); a.Status != success {
			b.Fatal(a.Message)
		}
	}
	if mean := b.Elapsed() / time.Duration(b.N); mean > limit {
		b.Fatalf("an answer takes %s, more than %s", mean, limit)
	}
}
