package fleet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

const (
	ns = "n"
	// patience is how long a test waits for what must happen.
	patience = time.Minute
)

// create creates an object and waits until the cache has it.
func (f *fixture) create(ctx context.Context, o client.Object) {
	f.Expect(f.memory.Create(ctx, o)).To(Succeed())
	f.Eventually(func() error { return f.memory.Get(ctx, client.ObjectKeyFromObject(o), o) }).WithTimeout(patience).Should(Succeed())
}

// register creates a host as the agent API would.
func (f *fixture) register(ctx context.Context, name string, changes ...func(*infrav1.ElementalHost)) {
	h := controllertest.FreeHost(ns, name, now)
	h.Spec.RegistrationRef = &infrav1.LocalReference{Name: "r"}
	h.Status.Agent = &infrav1.HostAgent{Version: "v1.0.0", Capabilities: []string{"Bootstrap"}}
	for _, change := range changes {
		change(h)
	}
	hoststatus.Update(h, metav1.NewTime(now))
	f.create(ctx, h)
}

func labelled(key, value string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) { h.Labels = map[string]string{key: value} }
}

func away(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected }

// The leader counts what there is now; other replicas count nothing.
func TestCounts(t *testing.T) {
	f, ctx := newFixture(t, ""), t.Context()
	f.Expect(fleet.Register(ctx, f.options(""))).To(MatchError(ContainSubstring("registering metrics")))
	f.create(ctx, &infrav1.ElementalCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}},
		Status:     infrav1.ElementalClusterStatus{KubeconfigNotAfter: metav1.NewTime(now.Add(time.Hour))},
		Spec:       infrav1.ElementalClusterSpec{FailureDomains: infrav1.FailureDomainSource{HostLabel: "rack"}},
	})
	f.create(ctx, &infrav1.ElementalRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "r"},
		Status:     infrav1.ElementalRegistrationStatus{TokenExpiresAt: metav1.NewTime(now)},
	})
	f.create(ctx, &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "without-token"}})
	m := f.machine("m", "NoSuitableHost")
	f.create(ctx, m)
	f.register(ctx, "free", labelled(infrav1.DefaultFailureDomainLabel, "berlin"))
	f.register(ctx, "away", labelled("rack", "7"), away)
	f.register(ctx, "serviced", labelled("rack", "7"), away, func(h *infrav1.ElementalHost) {
		h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"}
	})
	f.register(ctx, "taken", labelled("rack", "7"), func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound}
		h.Status.Agent.Version = "v0.9.0"
		h.Status.Certificates = []infrav1.HostCertificate{
			{Name: "admin.conf", NotAfter: metav1.NewTime(now.Add(2 * time.Hour))}, {Name: "pki/ca.crt", NotAfter: metav1.NewTime(now)},
		}
	})
	f.register(ctx, "stranger", func(h *infrav1.ElementalHost) {
		h.Spec.Approval, h.Spec.RegistrationRef = infrav1.ApprovalPending, nil
	})
	f.register(ctx, "cordoned", func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "burn-in"} })

	const hosts = "elemental_fleet_hosts"
	f.Expect(f.series(hosts)).To(BeEmpty())
	close(f.elected)
	f.Expect(f.series(hosts)).To(Equal(map[string]float64{
		"Available": 1, "AgentDisconnected": 1, "Maintenance": 1, "Bootstrapping": 1, "PendingApproval": 1, "Cordoned": 1, "Provisioned": 0,
	}))
	f.Expect(f.series("elemental_fleet_unavailable_hosts")).To(Equal(map[string]float64{
		"AgentDisconnected": 1, "Maintenance": 1, "Claimed": 1, "PendingApproval": 1, "Cordoned": 1,
	}))
	domains := f.series("elemental_fleet_failure_domain_hosts")
	for key, n := range domains {
		if n == 0 {
			delete(domains, key)
		}
	}
	f.Expect(domains).To(Equal(map[string]float64{
		"available berlin": 1, "disconnected 7": 1, "maintenance 7": 1, "claimed 7": 1, "unapproved none": 1, "unavailable none": 1,
	}))
	f.Expect(f.series("elemental_fleet_registration_hosts")).To(HaveKeyWithValue("claimed n/r", 1.0))
	f.Expect(f.series("elemental_fleet_registration_hosts")).To(HaveKeyWithValue("unapproved none", 1.0))
	f.Expect(f.series("elemental_fleet_registration_hosts")).To(HaveKeyWithValue("disconnected none", 0.0))
	f.Expect(f.series("elemental_fleet_agents")).To(Equal(map[string]float64{"v1.0.0": 4, "v0.9.0": 1}))
	f.Expect(f.series("elemental_fleet_machines")).To(Equal(map[string]float64{"NoSuitableHost": 1}))
	f.Expect(f.series("elemental_fleet_registration_token_not_after_seconds")).To(Equal(map[string]float64{"n/r": float64(now.Unix())}))
	f.Expect(f.series("elemental_fleet_certificate_not_after_seconds")).To(Equal(map[string]float64{"n/c": float64(now.Unix() + 7200)}))
	f.Expect(f.series("elemental_fleet_kubeconfig_not_after_seconds")).To(Equal(map[string]float64{"n/c": float64(now.Unix() + 3600)}))
	problems, err := testutil.GatherAndLint(f.registry)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(problems).To(BeEmpty())

	f.Expect(f.memory.Delete(ctx, m)).To(Succeed())
	f.Eventually(func() map[string]float64 { return f.series("elemental_fleet_machines") }).WithTimeout(patience).Should(BeEmpty())
}

