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

// bundled binds the host and gives it a bundle in a state; blank if the host has reported none.
func bundled(state infrav1.BundleState, changes ...func(*infrav1.ElementalHost)) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		claim(bound)(h)
		h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bundle"}}
		h.Spec.Bundle = &infrav1.HostBundle{Version: "v1.36.3", SHA256: "a"}
		if state != "" {
			h.Status.Bundle = &infrav1.HostBundleStatus{SHA256: "a", Version: "v1.36.3", State: state, Message: "no room"}
		}
		for _, change := range changes {
			change(h)
		}
	}
}

// replace has the bundle replace the programs of the host.
func replace(h *infrav1.ElementalHost) { h.Spec.Bundle.Programs = infrav1.ProgramsReplace }

func TestPreparedByBundle(t *testing.T) {
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	const both, installs = "kubelet, kubeadm, container runtime: missing", "; the bootstrap installs the bundle of Kubernetes v1.36.3, which "
	bare := installed("", "", "")
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalHost)
		status metav1.ConditionStatus
		reason string
		want   string
	}{
		"not reported yet": {bundled("", bare), yes, "PreparedByBundle", both + installs + "the host has yet to fetch"},
		"staging":          {bundled(infrav1.BundleStaging, bare), yes, "PreparedByBundle", both + installs + "the host has yet to fetch"},
		"staged":           {bundled(infrav1.BundleStaged, bare), yes, "PreparedByBundle", both + installs + "is staged"},
		"one is missing": {bundled(infrav1.BundleStaged, installed("v1.35.0", "", "")), yes, "PreparedByBundle",
			"kubeadm, container runtime: missing" + installs + "is staged\nkubelet of the host is v1.35.0"},
		"failed": {bundled(infrav1.BundleFailed, bare), no, "NotPrepared", both + ", and the bundle of Kubernetes v1.36.3 can't be staged: no room"},
		"another bundle is staged": {bundled(infrav1.BundleStaged, bare, func(h *infrav1.ElementalHost) { h.Spec.Bundle.SHA256 = "b" }),
			yes, "PreparedByBundle", both + installs + "the host has yet to fetch"},
		"installed": {bundled(infrav1.BundleStaged, installed("v1.36.3", "v1.36.3", infrav1.RuntimeContainerd)), yes, "Prepared", ""},
		"only the runtime is missing": {bundled(infrav1.BundleStaged, installed("v1.36.3", "v1.36.3", "")),
			yes, "PreparedByBundle", "container runtime: missing" + installs + "is staged"},
		"to be replaced": {bundled(infrav1.BundleStaged, installed("v1.35.3", "v1.35.3", infrav1.RuntimeCRIO), replace),
			yes, "PreparedByBundle", "The programs of the host are to be replaced" + installs + "is staged"},
		"to be replaced, failed": {bundled(infrav1.BundleFailed, installed("v1.35.3", "v1.35.3", infrav1.RuntimeCRIO), replace),
			no, "NotPrepared", "The programs of the host are to be replaced, and the bundle of Kubernetes v1.36.3 can't be staged: no room"},
		"bootstrapped with what it had": {bundled(infrav1.BundleStaged, installed("v1.36.3", "v1.36.3", infrav1.RuntimeCRIO), replace, func(h *infrav1.ElementalHost) {
			h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: h.Spec.Claim.ID, State: infrav1.OperationSucceeded}}
		}), yes, "Prepared", ""},
		"replaced": {bundled(infrav1.BundleStaged, installed("v1.36.3", "v1.36.3", infrav1.RuntimeContainerd), replace, func(h *infrav1.ElementalHost) {
			h.Status.Inventory.Kubernetes.Kubelet.Origin = infrav1.OriginBundle
		}), yes, "Prepared", ""},
		"the agent can't": {bundled("", installed("v1.36.3", "", infrav1.RuntimeCRIO), func(h *infrav1.ElementalHost) { h.Status.Agent = nil }),
			no, "NotPrepared", "kubeadm is missing: install it"},
		"released": {bundled(infrav1.BundleStaged, installed("v1.36.3", "", infrav1.RuntimeCRIO), claim(releasing)), no, "NotPrepared", "kubeadm is missing: install it"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := host(tc.change)
			hoststatus.Update(h, now)
			c := meta.FindStatusCondition(h.Status.Conditions, infrav1.PreparedCondition)
			g.Expect([]any{c.Status, c.Reason, c.Message}).To(Equal([]any{tc.status, tc.reason, tc.want}))
		})
	}
}

