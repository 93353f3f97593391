package enrolment_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

func fingerprint(number int) string { return identity.Fingerprint(fmt.Append(nil, number)) }

// The record of a token is bounded, and a host can only push out keys of its own.
func TestThreat55_RememberedKeysAreBounded(t *testing.T) {
	g := NewWithT(t)
	secret := &corev1.Secret{}
	const remembered = 2000
	for i := range remembered {
		g.Expect(enrolment.RememberKey(secret, fingerprint(i))).To(BeZero())
		g.Expect(enrolment.RememberKey(secret, fingerprint(i))).To(BeZero(), "again")
	}
	g.Expect(len(secret.Data[enrolment.KeysKey])).To(BeNumerically("<", 35<<10))
	// One host rotates a thousand times. The announced, the current and the former key stay.
	for i := range 1000 {
		g.Expect(enrolment.RememberNextKey(secret, fingerprint(10000+i-1), fingerprint(10000+i))).To(Equal(i > 0))
		if i == 0 {
			g.Expect(enrolment.RememberNextKey(secret, fingerprint(7), fingerprint(10000))).To(BeTrue())
		}
	}
	for i := range 4 {
		g.Expect(enrolment.RemembersKey(secret, fingerprint(10999-i))).To(BeTrue())
	}
	g.Expect(enrolment.RemembersKey(secret, fingerprint(10995))).To(BeFalse())
	g.Expect(enrolment.RemembersKey(secret, fingerprint(0))).To(BeTrue(), "other hosts stay known")

	g.Expect(enrolment.RememberKey(secret, fingerprint(remembered))).To(Equal(1), "the oldest is forgotten")
	g.Expect(enrolment.RemembersKey(secret, fingerprint(0))).To(BeFalse())
	g.Expect(enrolment.RemembersKey(secret, fingerprint(1))).To(BeTrue())

	enrolment.ForgetKey(secret, fingerprint(1))
	g.Expect(enrolment.RemembersKey(secret, fingerprint(1))).To(BeFalse())
	g.Expect(enrolment.RemembersKey(&corev1.Secret{}, fingerprint(1))).To(BeFalse())
}
