package certificates_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/certificates"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

const day = 24 * time.Hour

// fixture is a cluster with a control plane of one host, whose certificates end in 100 days.
type fixture struct {
	*controllertest.Fixture

	cluster    *clusterv1.Cluster
	infra      *infrav1.ElementalCluster
	owner      *clusterv1.Machine
	host       *infrav1.ElementalHost
	end        time.Time
	reconciler *certificates.Reconciler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env)}
	f.end = f.Clock.Now().Add(100 * day)
	f.cluster, f.infra = f.Cluster("c")
	f.owner, _ = f.Machine("c", "a", controllertest.ControlPlane)
	f.host = f.controlPlane("a", infrav1.RoleInitialControlPlane)
	f.reconciler = &certificates.Reconciler{Client: f.Client, APIReader: f.Admin, Recorder: f.Recorder, Clock: f.Clock}
	return f
}

// controlPlane makes a control-plane host.
func (f *fixture) controlPlane(name string, role infrav1.ClaimRole) *infrav1.ElementalHost {
	return f.Host(name, func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "id-" + name, ClusterName: "c", MachineName: name, Phase: infrav1.ClaimBound, Role: role}
		h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "CertificateRenewal"}}
		h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "id-" + name, State: infrav1.OperationSucceeded}}
		h.Status.Certificates = f.certificates(f.end)
		hoststatus.Update(h, metav1.NewTime(f.Clock.Now()))
	})
}

func (f *fixture) certificates(end time.Time) []infrav1.HostCertificate {
	return []infrav1.HostCertificate{{Name: "pki/apiserver.crt", NotAfter: metav1.NewTime(end)}}
}

// step lets time go by until so long before the end of the first certificates.
func (f *fixture) step(before time.Duration) {
	f.Clock.SetTime(f.end.Add(-before))
	f.Report(f.host, func(*infrav1.ElementalHostStatus) {})
}

// reconcile reconciles twice, because that must not make a difference.
func (f *fixture) reconcile() ctrl.Result {
	f.T.Helper()
	var result ctrl.Result
	for range 2 {
		var err error
		result, err = f.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.infra)})
		f.Expect(err).NotTo(HaveOccurred())
	}
	f.Refresh(f.infra)
	f.Refresh(f.host)
	f.Refresh(f.owner)
	return result
}

// condition checks the condition, and returns its message.
func (f *fixture) condition(status metav1.ConditionStatus, reason string) string {
	f.T.Helper()
	return f.ExpectCondition(f.infra, infrav1.CertificatesValidCondition, status, reason).Message
}

// renewal reports the state of the requested renewal.
func (f *fixture) renewal(state infrav1.OperationState, end time.Time) {
	f.T.Helper()
	f.Report(f.host, func(s *infrav1.ElementalHostStatus) {
		s.Certificates = f.certificates(end)
		controllertest.SetOperation(s, infrav1.HostOperation{
			Type: infrav1.OperationCertificateRenewal, ID: f.host.Spec.CertificateRenewal.ID, State: state, Step: "gate", Message: "rolled back: " + strings.Repeat("x", 900),
		})
	})
}

// kubeconfig writes the kubeconfig of the cluster with a certificate that ends at a time.
func (f *fixture) kubeconfig(end time.Time) {
	f.T.Helper()
	authority, err := pki.NewAuthority("ca", end.Add(-365*day))
	f.Expect(err).NotTo(HaveOccurred())
	pair, err := authority.Client("admin")
	f.Expect(err).NotTo(HaveOccurred())
	config := clientcmdapi.NewConfig()
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}
	config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{AuthInfo: "admin"}, "c"
	data, err := clientcmd.Write(*config)
	f.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{ObjectMeta: f.Meta("c-kubeconfig"), Data: map[string][]byte{"value": data}}
	secret.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	f.Create(secret)
}
