package plan_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

var noon = metav1.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// onHost returns a cluster whose endpoint is the address of a host.
func onHost(name string, changes ...func(*infrav1.ElementalClusterSpec)) plan.Cluster {
	infra := &infrav1.ElementalCluster{Spec: infrav1.ElementalClusterSpec{
		ControlPlaneEndpoint: infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443},
		ControlPlaneEndpointPolicy: infrav1.ControlPlaneEndpointPolicy{
			Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: name, ChosenAt: noon},
		},
	}}
	for _, change := range changes {
		change(&infra.Spec)
	}
	return plan.Cluster{Infra: infra}
}

func onVIP(distribution infrav1.Distribution, changes ...func(*plan.Cluster)) plan.Cluster {
	c := onHost("h1", func(spec *infrav1.ElementalClusterSpec) {
		spec.ControlPlaneEndpoint.Host = "10.0.0.100"
		spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
			Type: infrav1.EndpointTypeVIP, VIP: &infrav1.EndpointVIP{Address: "10.0.0.100", Distribution: distribution},
		}
	})
	c.Infra.Status.VirtualIP = "10.0.0.100"
	c.KubernetesVersion = "v1.36.3"
	for _, change := range changes {
		change(&c)
	}
	return c
}

// node returns a bound host with an interface. Its bootstrap has succeeded unless a change
// modifies that.
func node(role infrav1.ClaimRole, changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	h := capable(host(infrav1.ApprovalApproved, infrav1.ClaimBound), "Bootstrap", "Reset", "Endpoint", "Files")
	h.Spec.Claim.Role = role
	h.Status.Inventory = &infrav1.HostInventory{NICs: []infrav1.HostNIC{{Name: "eth0", DefaultRoute: true, Addresses: []string{"10.0.0.7/24"}}}}
	is("Bootstrap", infrav1.OperationSucceeded, "id-1")(h)
	for _, change := range changes {
		change(h)
	}
	return h
}

func fresh(h *infrav1.ElementalHost) { h.Status.Operations = nil }
func phase(p infrav1.ClaimPhase) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = p }
}

func former(entries ...infrav1.FormerEndpoint) func(*infrav1.ElementalClusterSpec) {
	return func(spec *infrav1.ElementalClusterSpec) { spec.ControlPlaneEndpointPolicy.FormerEndpoints = entries }
}

