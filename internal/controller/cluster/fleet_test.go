package cluster_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// failoverAfter is the failover delay of the tests' clusters.
const failoverAfter = 20 * time.Second

// fleet is a running cluster of the control-plane hosts h1 to h3 and the worker h4. Its
// endpoint is h1's address.
type fleet struct {
	*fixture

	hosts    []*infrav1.ElementalHost
	machines map[string]*clusterv1.Machine
	// stopped are hosts whose agents do not run.
	stopped map[string]bool
}

func newFleet(t *testing.T, changes ...func(*clusterv1.Cluster, *infrav1.ElementalCluster)) *fleet {
	t.Helper()
	f := &fleet{machines: map[string]*clusterv1.Machine{}, stopped: map[string]bool{}}
	up := func(c *clusterv1.Cluster, ec *infrav1.ElementalCluster) {
		kubeadm(c, ec)
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443}
		c.Status.Initialization.InfrastructureProvisioned = new(true)
		c.Status.Initialization.ControlPlaneInitialized = new(true)
		ec.Finalizers = []string{infrav1.ClusterFinalizer}
		ec.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
		ec.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
			Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: "h1", ChosenAt: metav1.NewTime(longAgo)},
			Host: &infrav1.EndpointHostPolicy{Failover: infrav1.EndpointFailover{AfterSeconds: new(int32(failoverAfter / time.Second))}},
		}
	}
	f.fixture = newFixture(t, append([]func(*clusterv1.Cluster, *infrav1.ElementalCluster){up}, changes...)...)
	f.controlPlane(nil)
	for i, role := range []infrav1.ClaimRole{infrav1.RoleInitialControlPlane, infrav1.RoleControlPlane, infrav1.RoleControlPlane, infrav1.RoleWorker} {
		f.node(i+1, role)
	}
	f.upToDate("h2")
	f.kubeconfig("c-kubeconfig", "c", "https://10.0.0.1:6443")
	f.setConnectionProbe(yes)
	f.runAgents()
	f.reconcileUntilStable()
	f.Events()
	f.Client.Forget()
	return f
}

// node creates a bootstrapped host and its Machine.
func (f *fleet) node(n int, role infrav1.ClaimRole) *infrav1.ElementalHost {
	f.T.Helper()
	name, machine := fmt.Sprintf("h%d", n), fmt.Sprintf("m%d", n)
	owner, _ := f.Machine("c", machine, func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
		if role != infrav1.RoleWorker {
			controllertest.ControlPlane(o, m)
		}
		o.Finalizers = []string{clusterv1.MachineFinalizer}
	})
	f.machines[name] = owner
	host := f.host(name, fmt.Sprintf("10.0.0.%d", n), func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: machine, ClusterName: "c", MachineName: machine, Phase: infrav1.ClaimBound, Role: role}
		controllertest.SetOperation(&h.Status, infrav1.HostOperation{Type: infrav1.OperationBootstrap, ID: machine, State: infrav1.OperationSucceeded})
		h.Status.Connection.Since = metav1.NewTime(longAgo)
	})
	f.hosts = append(f.hosts, host)
	return host
}

func (f *fleet) hostNamed(name string) *infrav1.ElementalHost {
	f.T.Helper()
	i := slices.IndexFunc(f.hosts, func(h *infrav1.ElementalHost) bool { return h.Name == name })
	f.Expect(i).To(BeNumerically(">=", 0))
	return f.hosts[i]
}

// upToDate makes the host's Machine the only one that is up to date, so that the endpoint
// prefers this host.
func (f *fleet) upToDate(host string) {
	f.T.Helper()
	for name, m := range f.machines {
		status := no
		if name == host {
			status = yes
		}
		controllertest.ChangeStatus(f.Fixture, m, func(m *clusterv1.Machine) {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: clusterv1.MachineUpToDateCondition, Status: status, Reason: "Test"})
		})
	}
}

// runAgents reports what the agents do with their plans. A host reaches the endpoint unless
// the endpoint's host is stopped.
func (f *fleet) runAgents() {
	f.T.Helper()
	f.Refresh(f.infra)
	for _, host := range f.hosts {
		if f.stopped[host.Name] {
			continue
		}
		f.Refresh(host)
		p := plan.For(host, plan.Site{}, plan.Cluster{Infra: f.infra}).Desired.Endpoint
		f.Report(host, func(s *infrav1.ElementalHostStatus) {
			if p == nil {
				s.Endpoint = nil
				return
			}
			now := metav1.NewTime(f.Clock.Now())
			current := net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))
			s.Endpoint = &infrav1.HostEndpoint{Kubeconfigs: current, Rejects: p.Reject}
			if p.Publish {
				s.Endpoint.Workload = current
			}
			if p.Probe {
				s.Endpoint.Probe = &infrav1.EndpointProbe{Endpoint: current, Result: infrav1.ProbeReachable, Since: now}
				if f.stopped[f.infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name] {
					s.Endpoint.Probe.Result = infrav1.ProbeUnreachable
				}
				s.Endpoint.APIServer = &infrav1.HostAPIServer{
					Result: infrav1.ProbeReachable, Since: now, CertificateNames: []string{s.Addresses[0].Address, "kubernetes"},
				}
			}
		})
	}
}

