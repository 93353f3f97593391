package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

const (
	// siteFirst is the number of the first host of a site: pod networks follow from numbers.
	siteFirst = 30
	// maxSiteHosts is the highest number of hosts of a site.
	maxSiteHosts = 15
	// siteRouter is the number of the router's address in the lab's network, from FreeAddress.
	siteRouter = 100
)

// Site is a network of its own behind a router with NAT, as in a shop or a factory: its hosts
// reach the management cluster, and nothing outside can open a connection to them. The router
// drops and counts what tries.
type Site struct {
	lab    *Lab
	subnet string
	hosts  int
	router *engine.Host
}

// Site returns a site with a number of hosts, at most 15. Its network must not overlap the lab's.
// Nothing is created.
func (l *Lab) Site(subnet string, hosts int) (*Site, error) {
	prefix, err := netip.ParsePrefix(subnet)
	if err != nil || !prefix.Addr().Is4() || prefix.Bits() > 24 {
		return nil, fmt.Errorf("the site's subnet %q is no IPv4 network of at least a /24", subnet)
	}
	if prefix.Overlaps(netip.MustParsePrefix(l.options.Subnet)) {
		return nil, fmt.Errorf("the site's subnet %s overlaps the lab's, %s", subnet, l.options.Subnet)
	}
	if hosts < 1 || hosts > maxSiteHosts {
		return nil, fmt.Errorf("a site has 1 to %d hosts, not %d", maxSiteHosts, hosts)
	}
	s := &Site{lab: l, subnet: subnet, hosts: hosts}
	s.router = l.engine.HostIn(s.network(), "site-router", address(subnet, 2))
	return s, nil
}

func (s *Site) network() string { return s.lab.options.Name + "-site" }

// Hosts returns the hosts of the site.
func (s *Site) Hosts() []*engine.Host {
	var hosts []*engine.Host
	for i := range s.hosts {
		number := siteFirst + i
		hosts = append(hosts, s.lab.engine.HostIn(s.network(), fmt.Sprintf("site-%d", i+1), hostAddress(s.subnet, number)))
	}
	return hosts
}

// Up creates the site's network, router and hosts, or turns them on, and waits until they have
// booted. The management cluster gets a route to the site: whatever it sends there reaches the
// router, which drops and counts it. The lab's Down removes the site.
func (s *Site) Up(ctx context.Context) error {
	hostImage, err := s.lab.Prepare(ctx)
	if err != nil {
		return err
	}
	if err := s.lab.engine.CreateNetwork(ctx, s.network(), s.subnet); err != nil {
		return err
	}
	return s.lab.progress.Step(fmt.Sprintf("Starting a site with %d hosts", s.hosts), func() error {
		if err := s.startRouter(ctx, hostImage); err != nil {
			return fmt.Errorf("starting the site's router: %w", err)
		}
		hosts := s.Hosts()
		errs := make([]error, len(hosts))
		var group sync.WaitGroup
		for i, host := range hosts {
			group.Go(func() { errs[i] = s.lab.ensureHost(ctx, host, hostImage, s.networkFiles(siteFirst+i)) })
		}
		group.Wait()
		return errors.Join(errs...)
	})
}

// networkFiles are those of a host: its default gateway is the router.
func (s *Site) networkFiles(number int) []engine.File {
	peers := map[int]string{}
	for i := range s.hosts {
		if other := siteFirst + i; other != number {
			peers[other] = hostAddress(s.subnet, other)
		}
	}
	return podNetworkFiles(number, s.router.Address, address(s.subnet, 1), peers)
}

func (s *Site) startRouter(ctx context.Context, hostImage string) error {
	if err := s.lab.ensureHost(ctx, s.router, hostImage, nil); err != nil {
		return err
	}
	outside := s.lab.FreeAddress(siteRouter)
	if err := s.router.Join(ctx, s.lab.options.Name, outside); err != nil {
		return err
	}
	if _, err := s.router.Exec(ctx, "sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1"); err != nil {
		return fmt.Errorf("forwarding packets: %w", err)
	}
	if _, err := s.router.ExecInput(ctx, strings.NewReader(s.rules()), "nft", "--file", "-"); err != nil {
		return fmt.Errorf("loading the router's rules: %w", err)
	}
	if _, err := s.lab.Management().Exec(ctx, "ip", "route", "replace", s.subnet, "via", outside); err != nil {
		return fmt.Errorf("leading the management cluster to the router: %w", err)
	}
	return nil
}

// rules are those of the router's packet filter: NAT for what hosts begin, and a counter for what
// others begin. They replace former rules.
func (s *Site) rules() string {
	return fmt.Sprintf(`table ip site
delete table ip site
table ip site {
	counter refused {}
	chain forward {
		type filter hook forward priority 0; policy accept;
		ct state new ip saddr != %[1]s ip daddr %[1]s counter name refused drop
	}
	chain postrouting {
		type nat hook postrouting priority 100; policy accept;
		ip saddr %[1]s ip daddr != %[1]s masquerade
	}
}
`, s.subnet)
}

// Refused returns how many packets of connections that others began the router has dropped.
func (s *Site) Refused(ctx context.Context) (int64, error) {
	out, err := s.router.Exec(ctx, "nft", "list", "counter", "ip", "site", "refused")
	if err != nil {
		return 0, fmt.Errorf("reading the router's counter: %w", err)
	}
	fields := strings.Fields(out)
	for i, field := range fields[:max(len(fields)-1, 0)] {
		if field == "packets" {
			return strconv.ParseInt(fields[i+1], 10, 64)
		}
	}
	return 0, fmt.Errorf("reading the router's counter: it is %q", out)
}

// Down removes the site's hosts and router. It does nothing if there are none.
func (s *Site) Down(ctx context.Context) error {
	for _, host := range append(s.Hosts(), s.router) {
		if err := host.Remove(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Cut cuts the site's link: the router drops every packet. Hosts of the site still reach each
// other.
func (s *Site) Cut(ctx context.Context) error {
	const rules = "table ip cut {\n\tchain forward { type filter hook forward priority -10; policy drop; }\n}\n"
	if _, err := s.router.ExecInput(ctx, strings.NewReader(rules), "nft", "--file", "-"); err != nil {
		return fmt.Errorf("cutting the site's link: %w", err)
	}
	return nil
}

// Mend undoes Cut.
func (s *Site) Mend(ctx context.Context) error {
	if _, err := s.router.Exec(ctx, "nft", "delete", "table", "ip", "cut"); err != nil {
		return fmt.Errorf("mending the site's link: %w", err)
	}
	return nil
}
