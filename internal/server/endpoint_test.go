package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const endpoint = "10.0.0.1:6443"

// infraCluster creates a Cluster and its ElementalCluster whose endpoint is the address of a
// host, and waits until it is in the cache.
func (h *harness) infraCluster(name, hostName string, change ...func(*infrav1.ElementalCluster)) *infrav1.ElementalCluster {
	h.tb.Helper()
	c := &infrav1.ElementalCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: name}},
		Spec:       infrav1.ElementalClusterSpec{ControlPlaneEndpoint: infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}},
	}
	c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{
		Name: hostName, ChosenAt: metav1.NewTime(h.clock.Now().Add(-72 * time.Hour)),
	}
	for _, f := range change {
		f(c)
	}
	owner := h.cluster(name)
	c.OwnerReferences = ownedBy(owner)
	h.must(h.admin.Create(h.tb.Context(), c))
	h.cachedSoon(c)
	return c
}

func vip(c *infrav1.ElementalCluster) {
	c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
		Type: infrav1.EndpointTypeVIP, VIP: &infrav1.EndpointVIP{Address: "10.0.0.1", Distribution: infrav1.DistributionKubeadm},
	}
}

func (h *harness) patchCluster(c *infrav1.ElementalCluster, change func(*infrav1.ElementalCluster)) {
	h.tb.Helper()
	before := c.DeepCopy()
	change(c)
	h.must(h.admin.Patch(h.tb.Context(), c, client.MergeFrom(before)))
}

// member returns an agent of a bootstrapped host of cluster c, and drops the writes so
// far.
func (h *harness) member(token, machine string, role infrav1.ClaimRole) *agent {
	h.tb.Helper()
	a := h.enrolled(token)
	a.bind(machine, role)
	if got := a.reportOperation(protocol.OperationBootstrap, "claim-"+machine, protocol.StateSucceeded); got.status != http.StatusNoContent {
		h.tb.Fatalf("reporting the bootstrap: %d %s", got.status, got.body)
	}
	h.cachedSoon(h.host(a.name))
	h.writes.take()
	return a
}

func (a *agent) bind(machine string, role infrav1.ClaimRole) {
	a.h.tb.Helper()
	a.h.cachedSoon(a.h.patch(a.name, func(host *infrav1.ElementalHost) {
		host.Spec.Claim = &infrav1.HostClaim{ID: "claim-" + machine, ClusterName: "c", MachineName: machine, Phase: infrav1.ClaimBound, Role: role}
	}))
}

// fleet creates a registration and returns a token for several hosts.
func (h *harness) fleet() string {
	h.tb.Helper()
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 100 })
	return token
}

func (a *agent) reportEndpoint(e protocol.EndpointReport) {
	a.h.tb.Helper()
	if got := a.report(protocol.Report{Endpoint: &e}); got.status != http.StatusNoContent {
		a.h.tb.Fatalf("reporting the endpoint: %d %s", got.status, got.body)
	}
}

func probed(of string, reachable bool, seconds int32) protocol.EndpointReport {
	return protocol.EndpointReport{
		Kubeconfigs: of, Probe: &protocol.Probe{Endpoint: of, Reachable: reachable, ForSeconds: seconds},
		APIServer: &protocol.APIServer{Ready: true, ForSeconds: 60, CertificateNames: []string{"kubernetes", "10.0.0.7"}},
	}
}

