//go:build embedded

package monitoring_test

import (
	"cmp"
	"flag"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/machines"
)

const (
	namespace = "fleet"
	patience  = 3 * time.Minute
	often     = 500 * time.Millisecond
	hosts     = 6
	nodes     = 4

	provisionedMachines = `sum(elemental_fleet_machines{state="Provisioned"})`
)

// pictures is the folder of the pictures in the documentation. make test-embedded draws into a temporary one.
var pictures = flag.String("pictures", "", "folder to draw pictures of the dashboard into")

// withoutData are the panels that have no series in a fleet in which nothing failed and no endpoint
// moved.
func withoutData() []string {
	return []string{"Failed steps", "Moves of endpoints", "Upgrades of Kubernetes"}
}

// rig is a management cluster with virtual hosts and a Prometheus.
type rig struct {
	*WithT

	t          *testing.T
	admin      client.WithWatch
	machines   *machines.Client
	prometheus *prometheus
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{WithT: NewWithT(t), t: t}
	r.SetDefaultEventuallyTimeout(patience)
	r.SetDefaultEventuallyPollingInterval(often)
	cluster, err := embedded.Start(t.Context(), embedded.Options{
		Alone: true, OneVersion: true, Diagnostics: true, Progress: t.Output(), ManagerArgs: gatewayArgs(t),
	})
	r.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { r.Expect(cluster.Stop()).To(Succeed()) })
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		r.Expect(add(scheme)).To(Succeed())
	}
	r.admin, err = client.NewWithWatch(cluster.Config, client.Options{Scheme: scheme})
	r.Expect(err).NotTo(HaveOccurred())
	r.machines = &machines.Client{Admin: r.admin, Namespace: namespace, Cluster: cluster, Progress: shell.NewProgress(t.Output())}
	r.prometheus = startPrometheus(t, cluster.Managers()[0].Metrics)

	r.Expect(r.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	virtual, err := fleet.New(fleet.Settings{
		Count: hosts, Servers: []string{cluster.AgentURL}, TrustBundle: cluster.CABundle, Token: r.token(),
	})
	r.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { r.Expect(virtual.Close()).To(Succeed()) })
	r.Expect(virtual.PowerOn(t.Context(), 0)).To(Succeed())
	return r
}

// token creates a registration and returns its token.
func (r *rig) token() string {
	registration := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge"}}
	registration.Spec.Token.MaxUses = hosts
	r.Expect(r.admin.Create(r.t.Context(), registration)).To(Succeed())
	r.Eventually(func() (*infrav1.LocalReference, error) {
		err := r.admin.Get(r.t.Context(), client.ObjectKeyFromObject(registration), registration)
		return registration.Status.TokenSecretRef, err
	}).ShouldNot(BeNil())
	secret := &corev1.Secret{}
	r.Expect(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: namespace, Name: registration.Status.TokenSecretRef.Name}, secret)).To(Succeed())
	config, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
	r.Expect(err).NotTo(HaveOccurred())
	return config.Token
}

// live lets machines come and go, and waits until Prometheus knows of it.
func (r *rig) live() {
	ctx := r.t.Context()
	r.eventually(`sum(elemental_fleet_hosts{state=~"Available|PendingApproval"})`, hosts)
	list := &infrav1.ElementalHostList{}
	r.Expect(r.admin.List(ctx, list)).To(Succeed())
	for i := range list.Items {
		h := &list.Items[i]
		before := h.DeepCopy()
		h.Spec.Approval = infrav1.ApprovalApproved
		h.Labels[infrav1.DefaultFailureDomainLabel] = []string{"berlin", "paris"}[i%2]
		r.Expect(r.admin.Patch(ctx, h, client.MergeFrom(before))).To(Succeed())
	}
	r.createKubeconfig("c")
	// A rate shows what happens after the first scrape that knows the counter, so machines come in two groups.
	for i, cluster := range []string{"c", "d"} {
		r.create(cluster, nodes/2)
		// On a fast machine, everything up to here happens between two scrapes.
		r.eventually(provisionedMachines, float64(nodes/2*(i+1)))
	}
	for _, o := range []client.Object{&clusterv1.Machine{}, &infrav1.ElementalMachine{}} {
		o.SetNamespace(namespace)
		o.SetName("c-00000")
		r.Expect(r.admin.Delete(ctx, o)).To(Succeed())
	}
	r.eventually(`sum(elemental_fleet_hosts{state="Available"})`, hosts-nodes+1)
	r.eventually(provisionedMachines, nodes-1)
}

