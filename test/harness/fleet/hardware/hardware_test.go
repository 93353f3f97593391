package hardware_test

import (
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/hardware"
)

func TestHostsAreTheSameForASeed(t *testing.T) {
	g := NewWithT(t)
	address := netip.MustParseAddr("127.9.0.1")
	g.Expect(hardware.Inventory(1, "a", address)).To(Equal(hardware.Inventory(1, "a", address)))
	g.Expect(hardware.Inventory(1, "a", address).MachineID).NotTo(Equal(hardware.Inventory(1, "b", address).MachineID))
	g.Expect(hardware.Inventory(1, "a", address).SMBIOS.UUID).To(MatchRegexp(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$`))
}
