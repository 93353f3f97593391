package authority_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

func TestAuthorityIsCreatedOnce(t *testing.T) {
	g := NewWithT(t)
	c, namespace, clock := env.Client(t), env.Namespace(t), clocktesting.NewFakeClock(time.Now())
	bundles := make([]string, 8)
	var group sync.WaitGroup
	for i := range bundles {
		group.Go(func() { bundles[i], _ = authority.New(c, c, namespace, clock).Bundle(context.Background()) })
	}
	group.Wait()
	g.Expect(bundles[0]).To(ContainSubstring("BEGIN CERTIFICATE"))
	for _, b := range bundles {
		g.Expect(b).To(Equal(bundles[0]))
	}
	block, _ := pem.Decode([]byte(bundles[0]))
	root, err := x509.ParseCertificate(block.Bytes)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(root.NotAfter).To(BeTemporally("~", clock.Now().AddDate(10, 0, 0), 7*24*time.Hour))
	g.Expect(root.IsCA).To(BeTrue())
}

func TestLeafIsValidForItsNamesOnly(t *testing.T) {
	g := NewWithT(t)
	c, namespace, clock := env.Client(t), env.Namespace(t), clocktesting.NewFakeClock(time.Now())
	a := authority.New(c, c, namespace, clock)
	bundle, err := a.Bundle(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(bundle))
	cert, err := a.Leaf(t.Context(), []string{"a.example", "10.0.0.1", "fd00::1"})
	g.Expect(err).NotTo(HaveOccurred())
	for name, good := range map[string]bool{"a.example": true, "10.0.0.1": true, "fd00::1": true, "b.example": false} {
		_, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: clock.Now()})
		g.Expect(err == nil).To(Equal(good), name)
	}
}

// An administrator who replaces the CA by hand publishes both roots first.
func TestSeveralRoots(t *testing.T) {
	g := NewWithT(t)
	c, clock := env.Client(t), clocktesting.NewFakeClock(time.Now())
	namespace, other := env.Namespace(t), env.Namespace(t)
	first, err := authority.New(c, c, namespace, clock).Bundle(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	second, err := authority.New(c, c, other, clock).Bundle(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: authority.SecretName}, secret)).To(Succeed())
	secret.Data[authority.BundleKey] = []byte(first + second)
	g.Expect(c.Update(t.Context(), secret)).To(Succeed())
	both, err := authority.New(c, c, namespace, clock).Bundle(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(both).To(Equal(first + second))
}

// A new CA would disconnect every host.
func TestBrokenAuthorityIsNotReplaced(t *testing.T) {
	c, clock := env.Client(t), clocktesting.NewFakeClock(time.Now())
	for name, damage := range map[string]func(*corev1.Secret){
		"no certificate":   func(s *corev1.Secret) { s.Data[corev1.TLSCertKey] = nil },
		"no key":           func(s *corev1.Secret) { s.Data[corev1.TLSPrivateKeyKey] = []byte("x") },
		"no bundle":        func(s *corev1.Secret) { delete(s.Data, authority.BundleKey) },
		"a foreign bundle": func(s *corev1.Secret) { s.Data[authority.BundleKey] = []byte(foreignRoot(c, clock)) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := env.Namespace(t)
			_, err := authority.New(c, c, namespace, clock).Bundle(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			secret := &corev1.Secret{}
			key := client.ObjectKey{Namespace: namespace, Name: authority.SecretName}
			g.Expect(c.Get(t.Context(), key, secret)).To(Succeed())
			damage(secret)
			g.Expect(c.Update(t.Context(), secret)).To(Succeed())
			_, err = authority.New(c, c, namespace, clock).Bundle(t.Context())
			g.Expect(err).To(HaveOccurred())
			again := &corev1.Secret{}
			g.Expect(c.Get(t.Context(), key, again)).To(Succeed())
			g.Expect(again.ResourceVersion).To(Equal(secret.ResourceVersion))
		})
	}
}

func foreignRoot(c client.Client, clock *clocktesting.FakeClock) string {
	root, err := authority.New(c, c, "default", clock).Bundle(context.Background())
	if err != nil {
		return err.Error()
	}
	return root
}
