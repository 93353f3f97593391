package plan_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func kubernetes(version, digit string) infrav1.HostBundle {
	return infrav1.HostBundle{Version: version, SHA256: strings.Repeat(digit, 64), SizeBytes: 42, Sources: []string{"manager", "file:/usb/b"}}
}

func withBundle(h *infrav1.ElementalHost) { h.Spec.Bundle = new(kubernetes("v1.36.3", "b")) }

func toUpgradeNode(h *infrav1.ElementalHost) {
	h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{
		ID: "n", Role: infrav1.UpgradeFirstControlPlane, Bundle: kubernetes("v1.37.0", "c"),
		DrainTimeoutSeconds: new(int32(600)), IgnorePreflightErrors: []string{"NumCPU"}, PatchesDirectory: "/etc/kubernetes/patches",
	}
}

func TestNodeUpgrade(t *testing.T) {
	const (
		bound, held, releasing     = infrav1.ClaimBound, infrav1.ClaimHeld, infrav1.ClaimReleasing
		running, succeeded, failed = infrav1.OperationRunning, infrav1.OperationSucceeded, infrav1.OperationFailed
	)
	joined := is("Bootstrap", succeeded, "id-1")
	for name, tc := range map[string]struct {
		host *infrav1.ElementalHost
		want protocol.OperationType
	}{
		"not bootstrapped":              {able(bound, toUpgradeNode), bootstrap},
		"being bootstrapped":            {able(bound, toUpgradeNode, is("Bootstrap", running, "id-1")), bootstrap},
		"bootstrap failed":              {able(bound, toUpgradeNode, is("Bootstrap", failed, "id-1")), bootstrap},
		"bootstrapped for another":      {able(bound, toUpgradeNode, is("Bootstrap", succeeded, "id-0")), bootstrap},
		"bootstrapped":                  {able(bound, toUpgradeNode, joined), nodeUpgrade},
		"running":                       {able(bound, toUpgradeNode, joined, is("NodeUpgrade", running, "n")), nodeUpgrade},
		"succeeded":                     {able(bound, toUpgradeNode, joined, is("NodeUpgrade", succeeded, "n")), bootstrap},
		"failed":                        {able(bound, toUpgradeNode, joined, is("NodeUpgrade", failed, "n")), bootstrap},
		"an earlier one failed":         {able(bound, toUpgradeNode, joined, is("NodeUpgrade", failed, "m")), nodeUpgrade},
		"an earlier one is running":     {able(bound, toUpgradeNode, joined, is("NodeUpgrade", running, "m")), nodeUpgrade},
		"in maintenance":                {able(bound, toUpgradeNode, joined, maintenance), bootstrap},
		"running, then maintenance":     {able(bound, toUpgradeNode, joined, maintenance, is("NodeUpgrade", running, "n")), nodeUpgrade},
		"before a reboot":               {able(bound, toUpgradeNode, toReboot, joined), nodeUpgrade},
		"then a reboot":                 {able(bound, toUpgradeNode, toReboot, joined, is("NodeUpgrade", succeeded, "n")), reboot},
		"reboot in maintenance":         {able(bound, toUpgradeNode, toReboot, joined, maintenance), reboot},
		"before an upgrade of the OS":   {able(bound, toUpgradeNode, toUpgrade, maintenance, joined, is("NodeUpgrade", running, "n")), nodeUpgrade},
		"the agent can't":               {capable(able(bound, toUpgradeNode, joined), "Bootstrap", "Reset", "Bundle"), bootstrap},
		"no Machine":                    {able("", toUpgradeNode), ""},
		"held":                          {able(held, toUpgradeNode, joined, is("NodeUpgrade", running, "n")), ""},
		"released":                      {able(releasing, toUpgradeNode, joined, is("NodeUpgrade", running, "n")), reset},
		"released, reset prevented":     {able(releasing, toUpgradeNode, joined, prevented, is("NodeUpgrade", running, "n")), ""},
		"fenced":                        {able(bound, toUpgradeNode, joined, fenced, is("NodeUpgrade", running, "n")), ""},
		"locked":                        {able(bound, toUpgradeNode, joined, locked), ""},
		"withdrawn while it is running": {able(bound, joined, is("NodeUpgrade", running, "n")), bootstrap},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(operation(tc.host)).To(Equal(tc.want))
		})
	}
	g := NewWithT(t)
	g.Expect(plan.For(able(bound, toUpgradeNode, joined), site, plan.Cluster{}).Operation).To(HaveValue(Equal(protocol.Operation{
		Type: nodeUpgrade, ID: "n", NodeUpgrade: &protocol.NodeUpgrade{
			Role: protocol.UpgradeFirstControlPlane, DrainTimeoutSeconds: 600, IgnorePreflightErrors: []string{"NumCPU"},
			PatchesDirectory: "/etc/kubernetes/patches",
			Bundle:           protocol.Bundle{Version: "v1.37.0", SHA256: strings.Repeat("c", 64), SizeBytes: 42, Sources: []string{"manager", "file:/usb/b"}},
		},
	})))
}

