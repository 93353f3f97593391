package endpoint

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
)

// releaseTimeoutSeconds is how long the deletion of a machine waits for a disconnected
// host.
const releaseTimeoutSeconds = 60

// workload is a workload cluster.
type workload struct {
	name string
	// user is the user's own endpoint. It is blank if the endpoint follows a host.
	user string
	// controlPlanes and workers are the desired numbers; made counts all machines so far.
	controlPlanes, workers, made int
	// selector selects the hosts of the control plane; nil allows any. workerZone is the
	// failure domain of the workers; blank allows any.
	selector   *infrav1.HostSelector
	workerZone string
	// initialized is true once the first control plane was bootstrapped.
	initialized bool
	// objects has the endpoints in cluster-info, kubeadm-config and kube-proxy; since has
	// the times of their last changes.
	objects [3]string
	since   [3]time.Time
	// connection is the endpoint that Cluster API's cache of clients uses as long as it
	// answers; connected reports whether it answers.
	connection string
	connected  bool
}

// reconcileCluster acts like Cluster API's controllers for a cluster and its machines.
func (s *simulation) reconcileCluster(c *workload) {
	s.copyEndpoint(c)
	s.copyFailureDomains(c)
	s.connect(c)
	for _, m := range s.machines(c) {
		if m.DeletionTimestamp.IsZero() {
			s.provision(c, m)
		} else {
			s.terminate(c, m)
		}
	}
	s.freeHosts(c)
	s.controlPlane(c)
	s.deployment(c)
}

func (s *simulation) machines(c *workload) []*clusterv1.Machine {
	return slices.DeleteFunc(all[*clusterv1.Machine](s.state), func(m *clusterv1.Machine) bool { return m.Spec.ClusterName != c.name })
}

// hostOf returns the host that a Machine has claimed or is releasing, or nil.
func (s *simulation) hostOf(machine string) *infrav1.ElementalHost {
	for _, o := range all[*infrav1.ElementalHost](s.state) {
		if o.Spec.Claim != nil && o.Spec.Claim.MachineName == machine {
			return o
		}
	}
	return nil
}

// copyEndpoint copies the endpoint to the Cluster once, and makes the kubeconfig
// Secret from it.
func (s *simulation) copyEndpoint(c *workload) {
	s.T.Helper()
	infra, ok := find[*infrav1.ElementalCluster](s.state, c.name)
	s.Expect(ok).To(BeTrue())
	is, ok := find[*clusterv1.Cluster](s.state, c.name)
	s.Expect(ok).To(BeTrue())
	if is.Spec.ControlPlaneEndpoint.IsValid() || infra.Status.Initialization.Provisioned == nil {
		return
	}
	endpoint := infra.Spec.ControlPlaneEndpoint
	changeStatus(s, c.name, func(o *clusterv1.Cluster) { o.Status.Initialization.InfrastructureProvisioned = new(true) })
	change(s, c.name, func(o *clusterv1.Cluster) {
		o.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: endpoint.Host, Port: endpoint.Port}
	})
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{c.name: {Server: "https://" + hostPort(endpoint.Host), CertificateAuthorityData: []byte("CA")}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"admin": {Token: "secret"}},
		Contexts:  map[string]*clientcmdapi.Context{"admin": {Cluster: c.name, AuthInfo: "admin"}}, CurrentContext: "admin",
	})
	s.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{ObjectMeta: s.Meta(c.name + "-kubeconfig"), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig}}
	secret.Labels = map[string]string{clusterv1.ClusterNameLabel: c.name}
	secret.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: controlplanev1.GroupVersion.String(), Kind: "KubeadmControlPlane", Name: c.name, UID: "of-the-control-plane", Controller: new(true),
	}}
	s.create(secret)
}

// create creates an object with a creation time by the simulation's clock.
func (s *simulation) create(o client.Object) {
	s.T.Helper()
	s.Create(o)
	s.times.correct(o)
	s.stale = true
}

// kubeconfig returns the endpoint in the kubeconfig Secret, or nothing without a Secret.
func (s *simulation) kubeconfig(c *workload) string {
	s.T.Helper()
	secret := &corev1.Secret{}
	err := s.Admin.Get(s.ctx, client.ObjectKey{Namespace: s.Namespace, Name: c.name + "-kubeconfig"}, secret)
	if apierrors.IsNotFound(err) {
		return ""
	}
	s.Expect(err).NotTo(HaveOccurred())
	return serverOf(s, secret)
}

func serverOf(s *simulation, secret *corev1.Secret) string {
	s.T.Helper()
	config, err := clientcmd.Load(secret.Data["value"])
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(config.Clusters).To(HaveLen(1))
	for _, of := range config.Clusters {
		s.Expect(of.CertificateAuthorityData).To(Equal([]byte("CA")))
		return strings.TrimPrefix(of.Server, "https://")
	}
	return ""
}

