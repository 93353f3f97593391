package planinput

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

func TestSite(t *testing.T) {
	release := &infrav1.AgentRelease{Version: "v2"}
	registration := func(name, url string) *infrav1.ElementalRegistration {
		r := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		r.Spec.Endpoint.URL, r.Spec.Agent = url, release
		return r
	}
	r := newReader(t, registration("own-url", "https://north.example.com"), registration("no-url", ""), registration("same-url", ownURL))
	for name, test := range map[string]struct {
		registration string
		servers      []string
		agent        *infrav1.AgentRelease
	}{
		"no registration":                   {"", []string{ownURL}, nil},
		"deleted registration":              {"deleted", []string{ownURL}, nil},
		"registration with a URL":           {"own-url", []string{"https://north.example.com", ownURL}, release},
		"registration without a URL":        {"no-url", []string{ownURL}, release},
		"registration with the default URL": {"same-url", []string{ownURL}, release},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := newHost("a", "c", infrav1.RoleWorker)
			if test.registration != "" {
				host.Spec.RegistrationRef = &infrav1.LocalReference{Name: test.registration}
			}
			site, err := r.Site(t.Context(), host)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(site).To(Equal(plan.Site{
				Servers: test.servers, TrustBundle: "bundle", Agent: test.agent, UnknownRegistration: test.registration == "deleted",
			}))
		})
	}
}

// A granted host has the registration of its pool. While the pool is missing, as during a move, nothing is known of it.
func TestSiteOfAGrantedHost(t *testing.T) {
	g := NewWithT(t)
	registration := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: "pool", Name: "edge"}}
	registration.Spec.Successor = &infrav1.RegistrationSuccessor{URLs: []string{"https://next.example.com"}, TrustBundle: "roots"}
	pool := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "pool", Name: "a"}}
	pool.Spec.RegistrationRef = &infrav1.LocalReference{Name: "edge"}
	pool.Spec.GrantedTo = &infrav1.HostGrantedTo{Namespace: namespace, Name: "a", Phase: infrav1.HostGrantGranted}
	granted := newHost("a", "c", infrav1.RoleWorker)
	granted.Spec.GrantedFrom = &infrav1.HostGrantedFrom{Namespace: "pool", Name: "a"}
	pretender := newHost("b", "c", infrav1.RoleWorker)
	pretender.Spec.GrantedFrom = granted.Spec.GrantedFrom
	for name, tc := range map[string]struct {
		objects []client.Object
		host    *infrav1.ElementalHost
		known   bool
	}{
		"granted":                      {[]client.Object{registration, pool}, granted, true},
		"pool missing":                 {[]client.Object{registration}, granted, false},
		"registration missing":         {[]client.Object{pool}, granted, false},
		"pool does not know this host": {[]client.Object{registration, pool}, pretender, false},
	} {
		site, err := newReader(t, tc.objects...).Site(t.Context(), tc.host)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(site.Successor != nil).To(Equal(tc.known), name)
		g.Expect(site.UnknownRegistration).To(Equal(!tc.known), name)
	}
}

// A successor that is moved with its registration is the management cluster itself then.
func TestSuccessorOfARegistration(t *testing.T) {
	g := NewWithT(t)
	registration := func(name, url, successor string) *infrav1.ElementalRegistration {
		r := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		r.Spec.Endpoint.URL = url
		r.Spec.Successor = &infrav1.RegistrationSuccessor{URLs: []string{"https://other.example.com", successor}, TrustBundle: "roots"}
		return r
	}
	r := newReader(t, registration("before", "", "https://next.example.com"), registration("after", "", ownURL+"/"),
		registration("own-url", "https://next.example.com/", "https://NEXT.example.com"))
	for name, known := range map[string]bool{"before": true, "after": false, "own-url": false} {
		host := newHost("a", "c", infrav1.RoleWorker)
		host.Spec.RegistrationRef = &infrav1.LocalReference{Name: name}
		site, err := r.Site(t.Context(), host)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(site.Successor != nil).To(Equal(known), name)
	}
}
