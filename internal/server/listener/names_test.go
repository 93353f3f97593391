package listener

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// countingIssuer issues certificates that have only names.
type countingIssuer struct{ issued int }

func (i *countingIssuer) Leaf(_ context.Context, in []string) (*tls.Certificate, error) {
	i.issued++
	leaf := &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}
	for _, name := range in {
		if ip := net.ParseIP(name); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	return &tls.Certificate{Leaf: leaf}, nil
}

type certificatesRig struct {
	WithT
	*Certificates
	issuer *countingIssuer
	begin  time.Time
	made   int
	items  []client.Object
}

func newCertificatesRig(t *testing.T) *certificatesRig {
	return &certificatesRig{WithT: *NewWithT(t), issuer: &countingIssuer{}, begin: time.Now().Truncate(time.Second)}
}

// publish adds a registration that is a second younger than the one before.
func (r *certificatesRig) publish(namespace, url string) {
	r.made++
	item := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprintf("r%d", r.made), CreationTimestamp: metav1.NewTime(r.begin.Add(time.Duration(r.made) * time.Second)),
	}}
	item.Spec.Endpoint.URL = url
	r.items = append(r.items, item)
}

// start makes the Certificates of a manager with that URL.
func (r *certificatesRig) start(url string) {
	scheme := runtime.NewScheme()
	r.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(r.items...).Build()
	r.Certificates = NewCertificates(r.issuer, reader, clocktesting.NewFakePassiveClock(time.Now()), url, "agents.system.svc")
}

// leaf returns the certificate for a caller.
func (r *certificatesRig) leaf(serverName, local string) *x509.Certificate {
	cert, err := r.get(context.Background(), serverName, &net.TCPAddr{IP: net.ParseIP(local), Port: 9444})
	r.Expect(err).NotTo(HaveOccurred())
	return cert.Leaf
}

// covers reports whether a client that connected to the address or name accepts the
// certificate.
func covers(leaf *x509.Certificate, name string) bool { return leaf.VerifyHostname(name) == nil }

// Registrations of one namespace publish so many addresses that they don't fit into one
// certificate. The manager's own names and those of other namespaces stay in it, younger
// ones too.
func TestThreat52_AddressesOfOthersStay(t *testing.T) {
	r := newCertificatesRig(t)
	r.publish("honest", "https://192.0.2.1:8443")
	for i := range 200 {
		r.publish("greedy", fmt.Sprintf("https://10.0.0.%d", i))
	}
	r.publish("late", "https://192.0.2.2")
	r.publish("late", "https://[2001:db8::2]")
	r.start("https://203.0.113.1")
	leaf := r.leaf("", "10.244.0.7")
	for _, name := range []string{"203.0.113.1", "agents.system.svc", "192.0.2.1", "192.0.2.2", "2001:db8::2", "10.0.0.0"} {
		r.Expect(covers(leaf, name)).To(BeTrue(), name)
	}
	r.Expect(len(leaf.IPAddresses)).To(BeNumerically("<=", maxIPs+1), "the certificate is bounded")
	r.Expect(covers(leaf, "10.0.0.199")).To(BeFalse())
}

// An address beyond the shared ones is served where the connection shows it.
func TestThreat52_LocalAddress(t *testing.T) {
	r := newCertificatesRig(t)
	for i := range 200 {
		r.publish("large", fmt.Sprintf("https://10.0.0.%d", i))
	}
	r.start("https://203.0.113.1")
	leaf := r.leaf("", "10.0.0.199")
	for _, name := range []string{"10.0.0.199", "203.0.113.1", "agents.system.svc", "10.0.0.0"} {
		r.Expect(covers(leaf, name)).To(BeTrue(), name)
	}
	r.Expect(covers(r.leaf("", "198.51.100.9"), "198.51.100.9")).To(BeFalse(), "nobody publishes it")
}

// The names of one namespace, and so the certificates that callers can cause, are bounded.
func TestThreat52_NamesOfANamespace(t *testing.T) {
	r := newCertificatesRig(t)
	r.publish("honest", "https://honest.example.com")
	for i := range 2 * maxNames {
		r.publish("greedy", fmt.Sprintf("https://n%d.example.com", i))
	}
	r.start("https://manager.example.com")
	r.Expect(covers(r.leaf("honest.example.com", "10.244.0.7"), "honest.example.com")).To(BeTrue())
	for i := range 2 * maxNames {
		name := fmt.Sprintf("n%d.example.com", i)
		r.Expect(covers(r.leaf(name, "10.244.0.7"), name)).To(Equal(i < maxNames), name)
	}
	r.Expect(r.issuer.issued).To(Equal(maxNames+2), "one each, and one for all others")
}

// Spellings of one address take one place, and a caller learns no other DNS names.
func TestCertificateNames(t *testing.T) {
	r := newCertificatesRig(t)
	r.publish("a", "https://[2001:db8::1]")
	r.publish("a", "https://[2001:db8:0:0:0:0:0:1]")
	r.publish("a", "https://[::ffff:192.0.2.1]")
	r.publish("b", "https://192.0.2.1")
	r.publish("b", "https://b.example.com")
	r.start("")
	r.Expect(r.leaf("", "10.244.0.7").IPAddresses).To(HaveLen(2))
	leaf := r.leaf("B.example.com.", "192.0.2.1")
	r.Expect(leaf.DNSNames).To(Equal([]string{"b.example.com"}))
	r.Expect(leaf.IPAddresses).To(BeEmpty())
	r.Expect(r.leaf("other.example.com", "10.244.0.7").DNSNames).To(Equal([]string{"agents.system.svc"}))
}
