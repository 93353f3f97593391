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

// httpsPort is the port of an https URL without a port.
const httpsPort = "443"

// supervisorPort is the port at which nodes join an RKE2 server.
const supervisorPort = "9345"

// dnsName matches a host that is not an IP address.
var dnsName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$`)

// Rules replace former endpoints with the current one. The zero Rules replace
// nothing. Use New.
type Rules struct {
	host, port string
	// former contains normalized host:port pairs, formerHosts their hosts.
	former, formerHosts map[string]bool
	since               time.Time
}

// New returns the rules of an endpoint. A host that is neither an IP address nor
// a DNS name is an error, so that no other text gets into a document.
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
	current := Normalize(r.Endpoint(), "")
	for _, former := range e.Former {
		if former = Normalize(former, ""); former != "" && former != current {
			r.former[former] = true
			host, _, _ := net.SplitHostPort(former)
			r.formerHosts[host] = true
		}
	}
	delete(r.formerHosts, normalizeHost(r.host))
	return r, nil
}

// Endpoint returns the current endpoint as host:port, or "" for zero Rules.
func (r Rules) Endpoint() string {
	if r.host == "" {
		return ""
	}
	return net.JoinHostPort(r.host, r.port)
}

// Since returns when the current endpoint became the endpoint, in whole seconds;
// zero if that is unknown.
func (r Rules) Since() time.Time { return r.since }

// Moved reports whether the cluster has had another endpoint.
func (r Rules) Moved() bool { return len(r.former) > 0 }

// Normalize returns host:port such that equal endpoints have equal strings.
// defaultPort is used for a value without a port. An invalid value becomes "".
func Normalize(hostPort, defaultPort string) string {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		if defaultPort == "" {
			return ""
		}
		host, port = strings.Trim(hostPort, "[]"), defaultPort
	}
	if host == "" || port == "" {
		return ""
	}
	return net.JoinHostPort(normalizeHost(host), port)
}

func normalizeHost(host string) string {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// hostPort replaces host:port. A value without a port has the default port.
func (r Rules) hostPort(value, defaultPort string) (to string, replaced bool) {
	if !r.former[Normalize(value, defaultPort)] {
		return value, false
	}
	return r.Endpoint(), true
}

// URL replaces the host and port of an https URL, unless isExempt returns true
// for the host. isExempt may be nil.
func (r Rules) URL(server string, isExempt func(host string) bool) (to string, replaced bool) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || isExempt != nil && isExempt(u.Hostname()) {
		return server, false
	}
	host, replaced := r.hostPort(u.Host, httpsPort)
	if !replaced {
		return server, false
	}
	u.Host = host
	return u.String(), true
}

// JoinURL replaces the URL at which a node of k3s or RKE2 joins. For RKE2 this
// URL has another port than the endpoint, so only the host is replaced.
func (r Rules) JoinURL(server string) (to string, replaced bool) {
	if to, replaced = r.URL(server, nil); replaced {
		return to, true
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Port() != supervisorPort || !r.formerHosts[normalizeHost(u.Hostname())] {
		return server, false
	}
	u.Host = net.JoinHostPort(r.host, supervisorPort)
	return u.String(), true
}
