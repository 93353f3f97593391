package command_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
)

// operation is a command that changes a host, in a situation.
type operation struct {
	situation func(*fixture)
	args      []string
	// input is what a person types.
	input string
	// want is about host h1 afterwards.
	want func(g *WithT, h *infrav1.ElementalHost)
}

func unchanged(*WithT, *infrav1.ElementalHost) {}

// member is a host of the cluster c1 that runs a Machine of the same name.
func member(role infrav1.ClaimRole, changes ...hostChange) hostChange {
	return func(h *infrav1.ElementalHost) {
		h.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
		h.Spec.Claim = &infrav1.HostClaim{ID: "id", ClusterName: "c1", MachineName: "m-" + h.Name, Phase: infrav1.ClaimBound, Role: role}
		h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "id", State: infrav1.OperationSucceeded}}
		h.Status.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{
			Result: infrav1.ProbeReachable, Since: metav1.NewTime(now), CertificateNames: []string{"10.1.1.1"},
		}, Probe: &infrav1.EndpointProbe{Endpoint: "10.1.1.2:6443", Result: infrav1.ProbeReachable, Since: metav1.NewTime(now)}}
		for _, change := range changes {
			change(h)
		}
	}
}

// controlPlane creates the cluster c1 with host h1, and hosts h2, h3, … of its control plane.
func controlPlane(first hostChange, others ...hostChange) func(*fixture) {
	return func(f *fixture) {
		f.Cluster("c1", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { onHost(c) })
		f.Host("h1", first)
		for i, other := range others {
			f.Host(fmt.Sprintf("h%d", i+2), other)
		}
	}
}

const keyOfSpare = "sha256:2222222222222222222222222222222222222222222222222222222222222222"

// replaceable creates the cluster c1 with its only control-plane host h1, and a free host h2.
func replaceable(changes ...hostChange) func(*fixture) {
	identity := func(key string, generation int64) hostChange {
		return func(h *infrav1.ElementalHost) {
			h.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: key, Generation: generation}
		}
	}
	return func(f *fixture) {
		controlPlane(member(infrav1.RoleControlPlane, append(changes, identity("sha256:"+strings.Repeat("1", 64), 4))...))(f)
		f.Host("h2", identity(keyOfSpare, 1))
	}
}

// isKept checks that the machine of a replaceable host stays.
func isKept(g *WithT, h *infrav1.ElementalHost) {
	g.Expect(h.Spec.Identity.Generation).To(BeEquivalentTo(4))
	g.Expect(h.Spec.Identity.Match).To(BeNil())
}

