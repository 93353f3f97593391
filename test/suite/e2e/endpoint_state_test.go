//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// endpoint is a control plane endpoint that is a host's address.
type endpoint struct {
	// address has no port; host and machine are names of objects.
	address, host, machine string
	box                    *engine.Host
}

func (e endpoint) hostPort() string { return e.address + ":6443" }

func (w workload) infra(ctx context.Context) *infrav1.ElementalCluster {
	GinkgoHelper()
	cluster := &infrav1.ElementalCluster{}
	Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
	return cluster
}

func (w workload) endpoint(ctx context.Context) endpoint {
	GinkgoHelper()
	cluster := w.infra(ctx)
	Expect(cluster.Spec.ControlPlaneEndpointPolicy.HostRef).NotTo(BeNil())
	host := &infrav1.ElementalHost{}
	key := client.ObjectKey{Namespace: namespace, Name: cluster.Spec.ControlPlaneEndpointPolicy.HostRef.Name}
	Expect(management.Get(ctx, key, host)).To(Succeed())
	Expect(host.Spec.Claim).NotTo(BeNil())
	return endpoint{
		address: cluster.Spec.ControlPlaneEndpoint.Host, host: host.Name, machine: host.Spec.Claim.MachineName, box: boxOf(host),
	}
}

// moves returns how often the endpoint has moved.
func (w workload) moves(ctx context.Context) int64 {
	GinkgoHelper()
	if status := w.infra(ctx).Status.Endpoint; status != nil {
		return status.Moves
	}
	return 0
}

// endpointReason returns the reason of ControlPlaneEndpointReady.
func (w workload) endpointReason(ctx context.Context) string {
	GinkgoHelper()
	condition := meta.FindStatusCondition(w.infra(ctx).Status.Conditions, infrav1.ControlPlaneEndpointReadyCondition)
	if condition == nil {
		return ""
	}
	return condition.Reason
}

// clusterState is the state that must not change while a cluster is healthy.
type clusterState struct {
	endpoint, inCluster, inSecret, host string
	moves                               int64
	machines                            string
}

func (w workload) state(ctx context.Context) clusterState {
	GinkgoHelper()
	infra, cluster := w.infra(ctx), &clusterv1.Cluster{}
	Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
	return clusterState{
		endpoint: infra.Spec.ControlPlaneEndpoint.Host, host: infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name,
		inCluster: cluster.Spec.ControlPlaneEndpoint.String(), inSecret: server(w.kubeconfig(ctx)),
		moves: w.moves(ctx), machines: fmt.Sprint(w.machines(ctx)),
	}
}

// kubeconfig returns the kubeconfig that Cluster API uses.
func (w workload) kubeconfig(ctx context.Context) []byte {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(management.Get(ctx, client.ObjectKey{Namespace: w.namespace(), Name: w.Name + "-kubeconfig"}, secret)).To(Succeed())
	return secret.Data["value"]
}

// server returns the host:port in a kubeconfig.
func server(kubeconfig []byte) string {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return err.Error()
	}
	return strings.TrimPrefix(config.Host, "https://")
}

// controlPlanes returns the names of the cluster's control-plane Machines by UID.
func (w workload) controlPlanes(ctx context.Context) map[types.UID]string {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(management.List(ctx, list, append(w.inCluster(), client.HasLabels{clusterv1.MachineControlPlaneLabel})...)).To(Succeed())
	out := map[types.UID]string{}
	for _, m := range list.Items {
		out[m.UID] = m.Name
	}
	return out
}

// claimed returns the hosts that are bound to Machines of the cluster.
func (w workload) claimed(ctx context.Context) []infrav1.ElementalHost {
	GinkgoHelper()
	var out []infrav1.ElementalHost
	for _, host := range elementalHosts(ctx) {
		if c := host.Spec.Claim; c != nil && c.ClusterName == w.Name && c.Phase == infrav1.ClaimBound {
			out = append(out, host)
		}
	}
	return out
}

