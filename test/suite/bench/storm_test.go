package bench

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/machines"
)

// A claim that gets no host is a figure, and no end of waiting.
func TestClaimThatNeverComes(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := &machines.Client{Namespace: namespace, Admin: fake.NewClientBuilder().WithScheme(scheme).Build()}
		g.Expect(m.TimeClaim(t.Context(), "c", "never", time.Minute)).To(Equal(time.Minute))

		go func() {
			<-time.After(time.Second)
			machine := &infrav1.ElementalMachine{}
			_ = m.Admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "soon"}, machine)
			host := &infrav1.ElementalHost{}
			host.Namespace, host.Name, host.Spec.Claim = namespace, "h", &infrav1.HostClaim{ID: "id"}
			machine.Spec.HostRef = &infrav1.HostReference{Name: "h", ClaimID: "id"}
			_ = m.Admin.Create(t.Context(), host)
			_ = m.Admin.Update(t.Context(), machine)
		}()
		took, err := m.TimeClaim(t.Context(), "c", "soon", time.Minute)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(took).To(BeNumerically("~", time.Second, 20*time.Millisecond))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.TimeClaim(ctx, "c", "given-up", time.Minute)
		g.Expect(err).To(MatchError(context.DeadlineExceeded), "the end of the scenario is no figure")
	})
}

func TestClaimsInTheTable(t *testing.T) {
	g := NewWithT(t)
	for value, claims := range map[string][]time.Duration{"no claim": nil, "no host after 300 s": {time.Second, stormLimit}, "2.00 s": {stormClaim}} {
		row := claimsRow(claims)
		g.Expect(row.Value).To(Equal(value))
		g.Expect(row.Missed).To(BeTrue())
	}
	g.Expect(claimsRow([]time.Duration{time.Second}).Missed).To(BeFalse())
}
