//go:build simulation

package address_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
)

func TestVirtualHostsAreOnTheLoopback(t *testing.T) {
	host := &infrav1.ElementalHost{Status: infrav1.ElementalHostStatus{Addresses: []clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: "0.0.0.0"}, {Type: clusterv1.MachineInternalIP, Address: "127.8.0.1"},
	}}}
	got, why := address.ByRule(host, infrav1.HostAddressRule{})
	NewWithT(t).Expect([]string{got, why}).To(Equal([]string{"127.8.0.1", ""}))
}