func TestOperations(t *testing.T) {
	worker := controlPlane(member(infrav1.RoleWorker))
	for name, tc := range map[string]operation{
		"cordon": {situation: worker, args: []string{"cordon", "h1", "--reason", "new rack"},
			want: func(g *WithT, h *infrav1.ElementalHost) { g.Expect(h.Spec.Cordon.Reason).To(Equal("new rack")) }},
		"cordon-dry-run": {situation: alone(), args: []string{"cordon", "h1", "--dry-run=server"},
			want: func(g *WithT, h *infrav1.ElementalHost) { g.Expect(h.Spec.Cordon).To(BeNil()) }},
		"uncordon": {situation: alone(func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "disk"} }), args: []string{"uncordon", "h1"},
			want: func(g *WithT, h *infrav1.ElementalHost) { g.Expect(h.Spec.Cordon).To(BeNil()) }},
		"uncordon-not-cordoned": {situation: alone(disconnected), args: []string{"uncordon", "h1"}, want: unchanged},
		"maintenance": {situation: controlPlane(member(infrav1.RoleControlPlane), member(infrav1.RoleControlPlane, disconnected)),
			args: []string{"maintenance", "h1", "--for", "2h", "--reason", "new disk"},
			want: func(g *WithT, h *infrav1.ElementalHost) {
				g.Expect(h.Spec.Maintenance.Until.Time).To(BeTemporally("==", now.Add(2*time.Hour)))
				g.Expect(h.Spec.Maintenance.Reason).To(Equal("new disk"))
			}},
		"maintenance-past": {situation: alone(), args: []string{"maintenance", "h1", "--until", "2026-05-04T11:59:59Z"},
			want: func(g *WithT, h *infrav1.ElementalHost) { g.Expect(h.Spec.Maintenance).To(BeNil()) }},
		"maintenance-end": {situation: alone(claimed(infrav1.ClaimReleasing), disconnected, func(h *infrav1.ElementalHost) {
			h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"}
		}), args: []string{"maintenance", "h1", "--end"}, input: "h1\n",
			want: func(g *WithT, h *infrav1.ElementalHost) { g.Expect(h.Spec.Maintenance).To(BeNil()) }},
		"reject": {situation: alone(pending), args: []string{"reject", "h1"},
			want: func(g *WithT, h *infrav1.ElementalHost) {
				g.Expect(h.Spec.Approval).To(Equal(infrav1.ApprovalRejected))
			}},
		"fence": {situation: worker, args: []string{"fence", "h1", "--reason", "stolen"}, input: "h1\n",
			want: func(g *WithT, h *infrav1.ElementalHost) { g.Expect(h.Spec.Fence.Reason).To(Equal("stolen")) }},
		"fence-last": {situation: controlPlane(member(infrav1.RoleControlPlane), member(infrav1.RoleControlPlane, disconnected)),
			args: []string{"fence", "h1", "--yes"},
			want: func(g *WithT, h *infrav1.ElementalHost) { g.Expect(h.Spec.Fence).To(BeNil()) }},
		"fence-last-forced": {situation: controlPlane(member(infrav1.RoleControlPlane), member(infrav1.RoleWorker)),
			args: []string{"fence", "h1", "--yes", "--force"},
			want: func(g *WithT, h *infrav1.ElementalHost) { g.Expect(h.Spec.Fence).NotTo(BeNil()) }},
		"unfence": {situation: alone(func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} }), args: []string{"unfence", "h1"},
			want: func(g *WithT, h *infrav1.ElementalHost) { g.Expect(h.Spec.Fence).To(BeNil()) }},
		"release-dead": {situation: controlPlane(member(infrav1.RoleControlPlane, disconnected), member(infrav1.RoleControlPlane)),
			args: []string{"release", "h1", "--yes"},
			want: func(g *WithT, h *infrav1.ElementalHost) { g.Expect(h.Spec.Fence.Reason).To(Equal("dead")) }},
		"release-connected": {situation: func(f *fixture) { worker(f); f.Machine("c1", "m-h1") }, args: []string{"release", "h1", "--yes"},
			want: func(g *WithT, h *infrav1.ElementalHost) { g.Expect(h.Spec.Fence).To(BeNil()) }},
		"release-held": {situation: alone(claimed(infrav1.ClaimHeld)), args: []string{"release", "h1"}, input: "h1",
			want: func(g *WithT, h *infrav1.ElementalHost) {
				g.Expect(h.Spec.Claim.Phase).To(Equal(infrav1.ClaimReleasing))
			}},
		"release-without-machine": {situation: worker, args: []string{"release", "h1", "--yes"},
			want: func(g *WithT, h *infrav1.ElementalHost) {
				g.Expect(h.Spec.Claim.Phase).To(Equal(infrav1.ClaimReleasing))
			}},
		"replace": {situation: replaceable(disconnected), args: []string{"replace", "h1", "--by", "h2"}, input: "h1",
			want: func(g *WithT, h *infrav1.ElementalHost) {
				g.Expect(*h.Spec.Identity).To(Equal(infrav1.HostIdentity{Match: &infrav1.IdentityMatch{KeyFingerprint: keyOfSpare}, Generation: 4}))
			}},
		"replace-not-confirmed": {situation: replaceable(disconnected), args: []string{"replace", "h1", "--by", "h2"}, want: isKept},
		"replace-dry-run":       {situation: replaceable(disconnected), args: []string{"replace", "h1", "--by", "h2", "--dry-run=server"}, want: isKept},
		"replace-connected":     {situation: replaceable(), args: []string{"replace", "h1", "--by", "h2", "--yes"}, want: isKept},
		"release-free":          {situation: alone(), args: []string{"release", "h1"}, want: unchanged},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tc.situation(f)
			f.input = tc.input
			text, err := f.run(tc.args...)
			if err != nil {
				text += "Error: " + err.Error() + "\n"
			}
			f.expectGolden("change-"+name, text)
			host := &infrav1.ElementalHost{ObjectMeta: f.Meta("h1")}
			f.Refresh(host)
			tc.want(f.WithT, host)
		})
	}
}