func TestEndpointIsRecordedByTheManagersClock(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "other")
	a := h.member(token, "m1", infrav1.RoleControlPlane)
	began := h.clock.Now()
	ago := func(seconds int) metav1.Time {
		return metav1.NewTime(began.Add(-time.Duration(seconds) * time.Second).Truncate(time.Second))
	}
	recorded := func() *infrav1.HostEndpoint { return h.host(a.name).Status.Endpoint }

	a.reportEndpoint(probed(endpoint, true, 30))
	is := recorded()
	g.Expect(is.Kubeconfigs).To(Equal(endpoint))
	g.Expect(is.Probe.Result).To(Equal(infrav1.ProbeReachable))
	g.Expect(is.Probe.Since.Time).To(BeTemporally("==", ago(30).Time))
	g.Expect(is.APIServer.Since.Time).To(BeTemporally("==", ago(60).Time))
	g.Expect(is.APIServer.CertificateNames).To(Equal([]string{"10.0.0.7", "kubernetes"}))
	g.Expect(h.writes.take()).To(Equal([]string{"patch ElementalHost/status"}))

	// Repeated twice, at another time and in another order. The server remembers its writes
	// for 30 s, which is long enough for a real cache.
	h.cachedSoon(h.host(a.name))
	h.step(30 * time.Second)
	again := probed(endpoint, true, 90)
	again.APIServer.ForSeconds, again.APIServer.CertificateNames = 0, []string{"10.0.0.7", "kubernetes", "10.0.0.7"}
	a.reportEndpoint(again)
	g.Expect(h.settledWrites()).To(BeEmpty())

	// A changed result has its reported age, but is not older than the previous result.
	a.reportEndpoint(probed(endpoint, false, 10))
	g.Expect(recorded().Probe.Result).To(Equal(infrav1.ProbeUnreachable))
	g.Expect(recorded().Probe.Since.Time).To(BeTemporally("==", ago(-20).Time))
	g.Expect(recorded().APIServer.Since.Time).To(BeTemporally("==", ago(60).Time), "the other result is unchanged")
	h.cachedSoon(h.host(a.name))
	h.step(30 * time.Second)
	a.reportEndpoint(probed(endpoint, true, 80000))
	g.Expect(recorded().Probe.Since.Time).To(BeTemporally("==", ago(-20).Time))
	g.Expect(h.writes.take()).To(HaveLen(2))
}

func TestThreat34_FalseEvidence(t *testing.T) {
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "other")
	lie := probed(endpoint, false, 86400)
	lie.Workload, lie.Rejects = endpoint, "10.0.0.7:6443"

	t.Run("a worker reports only the endpoint it uses", func(t *testing.T) {
		g := NewWithT(t)
		a := h.member(token, "w1", infrav1.RoleWorker)
		a.reportEndpoint(lie)
		g.Expect(h.host(a.name).Status.Endpoint).To(HaveValue(Equal(infrav1.HostEndpoint{Kubeconfigs: endpoint})))
	})
	t.Run("a probe is not older than the choice of the endpoint's host", func(t *testing.T) {
		g := NewWithT(t)
		c := h.infraCluster("d", "other", func(c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt = metav1.NewTime(h.clock.Now().Add(-5 * time.Second).Truncate(time.Second))
		})
		a := h.member(token, "d1", infrav1.RoleControlPlane)
		h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) { host.Spec.Claim.ClusterName = "d" }))
		a.reportEndpoint(lie)
		is := h.host(a.name).Status.Endpoint
		g.Expect(is.Probe.Since.Time).To(BeTemporally("==", c.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt.Time))
		g.Expect(is.Workload).To(BeEmpty(), "only the endpoint's host writes the workload cluster's objects")
		g.Expect(is.Rejects).To(Equal("10.0.0.7:6443"))
	})
	t.Run("a probe of another endpoint is ignored", func(t *testing.T) {
		g := NewWithT(t)
		a := h.member(token, "m2", infrav1.RoleControlPlane)
		a.reportEndpoint(probed("10.0.0.99:6443", false, 10))
		g.Expect(h.host(a.name).Status.Endpoint.Probe).To(BeNil())
	})
	for name, change := range map[string]func(*infrav1.ElementalHost){
		"fenced":    func(host *infrav1.ElementalHost) { host.Spec.Fence = &infrav1.HostFence{Reason: "dead"} },
		"pending":   func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalPending },
		"releasing": releasing,
		"free":      func(host *infrav1.ElementalHost) { host.Spec.Claim = nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := h.member(token, "m-"+name, infrav1.RoleControlPlane)
			h.cachedSoon(h.patch(a.name, change))
			a.reportEndpoint(lie)
			g.Expect(h.settledWrites()).To(BeEmpty())
			g.Expect(h.host(a.name).Status.Endpoint).To(BeNil())
		})
	}
	t.Run("locked", func(t *testing.T) {
		g := NewWithT(t)
		a := h.member(token, "m-locked", infrav1.RoleControlPlane)
		h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) { host.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} }))
		g.Expect(a.report(protocol.Report{Endpoint: &lie}).problem().Type).To(Equal(protocol.ProblemLocked))
		g.Expect(h.host(a.name).Status.Endpoint).To(BeNil())
	})
}

