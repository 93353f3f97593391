package endpoint

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// apiServer is where the objects of a simulation are.
type apiServer struct {
	client.WithWatch

	namespace string
	clock     *clocktesting.FakeClock
}

// realAPIServer is a namespace of the kube-apiserver of this package.
func realAPIServer(t *testing.T) apiServer {
	t.Helper()
	live, err := client.NewWithWatch(env.Config, env.ClientOptions())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return apiServer{live, env.Namespace(t), clocktesting.NewFakeClock(time.Now().Truncate(time.Second))}
}

// memoryAPIServer is controller-runtime's client with objects in memory. It answers in
// microseconds, so that a thousand histories take minutes. It knows no defaults and no
// validation of CustomResourceDefinitions.
func memoryAPIServer(t *testing.T) apiServer {
	t.Helper()
	created := 0
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name:   contract.CalculateCRDName(controlplanev1.GroupVersion.Group, "KubeadmControlPlane"),
		Labels: map[string]string{clusterv1.GroupVersion.Group + "/" + clusterv1.GroupVersion.Version: controlplanev1.GroupVersion.Version},
	}}
	memory := fake.NewClientBuilder().WithScheme(env.Scheme).WithObjects(crd).
		// The default tracker also computes managedFields, which costs most of the time.
		WithObjectTracker(clienttesting.NewObjectTracker(env.Scheme, serializer.NewCodecFactory(env.Scheme).UniversalDecoder())).
		WithStatusSubresource(&clusterv1.Cluster{}, &clusterv1.Machine{}, &controlplanev1.KubeadmControlPlane{},
			&infrav1.ElementalCluster{}, &infrav1.ElementalHost{}, &infrav1.ElementalMachine{}, &infrav1.ElementalMachineTemplate{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				created++
				o.SetUID(types.UID(fmt.Sprintf("uid-%06d", created)))
				return w.Create(ctx, o, opts...) // the API server's
			},
		}).Build()
	start := time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)
	return apiServer{memory, "histories", clocktesting.NewFakeClock(start)}
}