// status.bundle is that of spec.bundle, or absent.
func TestBundleOfAnotherSpecIsRemoved(t *testing.T) {
	g := NewWithT(t)
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalHost)
		kept   bool
	}{
		"bound":   {func(*infrav1.ElementalHost) {}, true},
		"another": {func(h *infrav1.ElementalHost) { h.Spec.Bundle.SHA256 = "b" }, false},
		"none":    {func(h *infrav1.ElementalHost) { h.Spec.Bundle = nil }, false},
		"freed":   {func(h *infrav1.ElementalHost) { h.Spec.Claim = nil }, false},
	} {
		h := host(bundled(infrav1.BundleStaged, tc.change))
		hoststatus.Update(h, now)
		g.Expect(h.Status.Bundle != nil).To(Equal(tc.kept), name)
	}
}

func TestPrepared(t *testing.T) {
	const noKubelet, noKubeadm = "kubelet is missing: install it", "kubeadm is missing: install it"
	const notReported = "The agent has not reported which programs of Kubernetes the host has; if the host is connected and approved, upgrade its agent"
	const noRuntime = "A container runtime is missing: install containerd or CRI-O"
	const forMachines = "For Machines of Kubernetes v1.36"
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
		"prepared":          {installed("v1.36.3", "v1.36.3", infrav1.RuntimeContainerd), metav1.ConditionTrue, "Prepared", forMachines},
		"another patch":     {installed("v1.36.1", "v1.36.3", infrav1.RuntimeCRIO), metav1.ConditionTrue, "Prepared", forMachines},
		"a pre-release":     {installed("v1.36.0-rc.1+acme", "v1.36.3", infrav1.RuntimeCRIO), metav1.ConditionTrue, "Prepared", forMachines},
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
			// Machines of other bootstrap providers may have the host.
			g.Expect(hoststatus.Available(h).IsTrue()).To(BeTrue())
			g.Expect(meta.IsStatusConditionTrue(h.Status.Conditions, infrav1.ReadyCondition)).To(BeTrue())
			before := h.DeepCopy()
			hoststatus.Update(h, metav1.NewTime(now.Add(time.Hour)))
			g.Expect(h).To(Equal(before))
		})
	}
}

// with changes what the host reports of its operating system, besides programs that are as
// they should be.
func with(change func(*infrav1.HostPreflight)) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		installed("v1.36.3", "v1.36.3", infrav1.RuntimeContainerd)(h)
		h.Status.Inventory.Preflight = &infrav1.HostPreflight{Swap: infrav1.FeatureDisabled, BridgeNetfilter: infrav1.FeatureEnabled}
		change(h.Status.Inventory.Preflight)
	}
}

// A free host that lacks something is not prepared. A warning says so and changes nothing, and
// the ports of a node are not in its own way.
func TestPreparedOperatingSystem(t *testing.T) {
	swap := func(p *infrav1.HostPreflight) { p.Swap = infrav1.FeatureEnabled }
	node := func(p *infrav1.HostPreflight) { p.TakenPorts = []int32{6443, 10250} }
	of := func(phase infrav1.ClaimPhase, change func(*infrav1.HostPreflight)) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			with(change)(h)
			h.Spec.Claim = &infrav1.HostClaim{ID: "c", ClusterName: "c", Phase: phase}
		}
	}
	for name, tc := range map[string]struct {
		change  func(*infrav1.ElementalHost)
		reason  string
		message string
	}{
		"as it should be": {with(func(*infrav1.HostPreflight) {}), "Prepared", "For Machines of Kubernetes v1.36"},
		"two findings": {with(func(p *infrav1.HostPreflight) { swap(p); node(p) }), "NotPrepared", "Swap is on, and kubelets refuse to start with it: " +
			"run swapoff -a, and remove swap from /etc/fstab\nPorts 6443, 10250 are taken: stop the programs that listen there, which ss -ltnp shows"},
		"a warning": {with(func(p *infrav1.HostPreflight) { p.FreeBytes = 2 << 30 }), "Prepared",
			"For Machines of Kubernetes v1.36\nLess than 4 GiB are free below /var/lib: make room for images"},
		"a node":         {of(infrav1.ClaimBound, node), "Prepared", ""},
		"a former node":  {of(infrav1.ClaimReleasing, node), "Prepared", ""},
		"reserved":       {of(infrav1.ClaimReserved, swap), "NotPrepared", "Swap is on, and kubelets refuse to start with it: run swapoff -a, and remove swap from /etc/fstab"},
		"swap of a node": {of(infrav1.ClaimBound, swap), "Prepared", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := host(tc.change)
			hoststatus.Update(h, now)
			c := meta.FindStatusCondition(h.Status.Conditions, infrav1.PreparedCondition)
			status := metav1.ConditionFalse
			if tc.reason == "Prepared" {
				status = metav1.ConditionTrue
			}
			g.Expect([]any{c.Status, c.Reason, c.Message}).To(Equal([]any{status, tc.reason, tc.message}))
		})
	}
}
