package hoststatus_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// server sets the facts of a server with that many disks, interfaces and addresses of each.
func server(devices, addresses int, text string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		i := &infrav1.HostInventory{
			MachineID: text, Architecture: "amd64", SMBIOS: infrav1.HostSMBIOS{Manufacturer: text, ProductName: text, SerialNumber: text, UUID: text},
			CPU: infrav1.HostCPU{Model: text, Cores: 8}, OS: infrav1.HostOS{ID: text, VersionID: text, PrettyName: text, KernelVersion: text, Image: text},
			Kubernetes: programs("/usr/bin/"+text, text),
		}
		for d := range devices {
			i.Disks = append(i.Disks, infrav1.HostDisk{Name: fmt.Sprintf("sd%d%s", d, text), SizeBytes: 1 << 40, Model: text, Serial: text})
			nic := infrav1.HostNIC{Name: fmt.Sprintf("eth%d%s", d, text), MAC: text, SpeedMbps: 10000}
			for range addresses {
				nic.Addresses = append(nic.Addresses, text)
			}
			i.NICs = append(i.NICs, nic)
			h.Status.Addresses = append(h.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "10.0.0.1"})
		}
		h.Status.Inventory = i
		h.Status.Agent = &infrav1.HostAgent{
			Version: text, BootID: text, Capabilities: []string{"Bootstrap", "Reset", "Rotate", "Reboot", "Upgrade", "Erase", "Update", "Endpoint", "Files"},
		}
	}
}

// programs are all programs of Kubernetes.
func programs(path, version string) *infrav1.HostKubernetes {
	program := infrav1.HostProgram{Path: path, Version: version, Origin: infrav1.OriginPackage}
	return &infrav1.HostKubernetes{
		Kubelet: program, Kubeadm: program, Kubectl: program, Runc: program, CNIPlugins: program,
		ContainerRuntime: infrav1.HostContainerRuntime{
			Name: infrav1.RuntimeContainerd, Path: path, Version: version, Origin: infrav1.OriginPackage, Socket: path,
		},
	}
}

// encoded returns the size of the status after an update.
func encoded(g *WithT, h *infrav1.ElementalHost) int {
	g.THelper()
	hoststatus.Update(h, now)
	raw, err := json.Marshal(h.Status)
	g.Expect(err).NotTo(HaveOccurred())
	return len(raw)
}

