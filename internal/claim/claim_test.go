package claim_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
)

const (
	reserved, bound, held, releasing = infrav1.ClaimReserved, infrav1.ClaimBound, infrav1.ClaimHeld, infrav1.ClaimReleasing
)

// is makes a claim of cluster c, machine m and id 1 unless told otherwise.
func is(phase infrav1.ClaimPhase, changes ...func(*infrav1.HostClaim)) *infrav1.HostClaim {
	c := &infrav1.HostClaim{ClusterName: "c", Phase: phase}
	if phase != reserved {
		c.ID, c.MachineName = "1", "m"
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

func id(v string) func(*infrav1.HostClaim) { return func(c *infrav1.HostClaim) { c.ID = v } }
func cluster(v string) func(*infrav1.HostClaim) {
	return func(c *infrav1.HostClaim) { c.ClusterName = v }
}

func zeroed(c *infrav1.HostClaim) { c.Erase = infrav1.EraseZero }

type transition func(context.Context, client.Client, *infrav1.ElementalHost) error

func reserve(ctx context.Context, c client.Client, h *infrav1.ElementalHost) error {
	return claim.Reserve(ctx, c, h, "c")
}

func unreserve(ctx context.Context, c client.Client, h *infrav1.ElementalHost) error {
	return claim.Unreserve(ctx, c, h, "c")
}

func bind(ctx context.Context, c client.Client, h *infrav1.ElementalHost) error {
	return claim.Bind(ctx, c, h, infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "m"})
}

func release(ctx context.Context, c client.Client, h *infrav1.ElementalHost) error {
	return claim.Release(ctx, c, h, "1", "")
}

func releaseAndErase(ctx context.Context, c client.Client, h *infrav1.ElementalHost) error {
	return claim.Release(ctx, c, h, "1", infrav1.EraseZero)
}

func hold(ctx context.Context, c client.Client, h *infrav1.ElementalHost) error {
	return claim.Hold(ctx, c, h, "1", infrav1.EraseZero)
}

func free(ctx context.Context, c client.Client, h *infrav1.ElementalHost) error {
	return claim.Free(ctx, c, h, "1")
}

// store is an API server's memory of one host, and the number of its writes.
func store(g *WithT, before *infrav1.HostClaim) (client.Client, *infrav1.ElementalHost, *int) {
	scheme := runtime.NewScheme()
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "h"}, Spec: infrav1.ElementalHostSpec{Claim: before.DeepCopy()}}
	if before != nil && before.Phase == releasing {
		host.Annotations = map[string]string{clusterctlv1.BlockMoveAnnotation: ""}
	}
	writes := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(host).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	g.Expect(c.Get(context.Background(), client.ObjectKeyFromObject(host), host)).To(Succeed())
	return c, host, &writes
}

