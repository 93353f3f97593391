package main

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

// testUsers asks the gateway as users do, by token and by certificate. The manager has the
// rights to find out who they are and what they may do.
func (r *rig) testUsers(t *testing.T, env *envtest.Environment) {
	g := NewWithT(t)
	r.Cluster("remote", func(_ *clusterv1.Cluster, i *infrav1.ElementalCluster) {
		i.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
	})
	meta := metav1.ObjectMeta{Namespace: r.Namespace, Name: "users-of-remote"}
	r.Create(&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"clusters/proxy"}, Verbs: []string{"create"}},
	}})
	r.Create(&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}, Subjects: []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ann"},
	}})
	certificates := func(name string) *rest.Config { return env.AddUser(t, name) }
	ann, eve := certificates("ann"), certificates("eve")
	ask := func(config *rest.Config, namespace, cluster string) func() string {
		c := r.throughGateway(g, config, namespace, cluster)
		return func() string {
			_, err := c.CoreV1().ConfigMaps("default").List(context.Background(), metav1.ListOptions{})
			return err.Error()
		}
	}
	g.Eventually(ask(ann, r.Namespace, "remote")).WithTimeout(soon).Should(ContainSubstring("its control plane is not initialized"))
	g.Expect(ask(eve, r.Namespace, "remote")()).To(ContainSubstring(`user "eve" may not create clusters/proxy`))
	g.Expect(ask(&rest.Config{BearerToken: "invented"}, r.Namespace, "remote")()).To(ContainSubstring("the gateway takes the credentials"))
	g.Eventually(ask(ann, r.Namespace, "absent")).WithTimeout(soon).Should(ContainSubstring("no cluster with access through the gateway"))

	// The manager does not watch other namespaces, so it knows no cluster there.
	administrator := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "administrator-ann"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ann"}},
	}
	r.Create(administrator)
	g.Eventually(ask(ann, "default", "remote")).WithTimeout(soon).Should(ContainSubstring("no cluster with access through the gateway"))
	g.Expect(r.Admin.Delete(t.Context(), administrator)).To(Succeed())
}

// throughGateway returns a client of a workload cluster for the credentials of a configuration.
func (r *rig) throughGateway(g *WithT, credentials *rest.Config, namespace, cluster string) kubernetes.Interface {
	ca := &corev1.Secret{}
	g.Expect(r.Admin.Get(r.Ctx, ctrlclient.ObjectKey{Namespace: defaultNamespace, Name: authority.SecretName}, ca)).To(Succeed())
	c, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://" + r.gateway + "/clusters/" + namespace + "/" + cluster, BearerToken: credentials.BearerToken, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: ca.Data[authority.BundleKey], ServerName: usersService + "." + defaultNamespace + ".svc",
			CertData: credentials.CertData, KeyData: credentials.KeyData,
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	return c
}
