package fleet

import (
	"context"
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/reject"
)

// refusing is a Software that is told what to refuse.
type refusing struct {
	Software

	told []netip.AddrPort
}

func (r *refusing) Refuse(_ Machine, at netip.AddrPort) { r.told = append(r.told, at) }

func (r *refusing) Halt(Machine) {}

// The virtual nft understands what the agent tells the real one.
func TestRefusesAFormerEndpoint(t *testing.T) {
	g := NewWithT(t)
	software := &refusing{}
	f, err := New(Settings{Servers: []string{"https://127.0.0.1:1"}, TrustBundle: "-", Software: software, Folder: t.TempDir()})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(f.Close()).To(Succeed()) }()
	h := f.Hosts()[0]
	h.disk.installed = true
	ctx, cut := context.WithCancel(t.Context())
	defer cut()
	table := reject.Table{Commands: &system{boot: &boot{host: h, ctx: ctx}}}
	g.Expect(table.Exists(ctx)).To(BeFalse())
	former := netip.AddrPortFrom(h.Address, 6443)
	for range 2 {
		g.Expect(table.Set(ctx, former.String(), []netip.Addr{h.Address})).To(Succeed())
	}
	g.Expect(table.Exists(ctx)).To(BeTrue())
	g.Expect(table.Delete(ctx)).To(Succeed())
	g.Expect(table.Exists(ctx)).To(BeFalse())
	g.Expect(software.told).To(Equal([]netip.AddrPort{former, {}}))
}

func TestWhatIsNoFleet(t *testing.T) {
	g := NewWithT(t)
	server, bundle := []string{"https://127.0.0.1:1"}, "-"
	for text, settings := range map[string]Settings{
		"between 1 and 16382":    {Count: MaxHosts + 1, Servers: server, TrustBundle: bundle},
		"know a server":          {TrustBundle: bundle},
		"what to trust it by":    {Servers: server},
		"share of loss is":       {Servers: server, TrustBundle: bundle, Faults: Faults{Loss: 2}},
		"not less than nothing,": {Servers: server, TrustBundle: bundle, Faults: Faults{Outage: -1}},
	} {
		_, err := New(settings)
		g.Expect(err).To(MatchError(ContainSubstring(text)))
	}
}

// Two fleets of one machine never have an address in common.
func TestAddressesAreOnesOwn(t *testing.T) {
	g := NewWithT(t)
	one, err := reserveBlock()
	g.Expect(err).NotTo(HaveOccurred())
	_, err = markBlock(one.prefix)
	g.Expect(err).To(HaveOccurred())
	g.Expect(one.address(0)).To(Equal(one.prefix.Addr().Next()))
	last := one.address(MaxHosts - 1)
	g.Expect(one.prefix.Contains(last) && one.prefix.Contains(last.Next()) && !one.prefix.Contains(last.Next().Next())).To(BeTrue(), last.String())
	g.Expect(one.release()).To(Succeed())
	again, err := markBlock(one.prefix)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Close()).To(Succeed())
}