// stop stops hosts. The manager marks them as disconnected.
func (f *fleet) stop(names ...string) {
	f.T.Helper()
	for _, name := range names {
		f.stopped[name] = true
		f.SetConnection(f.hostNamed(name), infrav1.ConnectionDisconnected)
	}
	f.runAgents()
}

// start starts a stopped host.
func (f *fleet) start(name string) {
	f.T.Helper()
	delete(f.stopped, name)
	f.SetConnection(f.hostNamed(name), infrav1.ConnectionConnected)
	f.runAgents()
}

// converge runs manager and agents until both are done. The clock stands still.
func (f *fleet) converge() {
	f.T.Helper()
	for range 4 {
		f.reconcileUntilStable()
		f.runAgents()
	}
	f.reconcileUntilStable()
}

// setConnectionProbe sets the Cluster's condition RemoteConnectionProbe.
func (f *fleet) setConnectionProbe(status metav1.ConditionStatus) {
	f.T.Helper()
	controllertest.ChangeStatus(f.Fixture, f.cluster, func(c *clusterv1.Cluster) {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
			Type: clusterv1.ClusterRemoteConnectionProbeCondition, Status: status, Reason: "Probe", LastTransitionTime: metav1.NewTime(f.Clock.Now()),
		})
	})
}

// kubeconfig creates a kubeconfig Secret of the cluster, as Cluster API does.
func (f *fleet) kubeconfig(name, cluster, server string) {
	f.T.Helper()
	f.Create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
		Type:       clusterv1.ClusterSecretType,
		Data: map[string][]byte{"other": []byte("kept"), "value": fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {server: %q, certificate-authority-data: Y2E=, tls-server-name: kept}
contexts:
- name: admin@c
  context: {cluster: c, user: admin}
current-context: admin@c
users:
- name: admin
  user: {token: kept}
`, server)},
	})
}

// server returns the server of a kubeconfig Secret, and checks that nothing else changed.
func (f *fleet) server(name string) string {
	f.T.Helper()
	kubeconfig := &corev1.Secret{ObjectMeta: f.Meta(name)}
	f.Refresh(kubeconfig)
	f.Expect(kubeconfig.Type).To(Equal(clusterv1.ClusterSecretType))
	f.Expect(kubeconfig.Labels).To(HaveKey(clusterv1.ClusterNameLabel))
	f.Expect(string(kubeconfig.Data["other"])).To(Equal("kept"))
	config, err := clientcmd.Load(kubeconfig.Data["value"])
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(config.Clusters["c"].TLSServerName).To(Equal("kept"))
	f.Expect(config.AuthInfos["admin"].Token).To(Equal("kept"))
	f.Expect(config.CurrentContext).To(Equal("admin@c"))
	return config.Clusters["c"].Server
}

// hooked returns the Machines that carry the endpoint's hook.
func (f *fleet) hooked() []string {
	f.T.Helper()
	var names []string
	for _, host := range f.hosts {
		if m := f.machines[host.Name]; f.Exists(m) {
			if _, has := m.Annotations[infrav1.EndpointHookAnnotation]; has {
				names = append(names, m.Name)
			}
		}
	}
	return names
}

// expectEndpoint checks that all objects have the address of host n as endpoint.
func (f *fleet) expectEndpoint(n int) {
	f.T.Helper()
	f.Refresh(f.infra)
	f.Refresh(f.cluster)
	ip := fmt.Sprintf("10.0.0.%d", n)
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: ip, Port: 6443}))
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name).To(Equal(fmt.Sprintf("h%d", n)))
	f.Expect(f.cluster.Spec.ControlPlaneEndpoint).To(Equal(clusterv1.APIEndpoint{Host: ip, Port: 6443}))
	f.Expect(f.server("c-kubeconfig")).To(Equal("https://" + ip + ":6443"))
}

// lastMove returns the move in status.
func (f *fleet) lastMove() *infrav1.EndpointMove {
	f.T.Helper()
	f.Refresh(f.infra)
	f.Expect(f.infra.Status.Endpoint).NotTo(BeNil())
	f.Expect(f.infra.Status.Endpoint.LastMove).NotTo(BeNil())
	return f.infra.Status.Endpoint.LastMove
}

// deleteControlPlane deletes the KubeadmControlPlane, which waits for its Machines.
func (f *fleet) deleteControlPlane() {
	f.T.Helper()
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: f.Meta("c")}
	controllertest.Change(f.Fixture, kcp, func(k *controlplanev1.KubeadmControlPlane) {
		k.Finalizers = []string{controlplanev1.KubeadmControlPlaneFinalizer}
	})
	f.Delete(kcp)
}
