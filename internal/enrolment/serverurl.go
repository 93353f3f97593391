package enrolment

import (
	"net/url"
	"strings"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// ServerURL returns the server URL for the hosts of a registration: that in the
// registration, or else the manager's own. It is blank if neither is known.
func ServerURL(registration *infrav1.ElementalRegistration, manager string) string {
	if registration != nil && registration.Spec.Endpoint.URL != "" {
		return strings.TrimSuffix(registration.Spec.Endpoint.URL, "/")
	}
	return strings.TrimSuffix(manager, "/")
}

// Successor returns the management cluster that the hosts of a registration follow to; nil if
// it has none, or if that is this management cluster: it has one of its server URLs then, as
// after a move. manager is the manager's own server URL.
func Successor(registration *infrav1.ElementalRegistration, manager string) *infrav1.RegistrationSuccessor {
	successor := registration.Spec.Successor
	if successor == nil {
		return nil
	}
	for _, own := range []string{ServerURL(registration, manager), ServerURL(nil, manager)} {
		for _, url := range successor.URLs {
			if own != "" && strings.EqualFold(strings.TrimSuffix(url, "/"), own) {
				return nil
			}
		}
	}
	return successor
}

// ServerHost returns the host name or IP address in a server URL, which the serving
// certificate must contain; blank if none is configured.
func ServerHost(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}