// Whatever a host reports, its status is bounded as it is stored, with the conditions that
// repeat what it reported. A host that nobody has approved gets little.
func TestThreat44_StatusIsBounded(t *testing.T) {
	worst := strings.Repeat("<", 42)
	leftovers := func(h *infrav1.ElementalHost) {
		h.Status.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty}
		for range 16 {
			h.Status.Cleanliness.Leftovers = append(h.Status.Cleanliness.Leftovers, worst)
		}
		for _, kind := range []infrav1.OperationType{infrav1.OperationBootstrap, infrav1.OperationReset, infrav1.OperationReboot, infrav1.OperationUpgrade, infrav1.OperationNodeUpgrade} {
			h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{
				Type: kind, ID: id, State: infrav1.OperationFailed, Step: strings.Repeat("s", 128), Message: strings.Repeat("m", 1024),
			})
		}
		h.Status.Erasure = &infrav1.HostErasure{OperationID: id}
		for range 64 {
			h.Status.Erasure.Disks = append(h.Status.Erasure.Disks, infrav1.ErasedDisk{Name: worst, Serial: worst, Message: worst, Result: infrav1.ErasureFailed})
		}
		claim(bound)(h)
		h.Spec.Bundle = &infrav1.HostBundle{SHA256: strings.Repeat("a", 64)}
		h.Status.Bundle = &infrav1.HostBundleStatus{SHA256: h.Spec.Bundle.SHA256, State: infrav1.BundleFailed, Message: strings.Repeat("m", 1024)}
		h.Status.EtcdSnapshots = &infrav1.HostEtcdSnapshots{Failure: &infrav1.HostEtcdSnapshotFailure{ID: id, Message: strings.Repeat("m", 1024)}}
		h.Status.EtcdSnapshotUpload = &infrav1.HostEtcdSnapshotUpload{
			Last:    &infrav1.HostEtcdSnapshotObject{ID: id, Object: strings.Repeat("o", 1024), SHA256: strings.Repeat("a", 64)},
			Failure: &infrav1.HostEtcdSnapshotFailure{ID: id, Message: strings.Repeat("m", 1024)},
		}
		for i := range 16 {
			h.Status.EtcdSnapshots.Items = append(h.Status.EtcdSnapshots.Items, infrav1.HostEtcdSnapshot{
				ID: fmt.Sprintf("%063d", i), CompletedAt: now, Revision: math.MaxInt64, SizeBytes: math.MaxInt64, SHA256: strings.Repeat("a", 64),
				KubernetesVersion: strings.Repeat("v", 63), EtcdVersion: strings.Repeat("v", 63),
			})
		}
		h.Status.Agent.Update = &infrav1.AgentUpdate{Version: "v9", State: infrav1.OperationFailed, Message: strings.Repeat("m", 1024)}
		for range 23 {
			h.Status.Agent.Capabilities = append(h.Status.Agent.Capabilities, strings.Repeat("c", 63))
		}
	}
	for approval, limit := range map[infrav1.Approval]int{
		infrav1.ApprovalApproved: 64 << 10, infrav1.ApprovalPending: 4 << 10, "": 4 << 10,
	} {
		g := NewWithT(t)
		h := host(server(64, 64, worst), leftovers, func(h *infrav1.ElementalHost) { h.Spec.Approval = approval })
		g.Expect(encoded(g, h)).To(BeNumerically(">", 1<<20), "what a report can contain")
		size, cut := hoststatus.Fit(h, now)
		g.Expect(cut).To(BeTrue())
		g.Expect(size).To(BeNumerically("<=", limit))
		g.Expect(encoded(g, h)).To(Equal(size))
	}
}

// Nothing is cut of an honest host that is approved, and nothing of a small one that waits.
func TestHonestHostsFit(t *testing.T) {
	g := NewWithT(t)
	large := host(server(64, 8, "0123456789abcdef"))
	size, cut := hoststatus.Fit(large, now)
	t.Logf("a server of 64 disks and 64 interfaces with 8 addresses each takes %d bytes", size)
	g.Expect(cut).To(BeFalse())
	pending := func(h *infrav1.ElementalHost) {
		h.Spec.Approval = infrav1.ApprovalPending
		h.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "sha256:" + strings.Repeat("0", 64), Generation: 1}
	}
	small := host(server(2, 1, "0123456789abcdef"), pending)
	size, cut = hoststatus.Fit(small, now)
	t.Logf("a pending one with 2 disks and 2 interfaces takes %d bytes", size)
	g.Expect(cut).To(BeFalse())
	g.Expect(small.Status.Inventory.Kubernetes).To(Equal(programs("/usr/bin/0123456789abcdef", "0123456789abcdef")))
	medium := host(server(3, 1, "0123456789abcdef"), pending)
	_, cut = hoststatus.Fit(medium, now)
	g.Expect(cut).To(BeTrue())
	g.Expect(medium.Status.Inventory.Disks).To(HaveLen(3), "programs give way to hardware")
	g.Expect(medium.Status.Inventory.Kubernetes).To(BeNil())
	many := host(server(24, 2, "0123456789abcdef"), pending)
	_, cut = hoststatus.Fit(many, now)
	g.Expect(cut).To(BeTrue())
	g.Expect(many.Status.Inventory.SMBIOS.SerialNumber).To(Equal("0123456789abcdef"), "what an administrator compares stays")
	g.Expect(many.Status.Agent.Capabilities).To(HaveLen(9))
	g.Expect(len(many.Status.Inventory.NICs)).To(BeNumerically(">=", 2))
}