func TestEndpointOfAHost(t *testing.T) {
	const initial, controlPlane, worker, none = infrav1.RoleInitialControlPlane, infrav1.RoleControlPlane, infrav1.RoleWorker, infrav1.ClaimRole("")
	plain := protocol.Endpoint{Host: "10.0.0.1", Port: 6443}
	with := func(changes ...func(*protocol.Endpoint)) *protocol.Endpoint {
		out := plain
		for _, change := range changes {
			change(&out)
		}
		return &out
	}
	probe, publish := func(e *protocol.Endpoint) { e.Probe = true }, func(e *protocol.Endpoint) { e.Publish, e.Since = true, noon.UTC() }
	rejects := func(e *protocol.Endpoint) {
		e.Former, e.Reject = []string{"10.0.0.7:6443", "[fd00::7]:16443"}, "10.0.0.7:6443"
	}
	moved := former(
		infrav1.FormerEndpoint{Host: "10.0.0.7", Port: 6443, HostName: "h1", RejectedSince: noon},
		infrav1.FormerEndpoint{Host: "fd00::7", Port: 16443, HostName: "h1", RejectedSince: noon},
	)
	bootstrapped := func(at time.Time) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Status.Conditions = []metav1.Condition{{
				Type: infrav1.BootstrappedCondition, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at),
			}}
		}
	}
	user := func(spec *infrav1.ElementalClusterSpec) { spec.ControlPlaneEndpointPolicy.HostRef = nil }
	for name, tc := range map[string]struct {
		host    *infrav1.ElementalHost
		cluster plan.Cluster
		want    *protocol.Endpoint
	}{
		"worker":                    {node(worker), onHost("h2"), with()},
		"no role":                   {node(none), onHost("h2"), with()},
		"control plane":             {node(controlPlane), onHost("h2"), with(probe)},
		"initial":                   {node(initial), onHost("h2"), with(probe)},
		"endpoint's host":           {node(controlPlane), onHost("h1"), with(probe, publish)},
		"endpoint's host, no role":  {node(none), onHost("h1"), with(publish)},
		"a worker that took it":     {node(worker), onHost("h1"), with()},
		"held":                      {node(controlPlane, phase(infrav1.ClaimHeld)), onHost("h1"), with(probe, publish)},
		"reserved":                  {node(controlPlane, phase(infrav1.ClaimReserved)), onHost("h1"), nil},
		"releasing":                 {node(controlPlane, phase(infrav1.ClaimReleasing)), onHost("h1"), nil},
		"free":                      {node(controlPlane, func(h *infrav1.ElementalHost) { h.Spec.Claim = nil }), onHost("h1"), nil},
		"fenced":                    {node(controlPlane, fenced), onHost("h1"), nil},
		"locked":                    {node(controlPlane, locked), onHost("h1"), nil},
		"pending":                   {node(controlPlane, func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending }), onHost("h1"), nil},
		"being deleted":             {deleted(node(controlPlane)), onHost("h1"), nil},
		"to be bootstrapped":        {node(controlPlane, fresh), onHost("h1"), nil},
		"being bootstrapped":        {node(worker, fresh, is("Bootstrap", infrav1.OperationRunning, "id-1")), onHost("h1"), nil},
		"bootstrap failed":          {node(worker, fresh, is("Bootstrap", infrav1.OperationFailed, "id-1")), onHost("h1"), nil},
		"another claim's bootstrap": {node(worker, fresh, is("Bootstrap", infrav1.OperationSucceeded, "id-0")), onHost("h1"), nil},
		"unknown cluster":           {node(controlPlane), plan.Cluster{}, nil},
		"user's endpoint":           {node(controlPlane), onHost("h1", user), nil},
		"user's endpoint, External": {node(controlPlane), onHost("h1", user, func(s *infrav1.ElementalClusterSpec) {
			s.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeExternal
		}), nil},
		"no type, chosen host":             {node(controlPlane), onHost("h2", func(s *infrav1.ElementalClusterSpec) { s.ControlPlaneEndpointPolicy.Type = "" }), with(probe)},
		"no endpoint yet":                  {node(controlPlane), onHost("h1", func(s *infrav1.ElementalClusterSpec) { s.ControlPlaneEndpoint.Host = "" }), nil},
		"no port":                          {node(worker), onHost("h2", func(s *infrav1.ElementalClusterSpec) { s.ControlPlaneEndpoint.Port = 0 }), with()},
		"another provider's cluster":       {node(controlPlane), plan.Cluster{Infra: &infrav1.ElementalCluster{}}, nil},
		"former host":                      {node(controlPlane), onHost("h2", moved), with(probe, rejects)},
		"former host, held":                {node(controlPlane, phase(infrav1.ClaimHeld)), onHost("h2", moved), with(probe, rejects)},
		"former host, bootstrapped before": {node(controlPlane, bootstrapped(noon.Add(-time.Hour))), onHost("h2", moved), with(probe, rejects)},
		"former host, bootstrapped again": {node(controlPlane, bootstrapped(noon.Add(time.Hour))), onHost("h2", moved), with(probe, rejects, func(e *protocol.Endpoint) {
			e.Reject = ""
		})},
		"another's former host": {node(controlPlane), onHost("h2", former(infrav1.FormerEndpoint{Host: "10.0.0.9", Port: 6443, HostName: "h9", RejectedSince: noon})),
			with(probe, func(e *protocol.Endpoint) { e.Former = []string{"10.0.0.9:6443"} })},
		"not rejected": {node(controlPlane), onHost("h2", former(infrav1.FormerEndpoint{Host: "10.0.0.7", Port: 6443, HostName: "h1"})),
			with(probe, func(e *protocol.Endpoint) { e.Former = []string{"10.0.0.7:6443"} })},
		"endpoint again": {node(controlPlane), onHost("h1", former(infrav1.FormerEndpoint{Host: "10.0.0.1", Port: 6443, HostName: "h1", RejectedSince: noon})),
			with(probe, publish, func(e *protocol.Endpoint) { e.Former = []string{"10.0.0.1:6443"} })},
		"IPv6": {node(worker), onHost("h2", func(s *infrav1.ElementalClusterSpec) { s.ControlPlaneEndpoint.Host = "fd00::1" }),
			with(func(e *protocol.Endpoint) { e.Host = "fd00::1" })},
		"VIP":                       {node(controlPlane), onVIP("Kubeadm"), &protocol.Endpoint{Host: "10.0.0.100", Port: 6443, VIP: true}},
		"VIP, worker":               {node(worker), onVIP("Kubeadm"), &protocol.Endpoint{Host: "10.0.0.100", Port: 6443, VIP: true}},
		"VIP, before the bootstrap": {node(initial, fresh), onVIP("Kubeadm"), &protocol.Endpoint{Host: "10.0.0.100", Port: 6443, VIP: true}},
		"VIP, fenced":               {node(initial, fenced), onVIP("Kubeadm"), nil},
		"VIP, not known":            {node(initial), onVIP("Kubeadm", func(c *plan.Cluster) { c.Infra.Spec.ControlPlaneEndpoint.Host = "" }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(plan.For(tc.host, site, tc.cluster).Desired.Endpoint).To(Equal(tc.want))
		})
	}
}

