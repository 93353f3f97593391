package rewrite

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// httpsPort is that of a URL without one.
const httpsPort = "443"

// supervisorPort is where servers of RKE2 let nodes join.
const supervisorPort = "9345"

// dnsName is what a host that is no IP address may look like.
var dnsName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$`)

// Rules say what is replaced. The zero Rules replace nothing. Use New.
type Rules struct {
	host, port string
	// former are host:port pairs, as Normal writes them, formerHosts their hosts.
	former, formerHosts map[string]bool
	since               time.Time
}

// New makes the rules of an endpoint. A host that is neither an IP address nor a
// DNS name is an error, so that nothing else gets into a document.
func New(e protocol.Endpoint) (Rules, error) {
	host := e.Host
	if address, err := netip.ParseAddr(host); err == nil && address.Zone() == "" {
		host = address.Unmap().String()
	} else if !dnsName.MatchString(host) {
		return Rules{}, fmt.Errorf("the endpoint's host %q is neither an IP address nor a DNS name", host)
	}
	if e.Port < 1 || e.Port > 65535 {
		return Rules{}, fmt.Errorf("the endpoint's port %d is none", e.Port)
	}
	r := Rules{host: host, port: strconv.Itoa(int(e.Port)), since: e.Since.UTC().Truncate(time.Second), former: map[string]bool{}, formerHosts: map[string]bool{}}
	current := Normal(r.Endpoint(), "")
	for _, one := range e.Former {
		if name := Normal(one, ""); name != "" && name != current {
			r.former[name] = true
			host, _, _ := net.SplitHostPort(name)
			r.formerHosts[host] = true
		}
	}
	delete(r.formerHosts, normalHost(r.host))
	return r, nil
}

// Endpoint is the endpoint as host:port.
func (r Rules) Endpoint() string {
	if r.host == "" {
		return ""
	}
	return net.JoinHostPort(r.host, r.port)
}

// Since is when the endpoint became what it is, in whole seconds; zero if that is
// not known.
func (r Rules) Since() time.Time { return r.since }

// Moved reports whether the endpoint stands in for another one.
func (r Rules) Moved() bool { return len(r.former) > 0 }

// Normal writes host:port so that equal ones look equal. port is what one
// without a port has. What is neither is "".
func Normal(hostPort, port string) string {
	host, given, err := net.SplitHostPort(hostPort)
	if err != nil {
		if port == "" {
			return ""
		}
		host, given = strings.Trim(hostPort, "[]"), port
	}
	if host == "" || given == "" {
		return ""
	}
	return net.JoinHostPort(normalHost(host), given)
}

func normalHost(host string) string {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// hostPort replaces host:port, whose port may be missing.
func (r Rules) hostPort(value, port string) (to string, replaced bool) {
	if !r.former[Normal(value, port)] {
		return value, false
	}
	return r.Endpoint(), true
}

// URL replaces the host and port of an https URL. spare are hosts that are left
// alone nevertheless; nil spares none.
func (r Rules) URL(server string, spare func(host string) bool) (to string, replaced bool) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || spare != nil && spare(u.Hostname()) {
		return server, false
	}
	host, replaced := r.hostPort(u.Host, httpsPort)
	if !replaced {
		return server, false
	}
	u.Host = host
	return u.String(), true
}

// Join replaces the URL that a node of k3s or RKE2 joins at. RKE2 has a port of
// its own for that, which goes with the host.
func (r Rules) Join(server string) (to string, replaced bool) {
	if to, replaced = r.URL(server, nil); replaced {
		return to, true
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Port() != supervisorPort || !r.formerHosts[normalHost(u.Hostname())] {
		return server, false
	}
	u.Host = net.JoinHostPort(r.host, supervisorPort)
	return u.String(), true
}