// Several hosts are changed by one command. One that is refused does not keep the others out.
func TestSeveralHosts(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"h1", "h2", "h3"} {
		f.Host(name, labelled("rack", "r1"))
	}
	f.Host("other")
	text, err := f.run("cordon", "-l", "rack=r1")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(strings.Count(text, "cordon it")).To(Equal(3))
	for name, cordoned := range map[string]bool{"h1": true, "h3": true, "other": false} {
		host := &infrav1.ElementalHost{ObjectMeta: f.Meta(name)}
		f.Refresh(host)
		f.Expect(host.Spec.Cordon != nil).To(Equal(cordoned), name)
	}
}

// Each host is confirmed by its own name.
func TestSeveralConfirmations(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"h1", "h2", "h3"} {
		f.Host(name, claimed(infrav1.ClaimReleasing), labelled("rack", "r1"), func(h *infrav1.ElementalHost) {
			h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"}
		})
	}
	f.input = "h1\nno\nh3\n"
	_, err := f.run("maintenance", "-l", "rack=r1", "--end")
	f.Expect(err).To(MatchError(And(ContainSubstring("/h2: nothing was done"), Not(ContainSubstring("/h1")), Not(ContainSubstring("/h3")))))
	for name, ended := range map[string]bool{"h1": true, "h2": false, "h3": true} {
		host := &infrav1.ElementalHost{ObjectMeta: f.Meta(name)}
		f.Refresh(host)
		f.Expect(host.InMaintenance()).To(Equal(!ended), name)
	}
}

func TestChangeErrors(t *testing.T) {
	f := newFixture(t)
	f.Host("h1")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"cordon"}, "name one host, or select hosts by -l"},
		{[]string{"cordon", "h1", "-l", "a=b"}, "name one host, or select hosts by -l"},
		{[]string{"cordon", "-l", "a=b"}, "no host of namespace "},
		{[]string{"cordon", "h1", "--dry-run=client"}, "it must be none or server"},
		{[]string{"cordon", "h1", "--reason", strings.Repeat("x", 257)}, "Give one of 1 to 256 bytes"},
		{[]string{"uncordon", "h9"}, "there is no ElementalHost h9 in namespace "},
		{[]string{"replace", "h1"}, "at least one of the flags in the group [by] is required"},
		{[]string{"replace", "h1", "--by", "h9"}, "there is no ElementalHost h9 in namespace "},
		{[]string{"maintenance", "h1"}, "at least one of the flags in the group [for until end] is required"},
		{[]string{"maintenance", "h1", "--until", "tomorrow"}, "it must be a time such as"},
		{[]string{"maintenance", "h1", "--end", "--reason", "x"}, "not for --end"},
		{[]string{"approve", "h1"}, "name one host and give --fingerprint"},
		{[]string{"approve", "h1", "--fingerprint", "abc"}, "is no fingerprint"},
		{[]string{"token", "none"}, "there is no ElementalRegistration none"},
		{[]string{"endpoint", "c1"}, "there is no Cluster c1"},
		{[]string{"endpoint", "c1", "remove"}, "the second argument is move"},
	} {
		_, err := f.run(tc.args...)
		f.Expect(err).To(MatchError(ContainSubstring(tc.want)), "%v", tc.args)
	}
}