func TestFilesOfAVirtualAddress(t *testing.T) {
	const initial, controlPlane = infrav1.RoleInitialControlPlane, infrav1.RoleControlPlane
	const kubeadm, k3s, rke2 = "/etc/kubernetes/manifests/", "/var/lib/rancher/k3s/agent/pod-manifests/", "/var/lib/rancher/rke2/agent/pod-manifests/"
	old := func(c *plan.Cluster) { c.KubernetesVersion = "v1.28.9" }
	another := func(c *plan.Cluster) { c.OtherControlPlane = true }
	unpublished := func(c *plan.Cluster) { c.Infra.Status.VirtualIP = "" }
	noInventory := func(h *infrav1.ElementalHost) { h.Status.Inventory = nil }
	const bootstrap, nothing = protocol.OperationBootstrap, protocol.OperationType("")
	for name, tc := range map[string]struct {
		host    *infrav1.ElementalHost
		cluster plan.Cluster
		// path and credential of the only file. If blank, known tells "no file" from
		// "files unknown".
		path, credential string
		known            bool
		operation        protocol.OperationType
	}{
		"initial":              {node(initial, fresh), onVIP("Kubeadm"), kubeadm, "super-admin.conf", true, bootstrap},
		"initial, done":        {node(initial), onVIP("Kubeadm"), kubeadm, "super-admin.conf", true, bootstrap},
		"initial, old version": {node(initial, fresh), onVIP("Kubeadm", old), kubeadm, "/admin.conf", true, bootstrap},
		"initial, another":     {node(initial), onVIP("Kubeadm", another), kubeadm, "/admin.conf", true, bootstrap},
		"joining":              {node(controlPlane, fresh), onVIP("Kubeadm"), kubeadm, "/admin.conf", true, bootstrap},
		"held":                 {node(controlPlane, phase(infrav1.ClaimHeld)), onVIP("Kubeadm"), kubeadm, "/admin.conf", true, nothing},
		"k3s":                  {node(initial, fresh), onVIP("K3s"), k3s, "k3s.yaml", true, bootstrap},
		"RKE2":                 {node(initial, fresh), onVIP("RKE2"), rke2, "rke2.yaml", true, bootstrap},
		"worker":               {node(infrav1.RoleWorker, fresh), onVIP("Kubeadm"), "", "", false, bootstrap},
		"no role":              {node("", fresh), onVIP("Kubeadm"), "", "", false, bootstrap},
		"type Host":            {node(initial, fresh), onHost("h1"), "", "", true, bootstrap},
		"another provider's":   {node(initial, fresh), plan.Cluster{Infra: &infrav1.ElementalCluster{}}, "", "", true, bootstrap},

		// Unknown files neither start a bootstrap nor remove existing files.
		"address not published":     {node(initial, fresh), onVIP("Kubeadm", unpublished), "", "", false, nothing},
		"address is another's":      {node(controlPlane), onVIP("Kubeadm", unpublished), "", "", false, bootstrap},
		"unknown cluster":           {node(initial, fresh), plan.Cluster{}, "", "", false, nothing},
		"unknown cluster, worker":   {node(infrav1.RoleWorker, fresh), plan.Cluster{}, "", "", false, bootstrap},
		"unknown cluster, begun":    {node(initial, fresh, is("Bootstrap", infrav1.OperationRunning, "id-1")), plan.Cluster{}, "", "", false, bootstrap},
		"unknown cluster, done":     {node(initial), plan.Cluster{}, "", "", false, bootstrap},
		"no interface":              {node(initial, fresh, noInventory), onVIP("Kubeadm"), "", "", false, nothing},
		"no interface any more":     {node(initial, noInventory), onVIP("Kubeadm"), "", "", false, bootstrap},
		"no distribution":           {node(initial, fresh), onVIP(""), "", "", false, nothing},
		"no address yet":            {node(initial, fresh), onVIP("Kubeadm", func(c *plan.Cluster) { c.Infra.Spec.ControlPlaneEndpoint.Host = "" }), "", "", false, nothing},
		"agent can't keep files":    {capable(node(initial, fresh), "Bootstrap"), onVIP("Kubeadm"), kubeadm, "super-admin.conf", true, nothing},
		"agent can't, begun":        {capable(node(initial), "Bootstrap"), onVIP("Kubeadm"), kubeadm, "super-admin.conf", true, bootstrap},
		"agent can't, type Host":    {capable(node(initial, fresh), "Bootstrap"), onHost("h1"), "", "", true, bootstrap},
		"no interface, to rebooted": {able(infrav1.ClaimBound, toReboot, func(h *infrav1.ElementalHost) { h.Spec.Claim.Role = initial }), onVIP("Kubeadm"), "", "", false, reboot},
		"releasing":                 {node(initial, phase(infrav1.ClaimReleasing)), onVIP("Kubeadm"), "", "", false, reset},
		"fenced":                    {node(initial, fenced), onVIP("Kubeadm"), "", "", false, nothing},
		"being deleted":             {deleted(node(initial)), onVIP("Kubeadm"), "", "", false, nothing},
		"pending":                   {host(infrav1.ApprovalPending, ""), onVIP("Kubeadm"), "", "", false, nothing},
		"free":                      {host(infrav1.ApprovalApproved, ""), plan.Cluster{}, "", "", false, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := plan.For(tc.host, site, tc.cluster)
			switch {
			case tc.path != "":
				g.Expect(p.Desired.Files).To(HaveLen(1))
				g.Expect(p.Desired.Files[0].Path).To(Equal(tc.path + "kube-vip.yaml"))
				g.Expect(p.Desired.Files[0].Mode).To(BeEquivalentTo(0o600))
				g.Expect(p.Desired.Files[0].Content).To(And(ContainSubstring(tc.credential), ContainSubstring("10.0.0.100")))
			case tc.known:
				g.Expect(p.Desired.Files).To(And(BeEmpty(), Not(BeNil())), "existing files are removed")
			default:
				g.Expect(p.Desired.Files).To(BeNil(), "existing files stay")
			}
			if tc.operation == nothing {
				g.Expect(p.Operation).To(BeNil())
			} else {
				g.Expect(p.Operation).To(HaveField("Type", tc.operation))
			}
		})
	}
}