func TestEndpointOfOtherTypes(t *testing.T) {
	h := start(t)
	token := h.fleet()
	infra := h.infraCluster("c", "other")
	a := h.member(token, "m1", infrav1.RoleControlPlane)
	all := probed(endpoint, true, 1)
	all.Message, all.Rejects = "could not", "10.0.0.7:6443"
	recorded := func() *infrav1.HostEndpoint { return h.host(a.name).Status.Endpoint }
	var owners []metav1.OwnerReference
	t.Run("endpoint's own host", func(t *testing.T) {
		h.patchCluster(infra, func(c *infrav1.ElementalCluster) { c.Spec.ControlPlaneEndpointPolicy.HostRef.Name = a.name })
		h.cachedSoon(infra)
		published := all
		published.Workload = endpoint
		a.reportEndpoint(published)
		NewWithT(t).Expect(recorded().Workload).To(Equal(endpoint))
	})
	t.Run("unknown cluster", func(t *testing.T) {
		g := NewWithT(t)
		owners = infra.OwnerReferences
		h.patchCluster(infra, func(c *infrav1.ElementalCluster) { c.OwnerReferences = nil })
		h.cachedSoon(infra)
		h.step(time.Minute)
		a.reportEndpoint(probed("10.0.0.99:6443", false, 10))
		g.Expect(recorded().Probe.Endpoint).To(Equal("10.0.0.99:6443"), "it is accepted while the cluster is unknown")
	})
	t.Run("VIP", func(t *testing.T) {
		g := NewWithT(t)
		h.patchCluster(infra, func(c *infrav1.ElementalCluster) {
			c.OwnerReferences = owners
			vip(c)
		})
		h.cachedSoon(infra)
		a.reportEndpoint(all)
		g.Expect(recorded()).To(HaveValue(Equal(infrav1.HostEndpoint{Kubeconfigs: endpoint, Message: "could not"})))
	})
	t.Run("user's", func(t *testing.T) {
		g := NewWithT(t)
		h.patchCluster(infra, func(c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{}
		})
		h.cachedSoon(infra)
		a.reportEndpoint(all)
		g.Expect(recorded()).To(BeNil())
	})
	t.Run("blank", func(t *testing.T) {
		g := NewWithT(t)
		h.patchCluster(infra, vip)
		h.cachedSoon(infra)
		a.reportEndpoint(all)
		g.Expect(recorded()).NotTo(BeNil())
		a.reportEndpoint(protocol.EndpointReport{})
		g.Expect(recorded()).To(BeNil())
	})
}

func TestEndpointIsRemovedWithTheClaim(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "other")
	a := h.member(token, "m1", infrav1.RoleControlPlane)
	a.reportEndpoint(probed(endpoint, true, 1))
	g.Expect(h.host(a.name).Status.Endpoint).NotTo(BeNil())
	h.cachedSoon(h.patch(a.name, releasing))
	h.writes.take()
	g.Expect(a.reportOperation(protocol.OperationReset, "claim-m1", protocol.StateFailed).status).To(Equal(http.StatusNoContent))
	g.Expect(h.host(a.name).Status.Endpoint).To(BeNil())
	g.Expect(h.writes.take()).To(Equal([]string{"patch ElementalHost/status"}), "one write has all facts")
}

