//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

const (
	// adminConfig is kubeadm's kubeconfig on control-plane hosts. It names the endpoint.
	adminConfig = "/etc/kubernetes/admin.conf"
	// leaseInterval is how often a kubelet renews its Lease.
	leaseInterval = 10 * time.Second
)

// observers notice a fault as users of the cluster do: a client outside the site, a client on a
// worker, and the worker's kubelet.
type observers struct {
	outside, worker *caller
	kubelet         *renewals
}

// observe starts observers. Another host than the affected one asks for the kubelet's Lease.
func (w workload) observe(ctx context.Context, site *remoteSite, affected *infrav1.ElementalHost) *observers {
	GinkgoHelper()
	worker, asked := w.hostsOf(ctx, false)[0], w.hostsOf(ctx, true)[0]
	if asked.Name == affected.Name {
		asked = w.hostsOf(ctx, true)[1]
	}
	return &observers{
		outside: w.call(ctx, time.Second),
		worker:  callOn(ctx, site.box(&worker), readyPath, requestTimeout),
		kubelet: watchRenewals(ctx, site.box(&asked), worker.Name),
	}
}

// expectServed stops the observers and checks how long each was not served.
func (o *observers) expectServed(within time.Duration) {
	GinkgoHelper()
	for name, c := range map[string]*caller{"outside the site": o.outside, "on the worker": o.worker} {
		c.stop()
		fmt.Printf("  client %s:\n", name)
		Expect(c.longestOutage()).To(BeNumerically("<", within), "client %s", name)
	}
	Expect(o.kubelet.longestGap()).To(BeNumerically("<", leaseInterval+within), "the worker's kubelet")
}

// hostsOf returns the cluster's control-plane hosts, or its workers.
func (w workload) hostsOf(ctx context.Context, controlPlane bool) []infrav1.ElementalHost {
	GinkgoHelper()
	var out []infrav1.ElementalHost
	for _, host := range w.claimed(ctx) {
		if host.Spec.Claim.Role.IsControlPlane() == controlPlane {
			out = append(out, host)
		}
	}
	Expect(out).NotTo(BeEmpty())
	return out
}

// callOn starts a caller on a host of a cluster, which uses the kubelet's kubeconfig.
func callOn(ctx context.Context, box *engine.Host, path string, timeout time.Duration) *caller {
	GinkgoHelper()
	return startCaller(ctx, time.Second, func(ctx context.Context) (string, error) {
		_, err := box.Exec(ctx, "kubectl", "--kubeconfig", "/etc/kubernetes/kubelet.conf", "--request-timeout", timeout.String(), "get", "--raw", path)
		return "", err
	})
}

// callPatientlyOnWorker starts such a caller on a worker, none of whose calls may fail.
func (w workload) callPatientlyOnWorker(ctx context.Context, site *remoteSite) *caller {
	GinkgoHelper()
	return callOn(ctx, site.box(&w.hostsOf(ctx, false)[0]), versionPath, patientTimeout)
}

// renewals are the times at which a kubelet has renewed its Lease.
type renewals struct {
	mu   sync.Mutex
	at   []time.Time
	stop func()
}

// watchRenewals asks a control-plane host for a Node's Lease each second.
func watchRenewals(ctx context.Context, box *engine.Host, node string) *renewals {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	r := &renewals{}
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			if at, err := renewedAt(ctx, box, node); err == nil {
				r.add(at)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	DeferCleanup(r.stop)
	return r
}

// renewedAt returns when a Node's Lease was renewed, as a control-plane host of its cluster knows.
func renewedAt(ctx context.Context, box *engine.Host, node string) (time.Time, error) {
	out, err := box.Exec(ctx, "kubectl", "--kubeconfig", adminConfig, "--request-timeout", requestTimeout.String(),
		"--namespace", "kube-node-lease", "get", "lease", node, "--output", "jsonpath={.spec.renewTime}")
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339, strings.TrimSpace(out))
}

func (r *renewals) add(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.at) == 0 || at.After(r.at[len(r.at)-1]) {
		r.at = append(r.at, at)
	}
}

// longestGap stops the observation, and returns and prints the longest time between two renewals.
func (r *renewals) longestGap() time.Duration {
	GinkgoHelper()
	r.stop()
	Expect(len(r.at)).To(BeNumerically(">", 1), "too few renewals were seen")
	longest := time.Duration(0)
	for i := range r.at[1:] {
		longest = max(longest, r.at[i+1].Sub(r.at[i]))
	}
	fmt.Printf("  kubelet on the worker: %d renewals, longest gap %.1f s\n", len(r.at), longest.Seconds())
	return longest
}

// specs returns what nobody may edit because a host fails: the specs of the Cluster, the
// ElementalCluster and the Machines.
func (w workload) specs(ctx context.Context) string {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
	machines := &clusterv1.MachineList{}
	Expect(management.List(ctx, machines, w.inCluster()...)).To(Succeed())
	specs := map[string]any{"Cluster": cluster.Spec, "ElementalCluster": w.infra(ctx).Spec}
	for _, machine := range machines.Items {
		specs["Machine "+machine.Name] = machine.Spec
	}
	text, err := json.Marshal(specs)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// expectReached checks for a time that Cluster API reaches the cluster.
func (w workload) expectReached(ctx context.Context, lasting time.Duration) {
	GinkgoHelper()
	Consistently(func() string { return w.status(ctx, clusterv1.ClusterRemoteConnectionProbeCondition) }).
		WithContext(ctx).WithTimeout(lasting).WithPolling(time.Second).Should(Equal("True"))
}

// tunnelMessage returns the message of the cluster's condition TunnelReady if it is True.
func (w workload) tunnelMessage(ctx context.Context) string {
	GinkgoHelper()
	condition := findCondition(w.infra(ctx).Status.Conditions, infrav1.TunnelReadyCondition)
	if condition.Status != "True" {
		return ""
	}
	return condition.Message
}

// scaleManager sets the replicas of the manager and waits until they are there.
func scaleManager(ctx context.Context, replicas int) {
	GinkgoHelper()
	manager := managerDeployment(ctx)
	kubectl(ctx, "--namespace", manager.Namespace, "scale", "deployment", manager.Name, fmt.Sprintf("--replicas=%d", replicas))
	kubectl(ctx, "--namespace", manager.Namespace, "rollout", "status", "deployment", manager.Name, "--timeout", "3m")
	Eventually(func() string {
		return kubectl(ctx, "--namespace", manager.Namespace, "get", "pods", "--selector", clusterv1.ProviderNameLabel+"=infrastructure-elemental", "--output", "name")
	}).WithTimeout(3 * time.Minute).Should(WithTransform(func(out string) int { return len(strings.Fields(out)) }, Equal(replicas)))
}

// deleteInSite deletes objects of the workload cluster and waits until they are gone. Their Pods end
// on all hosts before, which takes minutes on a machine that is busy. Nothing is measured here.
func (w workload) deleteInSite(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	c := w.client(ctx)
	for _, object := range objects {
		Expect(c.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(func() bool { return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(object), object)) }).
			WithTimeout(10*time.Minute).Should(BeTrue(), object.GetName())
	}
}