func TestTransitions(t *testing.T) {
	for name, tc := range map[string]struct {
		before *infrav1.HostClaim
		do     transition
		// after is the claim afterwards; writes is 0 where it was so before.
		after  *infrav1.HostClaim
		writes int
		taken  bool
	}{
		"reserve a free host":            {nil, reserve, is(reserved), 1, false},
		"reserve again":                  {is(reserved), reserve, is(reserved), 0, false},
		"reserve another's reservation":  {is(reserved, cluster("d")), reserve, is(reserved, cluster("d")), 0, true},
		"reserve what is bound":          {is(bound), reserve, is(bound), 0, true},
		"reserve what is releasing":      {is(releasing), reserve, is(releasing), 0, true},
		"unreserve":                      {is(reserved), unreserve, nil, 1, false},
		"unreserve again":                {nil, unreserve, nil, 0, false},
		"unreserve another's":            {is(reserved, cluster("d")), unreserve, is(reserved, cluster("d")), 0, false},
		"unreserve what a machine has":   {is(bound), unreserve, is(bound), 0, true},
		"bind a free host":               {nil, bind, is(bound), 1, false},
		"bind a reserved host":           {is(reserved), bind, is(bound), 1, false},
		"bind again":                     {is(bound), bind, is(bound), 0, false},
		"bind another's reservation":     {is(reserved, cluster("d")), bind, is(reserved, cluster("d")), 0, true},
		"bind what another has":          {is(bound, id("2")), bind, is(bound, id("2")), 0, true},
		"bind what is releasing":         {is(releasing), bind, is(releasing), 0, true},
		"release":                        {is(bound), release, is(releasing), 1, false},
		"release again":                  {is(releasing), release, is(releasing), 0, false},
		"release another's":              {is(bound, id("2")), release, is(bound, id("2")), 0, true},
		"release a free host":            {nil, release, nil, 0, true},
		"release a held host":            {is(held), release, is(held), 0, true},
		"release and erase":              {is(bound), releaseAndErase, is(releasing, zeroed), 1, false},
		"erase what is releasing":        {is(releasing), releaseAndErase, is(releasing), 0, false},
		"hold":                           {is(bound), hold, is(held, zeroed), 1, false},
		"hold again":                     {is(held), hold, is(held), 0, false},
		"hold what is releasing":         {is(releasing), hold, is(releasing), 0, true},
		"hold a reserved host":           {is(reserved, id("1")), hold, is(reserved, id("1")), 0, true},
		"hold another's":                 {is(bound, id("2")), hold, is(bound, id("2")), 0, true},
		"hold a free host":               {nil, hold, nil, 0, true},
		"bind what is held":              {is(held), bind, is(held), 0, true},
		"reserve what is held":           {is(held), reserve, is(held), 0, true},
		"unreserve what is held":         {is(held), unreserve, is(held), 0, true},
		"free what is held":              {is(held), free, is(held), 0, true},
		"free":                           {is(releasing), free, nil, 1, false},
		"free again":                     {nil, free, nil, 0, false},
		"free what was not released":     {is(bound), free, is(bound), 0, true},
		"free what is another's by now":  {is(bound, id("2")), free, is(bound, id("2")), 0, true},
		"free another's that is leaving": {is(releasing, id("2")), free, is(releasing, id("2")), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, host, writes := store(g, tc.before)
			for range 2 {
				err := tc.do(t.Context(), c, host)
				if tc.taken {
					g.Expect(err).To(MatchError(claim.ErrTaken))
					g.Expect(err.Error()).To(ContainSubstring("host h"))
				} else {
					g.Expect(err).NotTo(HaveOccurred())
				}
				stored := &infrav1.ElementalHost{}
				g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(host), stored)).To(Succeed())
				g.Expect(stored.Spec.Claim).To(Equal(tc.after))
				g.Expect(host.Spec.Claim).To(Equal(tc.after), "the caller has what is stored")
				_, blocked := stored.Annotations[clusterctlv1.BlockMoveAnnotation]
				g.Expect(blocked).To(Equal(tc.after != nil && tc.after.Phase == releasing), "a release holds up clusterctl move")
				g.Expect(*writes).To(Equal(tc.writes), "repeated, it is no write")
				if name == "free" {
					return // a second time it is "free again"
				}
			}
		})
	}
}

// Of two who read the same state one wins, and the loser's object is as it was.
func TestTheLoserGetsAConflict(t *testing.T) {
	for name, tc := range map[string]struct {
		before *infrav1.HostClaim
		do     transition
	}{
		"reserve": {nil, reserve}, "bind": {nil, bind}, "bind reserved": {is(reserved), bind}, "unreserve": {is(reserved), unreserve},
		"release": {is(bound), release}, "hold": {is(bound), hold}, "free": {is(releasing), free},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, host, _ := store(g, tc.before)
			winner := host.DeepCopy()
			winner.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"}
			g.Expect(c.Update(t.Context(), winner)).To(Succeed())
			before := host.DeepCopy()
			err := tc.do(t.Context(), c, host)
			g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			g.Expect(host).To(Equal(before))
			stored := &infrav1.ElementalHost{}
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(host), stored)).To(Succeed())
			g.Expect(stored.Spec.Claim).To(Equal(tc.before))
		})
	}
}