func TestFlappingEvidenceIsDeferred(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "other")
	a := h.member(token, "m1", infrav1.RoleControlPlane)
	result := func() infrav1.ProbeResult { return h.host(a.name).Status.Endpoint.Probe.Result }

	a.reportEndpoint(probed(endpoint, true, 0))
	g.Expect(h.settledWrites()).To(HaveLen(1), "the first is written at once")
	for i := range 5 {
		a.reportEndpoint(probed(endpoint, i%2 != 0, 0))
	}
	g.Expect(h.settledWrites()).To(BeEmpty())
	h.step(time.Second)
	g.Eventually(result, eventually, often).Should(Equal(infrav1.ProbeUnreachable))
	g.Expect(h.settledWrites()).To(HaveLen(1), "of later changes, the newest is written")

	a.reportEndpoint(probed(endpoint, true, 0))
	a.reportEndpoint(probed(endpoint, false, 0))
	h.step(time.Second)
	g.Expect(h.settledWrites()).To(BeEmpty(), "no write if the evidence is unchanged")

	h.step(time.Second)
	a.reportEndpoint(probed(endpoint, true, 0))
	a.reportEndpoint(probed(endpoint, false, 0))
	step := probed(endpoint, false, 0)
	step.Kubeconfigs = "10.0.0.2:6443"
	a.reportEndpoint(step)
	g.Expect(h.host(a.name).Status.Endpoint.Kubeconfigs).To(Equal("10.0.0.2:6443"), "an address is written at once")
	g.Expect(result()).To(Equal(infrav1.ProbeUnreachable), "the evidence is written with it")
	h.step(time.Second)
	g.Expect(h.settledWrites()).To(HaveLen(2))

	a.reportEndpoint(probed(endpoint, true, 0))
	h.writes.take()
	a.reportEndpoint(probed(endpoint, false, 0))
	h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) { host.Spec.Fence = &infrav1.HostFence{Reason: "dead"} }))
	h.step(time.Second)
	g.Expect(h.settledWrites()).To(BeEmpty(), "deferred evidence is checked when it is due")
}

func TestInvalidEndpointReports(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "other")
	a := h.member(token, "m1", infrav1.RoleControlPlane)
	many := `"` + strings.Repeat(`a","`, protocol.MaxDevices) + `a"`
	for _, body := range []string{
		`{"kubeconfigs":"10.0.0.1"}`, `{"kubeconfigs":"https://10.0.0.1:6443"}`, `{"kubeconfigs":"10.0.0.1:0"}`, `{"kubeconfigs":"10.0.0.1:65536"}`,
		`{"kubeconfigs":":6443"}`, `{"kubeconfigs":"fd00::1:6443"}`, `{"kubeconfigs":"[fe80::1%25eth0]:6443"}`, `{"kubeconfigs":"a b:6443"}`,
		`{"kubeconfigs":"10.0.0.1:+1"}`, `{"kubeconfigs":"` + strings.Repeat("a", 520) + `:6443"}`,
		`{"workload":"x"}`, `{"rejects":"x; flush ruleset:6443"}`, `{"probe":{}}`, `{"probe":{"endpoint":"x","reachable":true}}`,
		`{"apiServer":{"certificateNames":[` + many + `]}}`, `{"apiServer":{"certificateNames":[""]}}`,
		`{"apiServer":{"certificateNames":["` + strings.Repeat("a", 254) + `"]}}`, `{"apiServer":{"certificateNames":["a\u0000"]}}`, `[]`,
	} {
		got := a.call(http.MethodPost, protocol.PathReport, `{"endpoint":`+body+`}`)
		g.Expect(got.status).To(Equal(http.StatusBadRequest), "%.80s", body)
		g.Expect(got.problem().Status).To(Equal(http.StatusBadRequest))
		h.step(time.Second) // below the rate limit
	}
	g.Expect(h.writes.take()).To(BeEmpty())

	long := protocol.EndpointReport{Message: strings.Repeat("é", 1000), Probe: &protocol.Probe{
		Endpoint: endpoint, ForSeconds: -5, Message: strings.Repeat("x", 1000),
	}}
	for i := range protocol.MaxDevices {
		name := fmt.Sprintf("%02d.%s", i, strings.Repeat("a", 250))
		if long.APIServer == nil {
			long.APIServer = &protocol.APIServer{ForSeconds: 1 << 30}
		}
		long.APIServer.CertificateNames = append(long.APIServer.CertificateNames, name)
	}
	a.reportEndpoint(long)
	is := h.host(a.name).Status.Endpoint
	g.Expect(len(is.Message)).To(BeNumerically("<=", protocol.MaxMessageBytes), "texts are cut")
	g.Expect(is.Probe.Message).To(HaveLen(protocol.MaxProbeMessageBytes))
	g.Expect(is.Probe.Since.Time).To(BeTemporally("==", h.clock.Now().Truncate(time.Second)))
	g.Expect(is.APIServer.CertificateNames).To(HaveLen(protocol.MaxDevices))
	g.Expect(is.APIServer.Since.Time).To(BeTemporally("==", h.clock.Now().Add(-24*time.Hour).Truncate(time.Second)))
}