// create creates a cluster with machines, and waits until they are provisioned.
func (r *rig) create(cluster string, count int) {
	r.t.Helper()
	ctx := r.t.Context()
	w, err := r.machines.WatchProvisioned(ctx, cluster)
	r.Expect(err).NotTo(HaveOccurred())
	defer w.Stop()
	r.Expect(r.machines.CreateMachines(ctx, cluster, count)).To(Succeed())
	r.Expect(r.machines.Release(ctx, cluster)).To(Succeed())
	r.Expect(r.machines.AwaitProvisioned(ctx, w, count)).To(Succeed())
}

// eventually waits until an expression has this value.
func (r *rig) eventually(expr string, want float64) {
	r.t.Helper()
	r.Eventually(func() (float64, error) {
		samples, err := r.prometheus.query(r.t.Context(), expr)
		if err != nil || len(samples) != 1 {
			return -1, err
		}
		return samples[0].value, nil
	}).Should(Equal(want), expr)
}

// A real Prometheus answers each query of the dashboard from what a real manager tells of virtual hosts,
// and none of the alerts that need nobody to wait fires.
func TestDashboard(t *testing.T) {
	r := newRig(t)
	began := time.Now()
	r.live()
	for expr, want := range map[string]float64{
		`sum(elemental_fleet_hosts{state="Provisioned"})`:                                                                           nodes - 1,
		`sum(elemental_fleet_failure_domain_hosts{failure_domain=~"berlin|paris"})`:                                                 hosts,
		`sum(elemental_fleet_registration_hosts{registration="fleet/edge"})`:                                                        hosts,
		`sum(elemental_fleet_agents)`:                                                                                               hosts,
		`sum(elemental_machine_placements_total{outcome="HostClaimed"})`:                                                            nodes,
		`sum(elemental_host_operations_total{type="Bootstrap",result="Succeeded"})`:                                                 nodes,
		`sum(elemental_host_operations_total{type="Reset",result="Succeeded"})`:                                                     1,
		`sum(elemental_host_operation_duration_seconds_count{type="Bootstrap"})`:                                                    nodes,
		`sum(elemental_machine_state_duration_seconds_count{state="Bootstrapping"})`:                                                nodes,
		`count(elemental_fleet_registration_token_not_after_seconds - time() > 0)`:                                                  1,
		`sum(elemental_agent_api_enrolments_total{result="accepted"})`:                                                              hosts,
		`min(elemental_agent_api_ca_not_after_seconds) - time() > bool 9 * 365 * 24 * 3600`:                                         1,
		`sum(elemental_fleet_failure_domain_hosts{class="claimed"}) + sum(elemental_fleet_failure_domain_hosts{class="available"})`: hosts,
	} {
		r.eventually(expr, want)
	}
	for title, exprs := range queries(t) {
		for _, expr := range exprs {
			expr = interval(expr)
			answers := func() ([]sample, error) {
				if err := r.reportCertificate("c-00001"); err != nil {
					return nil, err
				}
				return r.prometheus.query(t.Context(), expr)
			}
			if slices.Contains(withoutData(), title) {
				_, err := answers()
				r.Expect(err).NotTo(HaveOccurred(), "%s: %s", title, expr)
				continue
			}
			// A rate needs two scrapes.
			r.Eventually(answers).ShouldNot(BeEmpty(), "%s: %s", title, expr)
		}
	}
	r.drawRows(cmp.Or(*pictures, t.TempDir()), began, time.Now())
	firing, err := r.prometheus.query(t.Context(), `ALERTS{alertstate="firing"}`)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(firing).To(BeEmpty())
}
