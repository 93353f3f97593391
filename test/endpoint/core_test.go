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
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
)

// patience is how long the release of a machine waits for a silent host.
const patience = time.Minute

// workload is a workload cluster.
type workload struct {
	name string
	// user is the user's own endpoint, blank for the one that follows a host.
	user string
	// controlPlanes and workers that are wanted; made counts all so far.
	controlPlanes, workers, made int
	// begun: the first control plane was bootstrapped.
	begun bool
	// objects are the endpoints in cluster-info, kubeadm-config and kube-proxy, and
	// since when each of them is the endpoint.
	objects [3]string
	since   [3]time.Time
	// connection is the endpoint that Cluster API's cache of clients holds on to,
	// as long as it answers; connected whether it does.
	connection string
	connected  bool
}

// core does what Cluster API does about a cluster and its machines.
func (w *world) core(c *workload) {
	w.copyEndpoint(c)
	w.connect(c)
	for _, m := range w.machines(c) {
		if m.DeletionTimestamp.IsZero() {
			w.provision(c, m)
		} else {
			w.terminate(c, m)
		}
	}
	w.freeHosts(c)
	w.controlPlane(c)
	w.deployment(c)
}

func (w *world) machines(c *workload) []*clusterv1.Machine {
	return slices.DeleteFunc(all[*clusterv1.Machine](w.is), func(m *clusterv1.Machine) bool { return m.Spec.ClusterName != c.name })
}

// hostOf is the host that is bound to a Machine or released by it; nil if none is.
func (w *world) hostOf(machine string) *infrav1.ElementalHost {
	for _, o := range all[*infrav1.ElementalHost](w.is) {
		if o.Spec.Claim != nil && o.Spec.Claim.MachineName == machine {
			return o
		}
	}
	return nil
}

// copyEndpoint copies the endpoint to the Cluster once, and makes the kubeconfig
// Secret from it.
func (w *world) copyEndpoint(c *workload) {
	w.T.Helper()
	infra, ok := find[*infrav1.ElementalCluster](w.is, c.name)
	w.Expect(ok).To(BeTrue())
	is, ok := find[*clusterv1.Cluster](w.is, c.name)
	w.Expect(ok).To(BeTrue())
	if is.Spec.ControlPlaneEndpoint.IsValid() || infra.Status.Initialization.Provisioned == nil {
		return
	}
	endpoint := infra.Spec.ControlPlaneEndpoint
	change(w, c.name, func(o *clusterv1.Cluster) {
		o.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: endpoint.Host, Port: endpoint.Port}
	})
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{c.name: {Server: "https://" + hostPort(endpoint.Host), CertificateAuthorityData: []byte("CA")}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"admin": {Token: "secret"}},
		Contexts:  map[string]*clientcmdapi.Context{"admin": {Cluster: c.name, AuthInfo: "admin"}}, CurrentContext: "admin",
	})
	w.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{ObjectMeta: w.Meta(c.name + "-kubeconfig"), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig}}
	secret.Labels = map[string]string{clusterv1.ClusterNameLabel: c.name}
	secret.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: controlplanev1.GroupVersion.String(), Kind: "KubeadmControlPlane", Name: c.name, UID: "of-the-control-plane", Controller: new(true),
	}}
	w.create(secret)
}

// create creates an object, made now by the simulation's clock.
func (w *world) create(o client.Object) {
	w.T.Helper()
	w.Create(o)
	w.times.correct(o)
	w.stale = true
}

// kubeconfig reads the endpoint that the kubeconfig Secret names; blank while
// there is none.
func (w *world) kubeconfig(c *workload) string {
	w.T.Helper()
	secret := &corev1.Secret{}
	err := w.Admin.Get(w.ctx, client.ObjectKey{Namespace: w.Namespace, Name: c.name + "-kubeconfig"}, secret)
	if apierrors.IsNotFound(err) {
		return ""
	}
	w.Expect(err).NotTo(HaveOccurred())
	return serverOf(w, secret)
}

func serverOf(w *world, secret *corev1.Secret) string {
	w.T.Helper()
	config, err := clientcmd.Load(secret.Data["value"])
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(config.Clusters).To(HaveLen(1))
	for _, of := range config.Clusters {
		w.Expect(of.CertificateAuthorityData).To(Equal([]byte("CA")))
		return strings.TrimPrefix(of.Server, "https://")
	}
	return ""
}

// connect holds on to a connection as long as it lasts, and then makes
// another by the kubeconfig Secret, as Cluster API's cache of clients does.
func (w *world) connect(c *workload) {
	if !c.connected {
		c.connection = w.kubeconfig(c)
	}
	connected := c.connection != "" && w.reaches(nil, c.connection, c)
	if c.connected && !connected {
		w.note("the connection to %s at %s is lost", c.name, c.connection)
	}
	c.connected = connected
	status := metav1.ConditionFalse
	if connected {
		status = metav1.ConditionTrue
	}
	changeStatus(w, c.name, func(o *clusterv1.Cluster) {
		meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
			Type: clusterv1.ClusterRemoteConnectionProbeCondition, Status: status, Reason: "Probe" + string(status),
			LastTransitionTime: metav1.NewTime(w.clock.Now().Truncate(time.Second)),
		})
	})
}

// provision gives a Machine a host and waits for its Node.
func (w *world) provision(c *workload, m *clusterv1.Machine) {
	w.T.Helper()
	o := w.hostOf(m.Name)
	if o == nil {
		w.claim(c, m)
		return
	}
	op := o.Operation(infrav1.OperationBootstrap, o.Spec.Claim.ID)
	if op == nil || op.State != infrav1.OperationSucceeded || m.Status.NodeRef.IsDefined() {
		return
	}
	changeStatus(w, m.Name, func(m *clusterv1.Machine) { m.Status.NodeRef = clusterv1.MachineNodeReference{Name: o.Name} })
	changeStatus(w, c.name, func(o *clusterv1.Cluster) { o.Status.Initialization.ControlPlaneInitialized = new(true) })
}