// A host's plan changes only with parts of its cluster that concern the host.
func TestRevisionFollowsTheEndpoint(t *testing.T) {
	g := NewWithT(t)
	revision := func(c plan.Cluster) string { return plan.For(node(infrav1.RoleWorker), site, c).Revision }
	same := revision(onHost("h2"))
	g.Expect(revision(onHost("h2"))).To(Equal(same))
	g.Expect(revision(onHost("h3"))).To(Equal(same), "only the former and the new endpoint host are concerned")
	g.Expect(revision(onHost("h2", func(s *infrav1.ElementalClusterSpec) {
		s.ControlPlaneEndpointPolicy.HostRef.ChosenAt = metav1.Now()
		s.ControlPlaneEndpointPolicy.Host = &infrav1.EndpointHostPolicy{Failover: infrav1.EndpointFailover{Policy: infrav1.FailoverManual}}
		s.FailureDomains.HostLabel = "zone"
	}))).To(Equal(same))
	for name, change := range map[string]func(*infrav1.ElementalClusterSpec){
		"address": func(s *infrav1.ElementalClusterSpec) { s.ControlPlaneEndpoint.Host = "10.0.0.2" },
		"port":    func(s *infrav1.ElementalClusterSpec) { s.ControlPlaneEndpoint.Port = 7443 },
		"former":  former(infrav1.FormerEndpoint{Host: "10.0.0.9", Port: 6443}),
	} {
		g.Expect(revision(onHost("h2", change))).NotTo(Equal(same), name)
	}
	g.Expect(revision(plan.Cluster{})).NotTo(Equal(same))
}

// A host gets no manifest of kube-vip with an image that the manager does not allow, and
// keeps the manifest that it has.
func TestThreat51_ForeignImage(t *testing.T) {
	g := NewWithT(t)
	policy, err := kubevip.NewImagePolicy([]string{"ghcr.io/kube-vip"}, false)
	g.Expect(err).NotTo(HaveOccurred())
	with := func(image string) plan.Cluster {
		return onVIP("Kubeadm", func(c *plan.Cluster) {
			c.Images, c.Infra.Spec.ControlPlaneEndpointPolicy.VIP.Image = policy, image
		})
	}
	for _, h := range []*infrav1.ElementalHost{node(infrav1.RoleInitialControlPlane, fresh), node(infrav1.RoleControlPlane)} {
		g.Expect(plan.For(h, site, with("evil.example.com/kube-vip:v1")).Desired.Files).To(BeNil(), "unknown files are neither written nor removed")
		g.Expect(plan.For(h, site, with("ghcr.io/kube-vip/kube-vip:v1")).Desired.Files).To(HaveLen(1))
	}
	g.Expect(plan.For(node(infrav1.RoleInitialControlPlane, fresh), site, with("evil.example.com/kube-vip:v1")).Operation).To(BeNil(), "no bootstrap without the address")
}
