package inplace_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
)

func TestIsAsked(t *testing.T) {
	g := NewWithT(t)
	for hooks, want := range map[string]bool{"UpdateMachine": true, "AfterX,UpdateMachine": true, "UpdateMachineSet": false, "": false} {
		m := &clusterv1.Machine{}
		m.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: "", "runtime.cluster.x-k8s.io/pending-hooks": hooks}
		g.Expect(inplace.IsAsked(m)).To(Equal(want), hooks)
		delete(m.Annotations, clusterv1.UpdateInProgressAnnotation)
		g.Expect(inplace.IsAsked(m)).To(BeFalse(), "it is being aborted")
	}
}

// A host must have finished the request for the Machine's version and this claim; without a
// request, the kubelet's version counts.
func TestIsUpToDate(t *testing.T) {
	const wanted = "v1.36.3"
	for name, tc := range map[string]struct {
		kubelet, requested string
		state              infrav1.OperationState
		change             func(*infrav1.ElementalHost)
		want               bool
	}{
		"upgraded by hand":            {kubelet: wanted, want: true},
		"old, no request":             {kubelet: "v1.35.4"},
		"unknown":                     {},
		"not begun":                   {kubelet: "v1.35.4", requested: wanted},
		"the kubelet is new, not all": {kubelet: wanted, requested: wanted, state: infrav1.OperationRunning},
		"failed after the kubelet":    {kubelet: wanted, requested: wanted, state: infrav1.OperationFailed},
		"done":                        {kubelet: wanted, requested: wanted, state: infrav1.OperationSucceeded, want: true},
		"done, not reported yet":      {kubelet: "v1.35.4", requested: wanted, state: infrav1.OperationSucceeded, want: true},
		"done for a former version":   {kubelet: "v1.35.4", requested: "v1.35.4", state: infrav1.OperationSucceeded},
		"done for a former claim": {kubelet: "v1.35.4", requested: wanted, state: infrav1.OperationSucceeded,
			change: func(h *infrav1.ElementalHost) { h.Spec.Claim.ID = "another" }},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := &clusterv1.Machine{Spec: clusterv1.MachineSpec{Version: wanted}}
			if tc.kubelet != "" {
				m.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: tc.kubelet}
			}
			h := &infrav1.ElementalHost{}
			h.Spec.Claim = &infrav1.HostClaim{ID: "claim"}
			if tc.requested != "" {
				h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: inplace.NewRequestID(h.Spec.Claim), Bundle: infrav1.HostBundle{Version: tc.requested}}
				if tc.state != "" {
					h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationNodeUpgrade, ID: h.Spec.NodeUpgrade.ID, State: tc.state}}
				}
			}
			if tc.change != nil {
				tc.change(h)
			}
			g.Expect(inplace.IsUpToDate(m, &infrav1.ElementalMachine{}, h)).To(Equal(tc.want))
		})
	}
}

// A host has an image if it says so, or has finished the request for it.
func TestWantedImage(t *testing.T) {
	const image = "oci:registry.example.com/os:2"
	version, wanted := inplace.Target{Version: "v1.36.3"}, inplace.Target{OSImage: image}
	for name, tc := range map[string]struct {
		kubelet, has string
		image        infrav1.OSImage
		requested    infrav1.OSImage
		state        infrav1.OperationState
		want         inplace.Target
	}{
		"none":                         {kubelet: version.Version, has: "oci://registry.example.com/os:1"},
		"as the toolkit writes it":     {kubelet: version.Version, has: "oci://registry.example.com/os:2", image: image},
		"another":                      {kubelet: version.Version, has: "oci://registry.example.com/os:1", image: image, want: wanted},
		"unknown":                      {kubelet: version.Version, image: image, want: wanted},
		"the version comes first":      {kubelet: "v1.35.4", image: image, want: version},
		"it runs, and is not finished": {kubelet: version.Version, has: image, image: image, requested: image, state: infrav1.OperationRunning, want: wanted},
		"it runs, and has failed":      {kubelet: version.Version, has: image, image: image, requested: image, state: infrav1.OperationFailed, want: wanted},
		"finished, not reported yet":   {kubelet: version.Version, image: image, requested: image, state: infrav1.OperationSucceeded},
		"finished for another":         {kubelet: version.Version, image: image, requested: "oci:x", state: infrav1.OperationSucceeded, want: wanted},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := &clusterv1.Machine{Spec: clusterv1.MachineSpec{Version: version.Version}}
			m.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: tc.kubelet}
			infra := &infrav1.ElementalMachine{Spec: infrav1.ElementalMachineSpec{OSImage: tc.image}}
			h := &infrav1.ElementalHost{}
			h.Spec.Claim = &infrav1.HostClaim{ID: "claim"}
			h.Status.Inventory = &infrav1.HostInventory{OS: infrav1.HostOS{Image: tc.has}}
			if tc.requested != "" {
				h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: inplace.NewRequestID(h.Spec.Claim), OSImage: tc.requested}
				h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationNodeUpgrade, ID: h.Spec.NodeUpgrade.ID, State: tc.state}}
			}
			g.Expect(inplace.Wanted(m, infra, h)).To(Equal(tc.want))
		})
	}
}

func TestRequestIDs(t *testing.T) {
	g := NewWithT(t)
	claim := &infrav1.HostClaim{ID: "5f0c0f0e-1111-2222-3333-444455556666"}
	a, b := inplace.NewRequestID(claim), inplace.NewRequestID(claim)
	g.Expect(a).NotTo(Equal(b))
	g.Expect(len(a)).To(BeNumerically("<=", 63))
}
