package envtest_test

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

func TestControlPlaneServesAllKinds(t *testing.T) {
	g := NewWithT(t)
	env := envtest.Start(t)
	c := env.Client(t)
	namespace := env.Namespace(t)

	for _, list := range []client.ObjectList{
		&clusterv1.ClusterList{}, &clusterv1.MachineList{}, &controlplanev1.KubeadmControlPlaneList{},
		&infrav1.ElementalHostList{}, &infrav1.ElementalRegistrationList{},
	} {
		g.Expect(c.List(t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	}

	for _, kind := range []string{"ElementalCluster", "ElementalMachine", "ElementalClusterTemplate", "ElementalMachineTemplate"} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		key := client.ObjectKey{Name: contract.CalculateCRDName(infrav1.GroupVersion.Group, kind)}
		g.Expect(c.Get(t.Context(), key, crd)).To(Succeed(), "Cluster API finds %s by a calculated name", kind)
		g.Expect(crd.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/v1beta2", "v1beta2"))
		g.Expect(crd.Labels).To(HaveKey("clusterctl.cluster.x-k8s.io"))
	}

	nobody, err := client.New(env.AddUser(t, "nobody"), client.Options{Scheme: env.Scheme})
	g.Expect(err).NotTo(HaveOccurred())
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	g.Expect(nobody.Create(t.Context(), host)).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
}
