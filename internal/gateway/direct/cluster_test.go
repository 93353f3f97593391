package direct_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/access"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/clusters"
)

// world is a management cluster whose cluster c1 is the workload cluster. It has a load
// balancer as endpoint, which nobody can reach, and one control-plane host. Both clusters
// have the same API server, whose objects of the management cluster are in one namespace.
type world struct {
	*controllertest.Fixture
	*rig

	reconciler *access.Reconciler
	infra      *infrav1.ElementalCluster
	isGone     atomic.Bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	f := controllertest.New(t, workload)
	w := &world{Fixture: f}
	_, w.infra = f.Cluster("c1", func(c *clusterv1.Cluster, i *infrav1.ElementalCluster) {
		c.Status.Initialization.ControlPlaneInitialized = new(true)
		i.Spec.ControlPlaneEndpoint.Host = "192.0.2.1"
		i.Spec.Access = &infrav1.Access{
			Bindings: []infrav1.AccessBinding{{ClusterRole: "reader", Groups: []string{"ops"}}}, Direct: &infrav1.DirectAccess{},
		}
	})
	controllertest.ChangeStatus(f, w.infra, func(c *infrav1.ElementalCluster) {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: infrav1.TunnelReadyCondition, Status: metav1.ConditionTrue, Reason: "TunnelReady"})
	})
	f.Host("h1", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "claim", ClusterName: "c1", MachineName: "m1", Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
		h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "claim", State: infrav1.OperationSucceeded}}
		h.Status.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{
			Result: infrav1.ProbeReachable, Since: metav1.Now(), Address: address(workload),
		}}
	})
	w.kubeconfigSecret()
	connector := clusters.New(clusters.Options{
		Cache: f.Client, Live: f.Admin, Clock: clock.RealClock{},
		Dial: func(ctx context.Context, cluster types.NamespacedName) (net.Conn, error) {
			if w.isGone.Load() || cluster.Name != "c1" {
				return nil, errors.New("no host has a tunnel")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", address(workload))
		},
	})
	w.reconciler = &access.Reconciler{Client: f.Client, Recorder: f.Recorder, Clock: f.Clock, Workloads: connector}
	w.rig = newRig(t, func(r *rig) { r.clusters, r.namespace = connector, f.Namespace })
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}},
	}
	w.rig.Expect(w.admin.Create(t.Context(), role)).To(Succeed())
	t.Cleanup(func() {
		_ = workload.Client(t).Delete(context.Background(), role)
		_ = workload.Client(t).DeleteAllOf(context.Background(), &rbacv1.ClusterRoleBinding{}, client.HasLabels{"infrastructure.cluster.x-k8s.io/elemental-access"})
	})
	w.reconcile()
	return w
}

// kubeconfigSecret creates the Secret that the control-plane provider makes.
func (w *world) kubeconfigSecret() {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://192.0.2.1:6443", CertificateAuthorityData: workload.Authority.Certificate}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: workload.Config.CertData, ClientKeyData: workload.Config.KeyData}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	raw, err := clientcmd.Write(*config)
	w.Fixture.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{ObjectMeta: w.Meta("c1-kubeconfig"), Data: map[string][]byte{"value": raw}}
	secret.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	w.Fixture.Expect(w.Admin.Create(w.Ctx, secret)).To(Succeed())
}

func (w *world) reconcile() {
	w.t.Helper()
	_, err := w.reconciler.Reconcile(w.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.infra)})
	w.rig.Expect(err).NotTo(HaveOccurred())
	w.ExpectCondition(w.infra, infrav1.AccessReadyCondition, metav1.ConditionTrue, infrav1.BindingsAppliedReason)
}

// get requests a kubeconfig of ann's.
func (w *world) get() *rest.Config {
	w.t.Helper()
	return w.restConfig(w.kubeconfig("ann", "/kubeconfigs/"+w.Namespace+"/c1", nil), "c1-h1")
}

// list lists what the bindings permit.
func (w *world) list(config *rest.Config, of client.ObjectList) error {
	c, err := client.New(config, client.Options{Scheme: workload.Scheme})
	w.rig.Expect(err).NotTo(HaveOccurred())
	return c.List(context.Background(), of)
}

// T15 and T17: people keep working as themselves while the manager is away, and the workload
// cluster decides what they may do.
func TestWithoutTheManager(t *testing.T) {
	startSigner(t, honest)
	w := newWorld(t)
	config := w.get()
	w.front.Close()
	w.isGone.Store(true)

	is, err := whoami(config)
	w.rig.Expect(err).NotTo(HaveOccurred())
	w.rig.Expect(is.Username).To(Equal("ann@example.org"))
	w.rig.Expect(is.Groups).To(ConsistOf("dev", "ops", "system:authenticated"))
	w.rig.Eventually(func() error { return w.list(config, &corev1.ConfigMapList{}) }, patience).Should(Succeed())
	w.rig.Expect(w.list(config, &corev1.SecretList{})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))

	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "elemental-access:reader"}}
	w.rig.Expect(w.admin.Delete(t.Context(), binding)).To(Succeed())
	w.rig.Eventually(func() error { return w.list(config, &corev1.ConfigMapList{}) }, patience).Should(MatchError(apierrors.IsForbidden, "IsForbidden"))
	w.isGone.Store(false)
	w.reconcile()
	w.rig.Eventually(func() error { return w.list(config, &corev1.ConfigMapList{}) }, patience).Should(Succeed())
}

// T16: a certificate that has expired is worth nothing, also on a connection that is open.
func TestExpiredCertificate(t *testing.T) {
	var lifetime atomic.Int64
	startSigner(t, func(csr *certificatesv1.CertificateSigningRequest, asked *x509.CertificateRequest) ([]byte, string) {
		return lasting(time.Duration(lifetime.Load()))(csr, asked)
	})
	w := newWorld(t)
	var config *rest.Config
	// On a slow machine a short lifetime is over before the first request.
	for seconds := 4; seconds <= 64; seconds *= 2 {
		lifetime.Store(int64(seconds) * int64(time.Second))
		config = w.get()
		_, err := whoami(config)
		if err == nil {
			break
		}
		w.rig.Expect(err).To(MatchError(apierrors.IsUnauthorized, "IsUnauthorized"))
		config = nil
	}
	w.rig.Expect(config).NotTo(BeNil(), "no certificate was valid")
	w.rig.Eventually(func() error {
		_, err := whoami(config)
		return err
	}, 2*patience).Should(MatchError(apierrors.IsUnauthorized, "IsUnauthorized"))
}

// Whoever has not set direct access gives nobody certificates.
func TestDirectAccessIsOptional(t *testing.T) {
	w := newWorld(t)
	controllertest.Change(w.Fixture, w.infra, func(c *infrav1.ElementalCluster) { c.Spec.Access.Direct = nil })
	got := w.request("ann", "/kubeconfigs/"+w.Namespace+"/c1", nil)
	w.rig.Expect(got.code).To(Equal(403))
	w.rig.Expect(got.body).To(ContainSubstring("spec.access.direct"))
}