// claim binds a host: for the first control plane the one that is reserved.
func (w *world) claim(c *workload, m *clusterv1.Machine) {
	w.T.Helper()
	role := infrav1.RoleWorker
	if util.IsControlPlaneMachine(m) {
		role = infrav1.RoleControlPlane
		if !c.begun {
			role = infrav1.RoleInitialControlPlane
		}
	}
	var free []*infrav1.ElementalHost
	for _, o := range all[*infrav1.ElementalHost](w.is) {
		is := o.Spec.Claim
		reserved := is != nil && is.Phase == infrav1.ClaimReserved && is.ClusterName == c.name
		if (reserved && role.IsControlPlane()) || (is == nil && meta.IsStatusConditionTrue(o.Status.Conditions, infrav1.AvailableCondition) &&
			(role != infrav1.RoleInitialControlPlane || c.user != "")) {
			free = append(free, o)
		}
	}
	o, ok := pick(w, free)
	if !ok || (role == infrav1.RoleWorker && !c.begun) {
		return
	}
	id := "claim-" + string(m.UID)
	after := o.DeepCopy()
	err := claim.Bind(w.ctx, w.Admin, after, infrav1.HostClaim{ID: id, ClusterName: c.name, MachineName: m.Name, Role: role})
	if apierrors.IsConflict(err) {
		return
	}
	w.note("%s of %s gets %s", m.Name, c.name, o.Name)
	w.saw(o, after, err)
	change(w, m.Name, func(m *infrav1.ElementalMachine) {
		m.Spec.HostRef = &infrav1.HostReference{Name: o.Name, ClaimID: id}
		m.Spec.ProviderID = "elemental://" + w.Namespace + "/" + o.Name
	})
}

// terminate takes a deleted Machine to its end: hooks, etcd's member, reset, gone.
func (w *world) terminate(c *workload, m *clusterv1.Machine) {
	w.T.Helper()
	o := w.hostOf(m.Name)
	for hook := range m.Annotations {
		if strings.HasPrefix(hook, clusterv1.PreTerminateDeleteHookAnnotationPrefix) && hook != controlplanev1.PreTerminateHookCleanupAnnotation {
			return
		}
	}
	if _, hooked := m.Annotations[controlplanev1.PreTerminateHookCleanupAnnotation]; hooked {
		w.forgetMember(c, m, o)
		return
	}
	if o != nil && o.Spec.Claim.Phase == infrav1.ClaimBound {
		after := o.DeepCopy()
		if err := claim.Release(w.ctx, w.Admin, after, o.Spec.Claim.ID, ""); !apierrors.IsConflict(err) {
			w.saw(o, after, err)
		}
		return
	}
	if o != nil && !reset(o) && w.clock.Since(m.DeletionTimestamp.Time) < patience {
		return
	}
	w.note("%s of %s is gone", m.Name, c.name)
	change(w, m.Name, func(m *infrav1.ElementalMachine) { controllerutil.RemoveFinalizer(m, infrav1.MachineFinalizer) })
	if em, ok := find[*infrav1.ElementalMachine](w.is, m.Name); ok {
		w.Expect(client.IgnoreNotFound(w.Admin.Delete(w.ctx, em))).To(Succeed())
		w.stale = true
	}
	change(w, m.Name, func(m *clusterv1.Machine) { controllerutil.RemoveFinalizer(m, clusterv1.MachineFinalizer) })
}

// forgetMember removes etcd's member before the host goes, for which the control
// plane has to be reached.
func (w *world) forgetMember(c *workload, m *clusterv1.Machine, o *infrav1.ElementalHost) {
	if o != nil && o.Spec.Claim.Phase == infrav1.ClaimBound {
		if h := w.host(o.Name); h.node != nil && h.node.member {
			if !c.connected {
				return
			}
			w.note("%s leaves the etcd of %s", h.name, c.name)
			h.node.member = false
		}
	}
	change(w, m.Name, func(m *clusterv1.Machine) { delete(m.Annotations, controlplanev1.PreTerminateHookCleanupAnnotation) })
}

func reset(o *infrav1.ElementalHost) bool {
	op := o.Operation(infrav1.OperationReset, o.Spec.Claim.ID)
	return op != nil && op.State == infrav1.OperationSucceeded
}

// freeHosts frees hosts that were reset and whose Machine is gone.
func (w *world) freeHosts(c *workload) {
	w.T.Helper()
	for _, o := range all[*infrav1.ElementalHost](w.is) {
		is := o.Spec.Claim
		if is == nil || is.ClusterName != c.name || is.Phase != infrav1.ClaimReleasing || !reset(o) {
			continue
		}
		if _, there := find[*clusterv1.Machine](w.is, is.MachineName); there {
			continue
		}
		after := o.DeepCopy()
		if err := claim.Free(w.ctx, w.Admin, after, is.ID); !apierrors.IsConflict(err) {
			w.saw(o, after, err)
			w.changeHost(o.Name, func(o *infrav1.ElementalHost) { o.Status.Endpoint, o.Status.Operations = nil, nil })
		}
	}
}

// endpointOf is the Cluster's endpoint, host:port; blank while it has none.
func (w *world) endpointOf(c *workload) string {
	is, ok := find[*clusterv1.Cluster](w.is, c.name)
	if !ok || !is.Spec.ControlPlaneEndpoint.IsValid() {
		return ""
	}
	return net.JoinHostPort(is.Spec.ControlPlaneEndpoint.Host, fmt.Sprint(is.Spec.ControlPlaneEndpoint.Port))
}