// connect keeps a connection as long as it lasts, then opens one with the kubeconfig
// Secret, as Cluster API's cache of clients does.
func (s *simulation) connect(c *workload) {
	if !c.connected {
		c.connection = s.kubeconfig(c)
	}
	connected := c.connection != "" && s.reaches(nil, c.connection, c)
	if c.connected && !connected {
		s.record("the connection to %s at %s is lost", c.name, c.connection)
	}
	c.connected = connected
	status := metav1.ConditionFalse
	if connected {
		status = metav1.ConditionTrue
	}
	changeStatus(s, c.name, func(o *clusterv1.Cluster) {
		meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
			Type: clusterv1.ClusterRemoteConnectionProbeCondition, Status: status, Reason: "Probe" + string(status),
			LastTransitionTime: metav1.NewTime(s.clock.Now().Truncate(time.Second)),
		})
	})
}

// provision waits for the Node of a Machine, to which the manager gives a host.
func (s *simulation) provision(c *workload, m *clusterv1.Machine) {
	s.T.Helper()
	o := s.hostOf(m.Name)
	if o == nil {
		return
	}
	op := o.Operation(infrav1.OperationBootstrap, o.Spec.Claim.ID)
	if op == nil || op.State != infrav1.OperationSucceeded || m.Status.NodeRef.IsDefined() {
		return
	}
	changeStatus(s, m.Name, func(m *clusterv1.Machine) { m.Status.NodeRef = clusterv1.MachineNodeReference{Name: o.Name} })
	changeStatus(s, c.name, func(o *clusterv1.Cluster) { o.Status.Initialization.ControlPlaneInitialized = new(true) })
}

// terminate runs the deletion of a Machine: hooks, etcd member, ElementalMachine with its
// host, finalizer.
func (s *simulation) terminate(c *workload, m *clusterv1.Machine) {
	s.T.Helper()
	o := s.hostOf(m.Name)
	for hook := range m.Annotations {
		if strings.HasPrefix(hook, clusterv1.PreTerminateDeleteHookAnnotationPrefix) && hook != controlplanev1.PreTerminateHookCleanupAnnotation {
			return
		}
	}
	if _, hooked := m.Annotations[controlplanev1.PreTerminateHookCleanupAnnotation]; hooked {
		s.removeMember(c, m, o)
		return
	}
	if em, ok := find[*infrav1.ElementalMachine](s.state, m.Name); ok {
		if em.DeletionTimestamp.IsZero() {
			s.Expect(client.IgnoreNotFound(s.Admin.Delete(s.ctx, em))).To(Succeed())
			s.stale = true
		}
		return
	}
	s.record("%s of %s is gone", m.Name, c.name)
	change(s, m.Name, func(m *clusterv1.Machine) { controllerutil.RemoveFinalizer(m, clusterv1.MachineFinalizer) })
}

// removeMember removes the etcd member before the host is released. It needs a
// connection to the control plane.
func (s *simulation) removeMember(c *workload, m *clusterv1.Machine, o *infrav1.ElementalHost) {
	if o != nil && o.Spec.Claim.Phase == infrav1.ClaimBound {
		if h := s.host(o.Name); h.node != nil && h.node.member {
			if !c.connected {
				return
			}
			s.record("%s leaves the etcd of %s", h.name, c.name)
			h.node.member = false
		}
	}
	change(s, m.Name, func(m *clusterv1.Machine) { delete(m.Annotations, controlplanev1.PreTerminateHookCleanupAnnotation) })
}

func reset(o *infrav1.ElementalHost) bool {
	op := o.Operation(infrav1.OperationReset, o.Spec.Claim.ID)
	return op != nil && op.State == infrav1.OperationSucceeded
}

// freeHosts frees hosts that were reset and whose Machine is gone.
func (s *simulation) freeHosts(c *workload) {
	s.T.Helper()
	for _, o := range all[*infrav1.ElementalHost](s.state) {
		is := o.Spec.Claim
		if is == nil || is.ClusterName != c.name || is.Phase != infrav1.ClaimReleasing || !reset(o) {
			continue
		}
		if _, there := find[*clusterv1.Machine](s.state, is.MachineName); there {
			continue
		}
		after := o.DeepCopy()
		if err := claim.Free(s.ctx, s.Admin, after, is.ID); !apierrors.IsConflict(err) {
			s.wrote(o, after, err)
			s.changeHost(o.Name, func(o *infrav1.ElementalHost) { o.Status.Endpoint, o.Status.Operations = nil, nil })
		}
	}
}

// endpointOf returns the Cluster's endpoint as host:port, or nothing before it is set.
func (s *simulation) endpointOf(c *workload) string {
	is, ok := find[*clusterv1.Cluster](s.state, c.name)
	if !ok || !is.Spec.ControlPlaneEndpoint.IsValid() {
		return ""
	}
	return net.JoinHostPort(is.Spec.ControlPlaneEndpoint.Host, fmt.Sprint(is.Spec.ControlPlaneEndpoint.Port))
}
