package claim_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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

// newClaim returns a claim of cluster c, machine m and ID 1, changed by changes.
func newClaim(phase infrav1.ClaimPhase, changes ...func(*infrav1.HostClaim)) *infrav1.HostClaim {
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

// adopting is a claim whose machine has not taken over the Node yet.
func adopting(c *infrav1.HostClaim) {
	c.Adoption = &infrav1.ClaimAdoption{AuthorityHash: "sha256:1", Endpoint: "10.1.1.1:6443"}
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
	return claim.Bind(ctx, c, h, infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "m"}, nil)
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

func finishAdoption(ctx context.Context, c client.Client, h *infrav1.ElementalHost) error {
	return claim.FinishAdoption(ctx, c, h, "1")
}

func free(ctx context.Context, c client.Client, h *infrav1.ElementalHost) error {
	return claim.Free(ctx, c, h, "1")
}

// newClient returns a client for one host with the claim, the host, and the number of
// patches.
func newClient(g *WithT, before *infrav1.HostClaim) (client.Client, *infrav1.ElementalHost, *int) {
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
		// after is the claim afterwards. writes is 0 if the claim does not change.
		after  *infrav1.HostClaim
		writes int
		taken  bool
	}{
		"reserve a free host":                          {nil, reserve, newClaim(reserved), 1, false},
		"reserve again":                                {newClaim(reserved), reserve, newClaim(reserved), 0, false},
		"reserve for another cluster":                  {newClaim(reserved, cluster("d")), reserve, newClaim(reserved, cluster("d")), 0, true},
		"reserve a bound host":                         {newClaim(bound), reserve, newClaim(bound), 0, true},
		"reserve a releasing host":                     {newClaim(releasing), reserve, newClaim(releasing), 0, true},
		"unreserve":                                    {newClaim(reserved), unreserve, nil, 1, false},
		"unreserve again":                              {nil, unreserve, nil, 0, false},
		"unreserve for another cluster":                {newClaim(reserved, cluster("d")), unreserve, newClaim(reserved, cluster("d")), 0, false},
		"unreserve a bound host":                       {newClaim(bound), unreserve, newClaim(bound), 0, true},
		"bind a free host":                             {nil, bind, newClaim(bound), 1, false},
		"bind a reserved host":                         {newClaim(reserved), bind, newClaim(bound), 1, false},
		"bind again":                                   {newClaim(bound), bind, newClaim(bound), 0, false},
		"bind the reserved host of another cluster":    {newClaim(reserved, cluster("d")), bind, newClaim(reserved, cluster("d")), 0, true},
		"bind under another claim ID":                  {newClaim(bound, id("2")), bind, newClaim(bound, id("2")), 0, true},
		"bind a releasing host":                        {newClaim(releasing), bind, newClaim(releasing), 0, true},
		"release":                                      {newClaim(bound), release, newClaim(releasing), 1, false},
		"release again":                                {newClaim(releasing), release, newClaim(releasing), 0, false},
		"release under another claim ID":               {newClaim(bound, id("2")), release, newClaim(bound, id("2")), 0, true},
		"release a free host":                          {nil, release, nil, 0, true},
		"release a held host":                          {newClaim(held), release, newClaim(held), 0, true},
		"release and erase":                            {newClaim(bound), releaseAndErase, newClaim(releasing, zeroed), 1, false},
		"erase a releasing host":                       {newClaim(releasing), releaseAndErase, newClaim(releasing), 0, false},
		"hold":                                         {newClaim(bound), hold, newClaim(held, zeroed), 1, false},
		"hold again":                                   {newClaim(held), hold, newClaim(held), 0, false},
		"hold a releasing host":                        {newClaim(releasing), hold, newClaim(releasing), 0, true},
		"hold a reserved host":                         {newClaim(reserved, id("1")), hold, newClaim(reserved, id("1")), 0, true},
		"hold under another claim ID":                  {newClaim(bound, id("2")), hold, newClaim(bound, id("2")), 0, true},
		"hold a free host":                             {nil, hold, nil, 0, true},
		"bind a held host":                             {newClaim(held), bind, newClaim(held), 0, true},
		"reserve a held host":                          {newClaim(held), reserve, newClaim(held), 0, true},
		"unreserve a held host":                        {newClaim(held), unreserve, newClaim(held), 0, true},
		"finish an adoption":                           {newClaim(bound, adopting), finishAdoption, newClaim(bound), 1, false},
		"finish it again":                              {newClaim(bound), finishAdoption, newClaim(bound), 0, false},
		"finish that of another claim ID":              {newClaim(bound, id("2"), adopting), finishAdoption, newClaim(bound, id("2"), adopting), 0, true},
		"finish that of a releasing host":              {newClaim(releasing, adopting), finishAdoption, newClaim(releasing, adopting), 0, true},
		"free a held host":                             {newClaim(held), free, newClaim(held), 0, true},
		"free":                                         {newClaim(releasing), free, nil, 1, false},
		"free again":                                   {nil, free, nil, 0, false},
		"free a bound host":                            {newClaim(bound), free, newClaim(bound), 0, true},
		"free a host bound under another claim ID":     {newClaim(bound, id("2")), free, newClaim(bound, id("2")), 0, true},
		"free a host releasing under another claim ID": {newClaim(releasing, id("2")), free, newClaim(releasing, id("2")), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, host, writes := newClient(g, tc.before)
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
				g.Expect(host.Spec.Claim).To(Equal(tc.after), "the object in memory must equal the stored one")
				_, blocked := stored.Annotations[clusterctlv1.BlockMoveAnnotation]
				g.Expect(blocked).To(Equal(tc.after != nil && tc.after.Phase == releasing), "a release must block clusterctl move")
				if tc.writes > 0 {
					g.Expect(stored.Labels[clusterv1.ClusterNameLabel]).To(Equal(clusterOf(tc.after)))
				}
				g.Expect(*writes).To(Equal(tc.writes), "the second call must not write")
				if name == "free" {
					return // the row "free again" tests the second call
				}
			}
		})
	}
}