// expectProbed waits until the given number of control planes report that they reach the endpoint
// and that their own API servers are ready.
func (w workload) expectProbed(ctx context.Context, count int) {
	GinkgoHelper()
	at := w.endpoint(ctx).hostPort()
	Eventually(func(g Gomega) {
		probing := 0
		for _, host := range w.claimed(ctx) {
			if !host.Spec.Claim.Role.IsControlPlane() {
				continue
			}
			g.Expect(host.Status.Endpoint).NotTo(BeNil(), host.Name)
			g.Expect(host.Status.Endpoint.Probe).To(HaveValue(And(HaveField("Endpoint", at), HaveField("Result", infrav1.ProbeReachable))), host.Name)
			g.Expect(host.Status.Endpoint.APIServer).To(HaveValue(HaveField("Result", infrav1.ProbeReachable)), host.Name)
			probing++
		}
		g.Expect(probing).To(Equal(count))
	}).WithTimeout(2 * time.Minute).Should(Succeed())
}

// expectFollowed waits until the last move is complete and every host of the cluster reports that
// it uses the endpoint.
func (w workload) expectFollowed(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		infra := w.infra(ctx)
		followed := meta.FindStatusCondition(infra.Status.Conditions, infrav1.ControlPlaneEndpointFollowedCondition)
		g.Expect(followed).To(HaveValue(HaveField("Reason", infrav1.EndpointFollowedReason)))
		if status := infra.Status.Endpoint; status != nil && status.LastMove != nil {
			g.Expect(status.LastMove.CompletedAt.IsZero()).To(BeFalse(), "%+v", status.LastMove)
		}
		at := w.endpoint(ctx)
		for _, host := range w.claimed(ctx) {
			g.Expect(host.Status.Endpoint).To(HaveValue(HaveField("Kubeconfigs", at.hostPort())), host.Name)
		}
		cluster := &clusterv1.Cluster{}
		g.Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
		g.Expect(cluster.Spec.ControlPlaneEndpoint.String()).To(Equal(at.hostPort()))
		g.Expect(server(w.kubeconfig(ctx))).To(Equal(at.hostPort()))
	}).WithTimeout(moveTimeout).Should(Succeed())
	if status := w.infra(ctx).Status.Endpoint; status != nil && status.LastMove != nil {
		m := status.LastMove
		fmt.Printf("  %s: %s -> %s, complete after %.0f s\n", m.Cause, m.From, m.To, m.CompletedAt.Sub(m.StartedAt.Time).Seconds())
	}
}

// expectWorkersFollow checks the kubeconfigs on the workers and the Leases that their kubelets
// have renewed since.
func (w workload) expectWorkersFollow(ctx context.Context) {
	GinkgoHelper()
	at, c, began := w.endpoint(ctx), w.client(ctx), time.Now()
	for _, worker := range w.workers(ctx) {
		Eventually(func(g Gomega) {
			servers, err := worker.box.Exec(ctx, "grep", "server:", "/etc/kubernetes/kubelet.conf")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(strings.TrimSpace(servers)).To(Equal("server: https://" + at.hostPort()))
			lease := &coordinationv1.Lease{}
			g.Expect(c.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: worker.host}, lease)).To(Succeed())
			g.Expect(lease.Spec.RenewTime.Time).To(BeTemporally(">", began), worker.host)
			node := &corev1.Node{}
			g.Expect(c.Get(ctx, client.ObjectKey{Name: worker.host}, node)).To(Succeed())
			g.Expect(ready(node)).To(BeTrue(), worker.host)
		}).WithTimeout(2 * time.Minute).Should(Succeed())
	}
}

// expectWorkers waits until the given number of workers run.
func (w workload) expectWorkers(ctx context.Context, count int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &clusterv1.MachineList{}
		g.Expect(management.List(ctx, list, append(w.inCluster(), client.HasLabels{clusterv1.MachineDeploymentNameLabel})...)).To(Succeed())
		g.Expect(list.Items).To(HaveLen(count))
		g.Expect(list.Items).To(HaveEach(HaveField("Status.Phase", "Running")))
	}).WithTimeout(provisionTimeout).Should(Succeed())
}

// expectMachineDeleted waits until a Machine is deleted.
func (w workload) expectMachineDeleted(ctx context.Context, machine string) {
	GinkgoHelper()
	Eventually(func() bool {
		err := management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machine}, &clusterv1.Machine{})
		return apierrors.IsNotFound(err)
	}).WithTimeout(provisionTimeout).Should(BeTrue(), "Machine %s", machine)
}
