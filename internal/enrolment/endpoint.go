package enrolment

import (
	"net/url"
	"strings"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// URL is where hosts of a registration find the agent API: where the registration
// says, else at the manager's own URL. It is blank when neither is known.
func URL(registration *infrav1.ElementalRegistration, manager string) string {
	if registration != nil && registration.Spec.Endpoint.URL != "" {
		return strings.TrimSuffix(registration.Spec.Endpoint.URL, "/")
	}
	return strings.TrimSuffix(manager, "/")
}

// Host is the host name or IP address of an agent API URL, which the serving
// certificate has to cover; blank if there is none.
func Host(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}