// A Node that no machine has taken over is not the machine's to reset or to hold. The declaration
// stays, so that another machine can take it over.
func TestThreat102_UnfinishedAdoptionIsGivenBack(t *testing.T) {
	for name, end := range map[string]transition{"release": releaseAndErase, "hold": hold} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, host, _ := newClient(g, newClaim(bound, adopting))
			host.Spec.Adoption = &infrav1.HostAdoption{ClusterName: "c", Role: infrav1.AdoptedWorker}
			g.Expect(c.Update(t.Context(), host)).To(Succeed())
			g.Expect(end(t.Context(), c, host)).To(Succeed())
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(host), host)).To(Succeed())
			g.Expect(host.Spec.Claim).To(BeNil())
			g.Expect(host.Spec.Adoption).NotTo(BeNil())
			g.Expect(host.Annotations).NotTo(HaveKey(clusterctlv1.BlockMoveAnnotation))
			g.Expect(host.Labels).NotTo(HaveKey(clusterv1.ClusterNameLabel))
		})
	}
}

// A Node that was taken over needs no declaration any more: after its reset, the host is like others.
func TestAdoptionEndsItsDeclaration(t *testing.T) {
	g := NewWithT(t)
	c, host, _ := newClient(g, newClaim(bound, adopting))
	host.Spec.Adoption = &infrav1.HostAdoption{ClusterName: "c", Role: infrav1.AdoptedWorker}
	g.Expect(c.Update(t.Context(), host)).To(Succeed())
	g.Expect(finishAdoption(t.Context(), c, host)).To(Succeed())
	g.Expect(host.Spec.Adoption).To(BeNil())
	g.Expect(host.Spec.Claim).To(Equal(newClaim(bound)))
}

// clusterOf returns the name of the claim's cluster; blank for none.
func clusterOf(c *infrav1.HostClaim) string {
	if c == nil {
		return ""
	}
	return c.ClusterName
}

