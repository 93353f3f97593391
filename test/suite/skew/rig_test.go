//go:build embedded

package skew

import (
	"os"
	"path/filepath"
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
)

const (
	soon  = 3 * time.Minute
	sites = "sites"
)

// root is the folder of this repository.
func root(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "..", ".."))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return folder
}

// rig is a management cluster without Cluster API's managers.
type rig struct {
	*WithT

	t          *testing.T
	management *embedded.Cluster
	admin      client.WithWatch
	token      string
	groups     []*group
}

func newRig(t *testing.T, checkout string) *rig {
	t.Helper()
	r := &rig{WithT: NewWithT(t), t: t}
	r.SetDefaultEventuallyTimeout(soon)
	var err error
	r.management, err = embedded.Start(t.Context(), embedded.Options{Checkout: checkout, Alone: true, OneVersion: true, Simulation: true, Progress: os.Stderr})
	r.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { r.Expect(r.management.Stop()).To(Succeed()) })
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		r.Expect(add(scheme)).To(Succeed())
	}
	r.admin, err = client.NewWithWatch(r.management.Config, client.Options{Scheme: scheme})
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sites}})).To(Succeed())
	r.token = r.register("edge", infrav1.ApprovalAutomatic)
	return r
}

// register creates a registration and returns its token.
func (r *rig) register(name string, approval infrav1.ApprovalPolicy) string {
	r.t.Helper()
	registration := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: sites, Name: name}}
	registration.Spec.Token.MaxUses, registration.Spec.Approval = 1000, approval
	r.Expect(r.admin.Create(r.t.Context(), registration)).To(Succeed())
	r.Eventually(func(g Gomega) {
		g.Expect(r.admin.Get(r.t.Context(), client.ObjectKeyFromObject(registration), registration)).To(Succeed())
		g.Expect(registration.Status.TokenSecretRef).NotTo(BeNil())
	}).Should(Succeed())
	secret := &corev1.Secret{}
	r.Expect(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: sites, Name: registration.Status.TokenSecretRef.Name}, secret)).To(Succeed())
	config, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
	r.Expect(err).NotTo(HaveOccurred())
	return config.Token
}