// Names of failure domains, registrations and versions are bounded, and no host is lost.
func TestThreat74_LabelsAreBounded(t *testing.T) {
	f, ctx := newFixture(t, "ours"), t.Context()
	close(f.elected)
	watched := func(h *infrav1.ElementalHost) { h.Labels = map[string]string{clusterv1.WatchLabel: "ours"} }
	const fleetSize = 130
	for i := range fleetSize {
		f.register(ctx, fmt.Sprintf("h%03d", i), watched, func(h *infrav1.ElementalHost) {
			h.Labels[infrav1.DefaultFailureDomainLabel] = fmt.Sprintf("site-%03d", i)
			h.Spec.RegistrationRef.Name = fmt.Sprintf("r%03d", i)
			h.Status.Agent.Version = fmt.Sprintf("v1.0.%d", i)
			if i >= fleetSize-2 {
				h.Status.Agent.Version = "v2.0.0"
			}
		})
	}
	f.register(ctx, "of-another-manager")
	sites := f.series("elemental_fleet_failure_domain_hosts")
	f.Expect(sites).To(HaveLen(101 * 6))
	f.Expect(sites).To(HaveKeyWithValue("available site-099", 1.0))
	f.Expect(sites).To(HaveKeyWithValue("available other", 30.0))
	f.Expect(f.series("elemental_fleet_registration_hosts")).To(HaveKeyWithValue("available other", 30.0))
	versions := f.series("elemental_fleet_agents")
	f.Expect(versions).To(HaveLen(21))
	f.Expect(versions).To(HaveKeyWithValue("v2.0.0", 2.0), "the version of most hosts has its series")
	f.Expect(versions).To(HaveKeyWithValue("other", fleetSize-2-19.0))
	f.Expect(f.series("elemental_fleet_hosts")).To(Equal(map[string]float64{"Available": fleetSize, "Provisioned": 0}))
}

// BenchmarkScrape measures one scrape of the fleet's metrics.
func BenchmarkScrape(b *testing.B) {
	for _, size := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("hosts=%d", size), func(b *testing.B) {
			memory := controllertest.NewMemory(b, scheme(b), nil)
			memory.AddFleet(b, ns, size, func(i int, h *infrav1.ElementalHost) {
				h.Labels[infrav1.DefaultFailureDomainLabel] = fmt.Sprintf("site-%03d", i%200)
			})
			elected := make(chan struct{})
			close(elected)
			registry := prometheus.NewRegistry()
			if err := fleet.Register(b.Context(), fleet.Options{
				Reader: memory, Informers: memory.Cache, Elected: elected, Clock: clock.RealClock{}, Metrics: registry,
			}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
