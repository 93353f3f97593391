package hoststatus_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// installed sets the versions of kubelet and kubeadm, and the container runtime; blank
// means that the host does not have it, and "?" that the program prints no version.
func installed(kubelet, kubeadm string, runtime infrav1.ContainerRuntimeName) func(*infrav1.ElementalHost) {
	program := func(name, version string) infrav1.HostProgram {
		switch version {
		case "":
			return infrav1.HostProgram{}
		case "?":
			version = ""
		}
		return infrav1.HostProgram{Path: "/usr/bin/" + name, Version: version, Origin: infrav1.OriginPackage}
	}
	return func(h *infrav1.ElementalHost) {
		k := &infrav1.HostKubernetes{Kubelet: program("kubelet", kubelet), Kubeadm: program("kubeadm", kubeadm)}
		if runtime != "" {
			k.ContainerRuntime = infrav1.HostContainerRuntime{Name: runtime, Path: "/usr/bin/runtime"}
		}
		h.Status.Inventory = &infrav1.HostInventory{Kubernetes: k}
	}
}

func TestPrepared(t *testing.T) {
	const noKubelet, noKubeadm = "kubelet is missing: install it", "kubeadm is missing: install it"
	const notReported = "The agent has not reported which programs of Kubernetes the host has; if the host is connected and approved, upgrade its agent"
	const noRuntime = "A container runtime is missing: install containerd or CRI-O"
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalHost)
		status metav1.ConditionStatus
		reason string
		want   string
	}{
		"nothing reported yet": {
			func(h *infrav1.ElementalHost) { h.Status.Inventory = nil }, metav1.ConditionUnknown, "NotReported", notReported,
		},
		"an old agent": {
			func(h *infrav1.ElementalHost) { h.Status.Inventory = &infrav1.HostInventory{MachineID: "m"} }, metav1.ConditionUnknown, "NotReported", notReported,
		},
		"prepared":          {installed("v1.36.3", "v1.36.3", infrav1.RuntimeContainerd), metav1.ConditionTrue, "Prepared", ""},
		"another patch":     {installed("v1.36.1", "v1.36.3", infrav1.RuntimeCRIO), metav1.ConditionTrue, "Prepared", ""},
		"a pre-release":     {installed("v1.36.0-rc.1+acme", "v1.36.3", infrav1.RuntimeCRIO), metav1.ConditionTrue, "Prepared", ""},
		"a bare host":       {installed("", "", ""), metav1.ConditionFalse, "NotPrepared", noKubelet + "\n" + noKubeadm + "\n" + noRuntime},
		"without a runtime": {installed("v1.36.3", "v1.36.3", ""), metav1.ConditionFalse, "NotPrepared", noRuntime},
		"without kubeadm":   {installed("v1.36.3", "", infrav1.RuntimeCRIO), metav1.ConditionFalse, "NotPrepared", noKubeadm},
		"different minor versions": {
			installed("v1.36.3", "v1.35.4", infrav1.RuntimeContainerd), metav1.ConditionFalse, "NotPrepared",
			"kubelet is v1.36.3 and kubeadm is v1.35.4: install both of the same minor version",
		},
		"different major versions": {
			installed("v2.36.3", "v1.36.3", infrav1.RuntimeContainerd), metav1.ConditionFalse, "NotPrepared",
			"kubelet is v2.36.3 and kubeadm is v1.36.3: install both of the same minor version",
		},
		"a program that does not run": {
			installed("?", "v1.36.3", infrav1.RuntimeContainerd), metav1.ConditionFalse, "NotPrepared",
			"kubelet (/usr/bin/kubelet) prints no version: check whether it runs, or install it again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := host(tc.change)
			hoststatus.Update(h, now)
			c := meta.FindStatusCondition(h.Status.Conditions, infrav1.PreparedCondition)
			g.Expect([]any{c.Status, c.Reason, c.Message}).To(Equal([]any{tc.status, tc.reason, tc.want}))
			// Nothing depends on it.
			g.Expect(hoststatus.Available(h).IsTrue()).To(BeTrue())
			g.Expect(meta.IsStatusConditionTrue(h.Status.Conditions, infrav1.ReadyCondition)).To(BeTrue())
			before := h.DeepCopy()
			hoststatus.Update(h, metav1.NewTime(now.Add(time.Hour)))
			g.Expect(h).To(Equal(before))
		})
	}
}