// Another image below a Node needs an agent that says that it can boot one.
func TestNodeUpgradeToAnImage(t *testing.T) {
	g := NewWithT(t)
	h := able(infrav1.ClaimBound, is("Bootstrap", infrav1.OperationSucceeded, "id-1"), func(h *infrav1.ElementalHost) {
		h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: "n", Role: infrav1.UpgradeWorker, OSImage: "oci:os:2", DrainTimeoutSeconds: new(int32(60))}
	})
	g.Expect(plan.For(h, site, plan.Cluster{}).Operation.Type).To(Equal(protocol.OperationBootstrap), "this agent can upgrade Kubernetes only")
	capable(h, "Bootstrap", "NodeImage")
	p := plan.For(h, site, plan.Cluster{})
	g.Expect(p.Operation).To(HaveValue(Equal(protocol.Operation{
		Type: protocol.OperationNodeUpgrade, ID: "n", NodeUpgrade: &protocol.NodeUpgrade{Role: protocol.UpgradeWorker, OSImage: "oci:os:2", DrainTimeoutSeconds: 60},
	})))
	g.Expect(plan.BundleNamed(p, "")).To(BeNil(), "an image needs no bundle")
}

func TestDesiredBundle(t *testing.T) {
	const bound, held, releasing, reserved = infrav1.ClaimBound, infrav1.ClaimHeld, infrav1.ClaimReleasing, infrav1.ClaimReserved
	want := &protocol.Bundle{Version: "v1.36.3", SHA256: strings.Repeat("b", 64), SizeBytes: 42, Sources: []string{"manager", "file:/usb/b"}}
	for name, tc := range map[string]struct {
		host *infrav1.ElementalHost
		has  bool
	}{
		"bound":                 {able(bound, withBundle), true},
		"bound, paused":         {able(bound, withBundle, func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{"cluster.x-k8s.io/paused": ""} }), true},
		"bound, in maintenance": {able(bound, withBundle, maintenance), true},
		"held":                  {able(held, withBundle), true},
		"none":                  {able(bound), false},
		"free":                  {able("", withBundle), false},
		"reserved":              {able(reserved, withBundle), false},
		"releasing":             {able(releasing, withBundle), false},
		"fenced":                {able(bound, withBundle, fenced), false},
		"locked":                {able(bound, withBundle, locked), false},
		"not approved":          {able(bound, withBundle, func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending }), false},
		"being deleted":         {deleted(able(bound, withBundle)), false},
		"the agent can't":       {capable(able(bound, withBundle), "Bootstrap"), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := plan.For(tc.host, site, plan.Cluster{})
			if tc.has {
				g.Expect(p.Desired.Bundle).To(Equal(want))
			} else {
				g.Expect(p.Desired.Bundle).To(BeNil())
			}
		})
	}
}

// Another digest, source or size is another plan: the agent must learn of it at once.
func TestRevisionFollowsTheBundle(t *testing.T) {
	g := NewWithT(t)
	revision := func(change func(*infrav1.HostBundle)) string {
		h := able(infrav1.ClaimBound, withBundle)
		change(h.Spec.Bundle)
		return plan.For(h, site, plan.Cluster{}).Revision
	}
	same := revision(func(*infrav1.HostBundle) {})
	g.Expect(revision(func(*infrav1.HostBundle) {})).To(Equal(same))
	g.Expect(revision(func(b *infrav1.HostBundle) { b.Programs = infrav1.ProgramsKeep })).To(Equal(same), "it is the default")
	for name, change := range map[string]func(*infrav1.HostBundle){
		"digest":  func(b *infrav1.HostBundle) { b.SHA256 = strings.Repeat("d", 64) },
		"sources": func(b *infrav1.HostBundle) { b.Sources = []string{"manager"} },
		"size":    func(b *infrav1.HostBundle) { b.SizeBytes++ },
		"policy":  func(b *infrav1.HostBundle) { b.Programs = infrav1.ProgramsReplace },
	} {
		g.Expect(revision(change)).NotTo(Equal(same), name)
	}
}

func TestBundleNamed(t *testing.T) {
	g := NewWithT(t)
	staged, next := strings.Repeat("b", 64), strings.Repeat("c", 64)
	p := plan.For(able(infrav1.ClaimBound, withBundle, toUpgradeNode, is("Bootstrap", infrav1.OperationSucceeded, "id-1")), site, plan.Cluster{})
	g.Expect(plan.BundleNamed(p, staged)).To(HaveField("Version", "v1.36.3"))
	g.Expect(plan.BundleNamed(p, next)).To(HaveField("Version", "v1.37.0"))
	p.Operation = nil
	g.Expect(plan.BundleNamed(p, next)).To(BeNil())
	for _, other := range []string{"", strings.Repeat("d", 64), strings.ToUpper(staged)} {
		g.Expect(plan.BundleNamed(p, other)).To(BeNil(), other)
		g.Expect(plan.BundleNamed(protocol.Plan{}, other)).To(BeNil(), other)
	}
}