// A label that is missing, outdated or left behind is repaired, by one write.
func TestRelabel(t *testing.T) {
	for name, tt := range map[string]struct {
		claim  *infrav1.HostClaim
		labels map[string]string
		want   map[string]string
		writes int
	}{
		"missing":          {newClaim(bound), nil, map[string]string{clusterv1.ClusterNameLabel: "c"}, 1},
		"of another":       {newClaim(held), map[string]string{clusterv1.ClusterNameLabel: "d", "site": "a"}, map[string]string{clusterv1.ClusterNameLabel: "c", "site": "a"}, 1},
		"of a free host":   {nil, map[string]string{clusterv1.ClusterNameLabel: "", "site": "a"}, map[string]string{"site": "a"}, 1},
		"as it should be":  {newClaim(reserved), map[string]string{clusterv1.ClusterNameLabel: "c"}, map[string]string{clusterv1.ClusterNameLabel: "c"}, 0},
		"none, as is free": {nil, map[string]string{"site": "a"}, map[string]string{"site": "a"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, host, writes := newClient(g, tt.claim)
			host.Labels = tt.labels
			g.Expect(c.Update(t.Context(), host)).To(Succeed())
			g.Expect(claim.Relabel(t.Context(), c, host)).To(Succeed())
			stored := &infrav1.ElementalHost{}
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(host), stored)).To(Succeed())
			g.Expect(stored.Labels).To(Equal(tt.want))
			g.Expect(stored.Spec.Claim).To(Equal(tt.claim))
			g.Expect(*writes).To(Equal(tt.writes))
		})
	}
}

// Of two clients that read the same state one succeeds. The other gets a conflict, and its
// object stays unchanged.
func TestConcurrentTransitionsConflict(t *testing.T) {
	for name, tc := range map[string]struct {
		before *infrav1.HostClaim
		do     transition
	}{
		"reserve": {nil, reserve}, "bind": {nil, bind}, "bind reserved": {newClaim(reserved), bind}, "unreserve": {newClaim(reserved), unreserve},
		"release": {newClaim(bound), release}, "hold": {newClaim(bound), hold}, "free": {newClaim(releasing), free},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, host, _ := newClient(g, tc.before)
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

// The bundle is written with the claim and removed with it, as is an upgrade.
func TestBundleFollowsTheClaim(t *testing.T) {
	g := NewWithT(t)
	c, h, writes := newClient(g, nil)
	bundle := &infrav1.HostBundle{Version: "v1.36.3", SHA256: "a", SizeBytes: 1, Sources: []string{"manager"}}
	g.Expect(claim.Bind(t.Context(), c, h, infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "m"}, bundle)).To(Succeed())
	g.Expect(h.Spec.Bundle).To(Equal(bundle))
	g.Expect(*writes).To(Equal(1))
	h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: "up"}
	g.Expect(claim.Release(t.Context(), c, h, "1", "")).To(Succeed())
	g.Expect(h.Spec.Bundle).To(Equal(bundle), "the plan of a releasing host names none anyway")
	g.Expect(claim.Free(t.Context(), c, h, "1")).To(Succeed())
	g.Expect(h.Spec.Bundle).To(BeNil())
	g.Expect(h.Spec.NodeUpgrade).To(BeNil())
}

// A host that a grant takes out of the namespace can't be claimed there.
func TestThreat94_LeavingHostsAreNotClaimed(t *testing.T) {
	for name, change := range map[string]func(*infrav1.ElementalHost){
		"granted":   func(h *infrav1.ElementalHost) { h.Spec.GrantedTo = &infrav1.HostGrantedTo{Name: "h"} },
		"returning": func(h *infrav1.ElementalHost) { h.Spec.GrantedFrom = &infrav1.HostGrantedFrom{Returning: new(true)} },
	} {
		t.Run(name, func(t *testing.T) {
			g, host := NewWithT(t), &infrav1.ElementalHost{}
			change(host)
			g.Expect(claim.Reserve(t.Context(), nil, host.DeepCopy(), "c")).To(MatchError(claim.ErrTaken))
			g.Expect(claim.Bind(t.Context(), nil, host, infrav1.HostClaim{ID: "1", ClusterName: "c"}, nil)).To(MatchError(claim.ErrTaken))
		})
	}
}