// A host that changes between the look and the change is not changed.
func TestThreat86_ChangedHost(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1", disconnected, claimed(infrav1.ClaimBound))
	plan, err := change.Release(change.Situation{Host: host.DeepCopy()}, false, now)
	f.Expect(err).NotTo(HaveOccurred())
	// The host returns while its administrator thinks.
	f.SetConnection(host, infrav1.ConnectionConnected)
	f.Expect(plan.Apply(f.Ctx, f.Admin, false)).To(MatchError(ContainSubstring("has changed since this command looked at it, so nothing was done")))
	f.Refresh(host)
	f.Expect(host.Spec.Fence).To(BeNil())
}

// Without its former machine's host gone, the spare machine would be two hosts.
func TestReplacedHostIsDeleted(t *testing.T) {
	f := newFixture(t)
	replaceable(disconnected)(f)
	_, err := f.run("replace", "h1", "--by", "h2", "--yes")
	f.Expect(err).NotTo(HaveOccurred())
	err = f.Admin.Get(f.Ctx, client.ObjectKey{Namespace: f.Namespace, Name: "h2"}, &infrav1.ElementalHost{})
	f.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
}

// The name of another host, or nothing, confirms nothing.
func TestThreat86_Confirmation(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1", disconnected, claimed(infrav1.ClaimBound))
	for _, f.input = range []string{"", "\n", "y\n", "h2\n"} {
		_, err := f.run("release", "h1")
		f.Expect(err).To(MatchError(ContainSubstring("was not confirmed")))
		f.Refresh(host)
		f.Expect(host.Spec.Fence).To(BeNil())
	}
}

// waiting creates a host that waits for approval, with a key of that number.
func waiting(f *fixture, name string, key int) (*infrav1.ElementalHost, string) {
	fingerprint := fmt.Sprintf("sha256:%064d", key)
	return f.Host(name, pending, func(h *infrav1.ElementalHost) { h.Spec.Identity.KeyFingerprint = fingerprint }), fingerprint
}

func isApproved(f *fixture, host *infrav1.ElementalHost) bool {
	f.T.Helper()
	f.Refresh(host)
	return host.Spec.Approval == infrav1.ApprovalApproved
}

func TestThreat86_Fingerprint(t *testing.T) {
	f := newFixture(t)
	host, fingerprint := waiting(f, "h1", 1)
	_, another := waiting(f, "h2", 2)
	_, err := f.run("approve", "h1", "--fingerprint", another)
	f.Expect(err).To(MatchError(ContainSubstring("its key is " + fingerprint)))
	f.Expect(isApproved(f, host)).To(BeFalse())
	text, err := f.run("approve", "h1", "--fingerprint", strings.ToUpper(strings.TrimPrefix(fingerprint, "sha256:")))
	f.Expect(err).NotTo(HaveOccurred())
	f.expectGolden("change-approve", text)
	f.Expect(isApproved(f, host)).To(BeTrue())

	locked, key := waiting(f, "h3", 3)
	locked.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned}
	f.Expect(f.Admin.Update(context.WithoutCancel(f.Ctx), locked)).To(Succeed())
	_, err = f.run("approve", "h3", "--fingerprint", key)
	f.Expect(err).To(MatchError(ContainSubstring("two machines used its key")))
}

func TestThreat86_ListOfFingerprints(t *testing.T) {
	f := newFixture(t)
	first, a := waiting(f, "h1", 1)
	second, b := waiting(f, "h2", 2)
	stranger, _ := waiting(f, "h3", 3)
	twin, c := waiting(f, "h4", 4)
	waiting(f, "h5", 4)
	f.input = strings.Join([]string{"# rack 1", a, "", strings.TrimPrefix(b, "sha256:"), b, c}, "\n")
	_, err := f.run("approve", "-f", "-")
	f.Expect(err).To(MatchError(ContainSubstring("2 hosts of namespace " + f.Namespace + " have the key " + c)))
	for host, want := range map[*infrav1.ElementalHost]bool{first: true, second: true, stranger: false, twin: false} {
		f.Expect(isApproved(f, host)).To(Equal(want), host.Name)
	}
	f.input = "sha256:abc"
	_, err = f.run("approve", "-f", "-")
	f.Expect(err).To(MatchError(ContainSubstring("line 1: ")))
}
