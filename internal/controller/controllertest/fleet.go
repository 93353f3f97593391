package controllertest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// fingerprintFormat formats a number as a fingerprint.
const fingerprintFormat = "sha256:%064x"

// FleetHost returns an enrolled, free host with the complete status of a small server. Like
// an object read from an API server, it shares no memory with other hosts.
func FleetHost(tb testing.TB, namespace string, i int) *infrav1.ElementalHost {
	tb.Helper()
	host := FreeHost(namespace, fmt.Sprintf("host-%06d", i), time.Now().Truncate(time.Second))
	host.UID = ""
	host.Spec.HostID = fmt.Sprintf("%016d", i)
	host.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: fmt.Sprintf(fingerprintFormat, i), Generation: 1}
	host.Spec.RegistrationRef = &infrav1.LocalReference{Name: "fleet"}
	host.Labels = map[string]string{infrav1.RegistrationLabel: "fleet"}
	host.Status.Inventory = &infrav1.HostInventory{
		MachineID: fmt.Sprintf("%032x", i), Architecture: "amd64",
		SMBIOS: infrav1.HostSMBIOS{Manufacturer: "Example Systems", ProductName: "Edge 100", SerialNumber: fmt.Sprintf("SN%08d", i), UUID: fmt.Sprintf("%036x", i)},
		CPU:    infrav1.HostCPU{Model: "Example CPU @ 2.40GHz", Cores: 8}, MemoryBytes: 32 << 30,
		OS: infrav1.HostOS{ID: "sl-micro", VersionID: "6.1", PrettyName: "Example Micro 6.1", KernelVersion: "6.4.0-30-default"},
		Disks: []infrav1.HostDisk{
			{Name: "/dev/nvme0n1", SizeBytes: 480 << 30, Model: "Example NVMe 480", Serial: fmt.Sprintf("D%010d", i)},
			{Name: "/dev/sda", SizeBytes: 4 << 40, Rotational: true, Model: "Example Disk 4T", Serial: fmt.Sprintf("E%010d", i)},
		},
		NICs: []infrav1.HostNIC{
			{Name: "eth0", MAC: fmt.Sprintf("52:54:00:%02x:%02x:00", i>>8&0xff, i&0xff), SpeedMbps: 10000, DefaultRoute: true, Addresses: []string{address(i) + "/16"}},
			{Name: "eth1", MAC: fmt.Sprintf("52:54:00:%02x:%02x:01", i>>8&0xff, i&0xff), SpeedMbps: 10000},
		},
	}
	host.Status.Addresses[0].Address = address(i)
	agent := &infrav1.HostAgent{Version: "v0.1.0", Protocol: 1, BootID: fmt.Sprintf("%036x", i), TrustDigest: "0123456789abcdef"}
	for _, c := range []protocol.OperationType{protocol.OperationBootstrap, protocol.OperationReset, protocol.OperationReboot, protocol.OperationUpgrade} {
		agent.Capabilities = append(agent.Capabilities, string(c))
	}
	host.Status.Agent = agent
	hoststatus.Update(host, metav1.NewTime(time.Now().Truncate(time.Second)))
	raw, err := json.Marshal(host)
	if err != nil {
		tb.Fatalf("encoding a host: %v", err)
	}
	read := &infrav1.ElementalHost{}
	if err := json.Unmarshal(raw, read); err != nil {
		tb.Fatalf("decoding a host: %v", err)
	}
	return read
}

func address(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&0xff, i>>8&0xff, i&0xff) }

// AddFleet creates n FleetHosts, modified by change, and waits until the cache has them
// all.
func (m *Memory) AddFleet(tb testing.TB, namespace string, n int, change ...func(int, *infrav1.ElementalHost)) {
	tb.Helper()
	for i := range n {
		host := FleetHost(tb, namespace, i)
		for _, f := range change {
			f(i, host)
		}
		if err := m.Create(tb.Context(), host); err != nil {
			tb.Fatalf("creating a host: %v", err)
		}
	}
	m.AwaitHosts(tb, namespace, n)
}

// AwaitHosts waits until the cache has n hosts.
func (m *Memory) AwaitHosts(tb testing.TB, namespace string, n int) {
	tb.Helper()
	gomega.NewWithT(tb).Eventually(func() (int, error) {
		hosts := &infrav1.ElementalHostList{}
		err := m.List(tb.Context(), hosts, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
		return len(hosts.Items), err
	}).WithTimeout(time.Minute).WithPolling(10 * time.Millisecond).Should(gomega.Equal(n))
}

// Await waits until the cache has this version of the object or a newer one.
func (m *Memory) Await(tb testing.TB, o client.Object) {
	tb.Helper()
	want, err := version(o.GetResourceVersion())
	if err != nil {
		tb.Fatal(err)
	}
	got, _ := o.DeepCopyObject().(client.Object)
	deadline := time.Now().Add(time.Minute)
	for {
		err := m.Get(tb.Context(), client.ObjectKeyFromObject(o), got, client.UnsafeDisableDeepCopy)
		if err == nil {
			if cached, err := version(got.GetResourceVersion()); err == nil && cached >= want {
				return
			}
		}
		if time.Now().After(deadline) {
			tb.Fatalf("waiting for %s in the cache: %v", o.GetName(), err)
		}
	}
}
