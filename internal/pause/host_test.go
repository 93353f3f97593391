package pause_test

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/pause"
)

// indexedBuilder adds the indexes of package index to a fake client.
type indexedBuilder struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (b indexedBuilder) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	b.WithIndex(o, field, values)
	return nil
}

func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{infrav1.AddToScheme, clusterv1.AddToScheme, clientgoscheme.AddToScheme} {
		g.Expect(add(scheme)).To(Succeed())
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	g.Expect(index.Register(t.Context(), indexedBuilder{builder})).To(Succeed())
	return builder.Build()
}

func cluster(name string, paused bool) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
	if paused {
		c.Spec.Paused = new(true)
	}
	return c
}

func machine(claim string, annotations ...string) *infrav1.ElementalMachine {
	m := &infrav1.ElementalMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", Annotations: map[string]string{}}}
	for _, annotation := range annotations {
		m.Annotations[annotation] = ""
	}
	m.Spec.HostRef = &infrav1.HostReference{Name: "h", ClaimID: claim}
	return m
}

func TestHost(t *testing.T) {
	bound := func(phase infrav1.ClaimPhase) *infrav1.HostClaim {
		return &infrav1.HostClaim{ID: "claim", ClusterName: "c", MachineName: "m", Phase: phase}
	}
	for name, test := range map[string]struct {
		claim      *infrav1.HostClaim
		annotation string
		objects    []client.Object
		want       bool
	}{
		"running cluster":                {bound(infrav1.ClaimBound), "", []client.Object{cluster("c", false), machine("claim")}, false},
		"paused cluster":                 {bound(infrav1.ClaimBound), "", []client.Object{cluster("c", true)}, true},
		"paused cluster, reserved":       {&infrav1.HostClaim{ClusterName: "c", Phase: infrav1.ClaimReserved}, "", []client.Object{cluster("c", true)}, true},
		"running cluster, reserved":      {&infrav1.HostClaim{ClusterName: "c", Phase: infrav1.ClaimReserved}, "", []client.Object{cluster("c", false)}, false},
		"paused cluster, held":           {bound(infrav1.ClaimHeld), "", []client.Object{cluster("c", true)}, true},
		"paused cluster, releasing":      {bound(infrav1.ClaimReleasing), "", []client.Object{cluster("c", true)}, true},
		"another cluster is paused":      {bound(infrav1.ClaimBound), "", []client.Object{cluster("c", false), cluster("d", true)}, false},
		"missing cluster":                {bound(infrav1.ClaimBound), "", nil, true},
		"missing cluster, fenced":        {bound(infrav1.ClaimBound), "", nil, false},
		"missing cluster, releasing":     {bound(infrav1.ClaimReleasing), "", nil, false},
		"paused host":                    {bound(infrav1.ClaimBound), clusterv1.PausedAnnotation, []client.Object{cluster("c", false)}, true},
		"moved host, releasing":          {bound(infrav1.ClaimReleasing), clusterctlv1.DeleteForMoveAnnotation, nil, true},
		"paused free host":               {nil, clusterv1.PausedAnnotation, nil, true},
		"free host":                      {nil, "", []client.Object{cluster("c", true)}, false},
		"paused machine":                 {bound(infrav1.ClaimBound), "", []client.Object{cluster("c", false), machine("claim", clusterv1.PausedAnnotation)}, true},
		"paused machine, releasing":      {bound(infrav1.ClaimReleasing), "", []client.Object{cluster("c", false), machine("claim", clusterv1.PausedAnnotation)}, true},
		"paused machine of another host": {bound(infrav1.ClaimBound), "", []client.Object{cluster("c", false), machine("other", clusterv1.PausedAnnotation)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "h"}}
			host.Spec.Claim = test.claim
			if strings.Contains(name, "fenced") {
				host.Spec.Fence = &infrav1.HostFence{Reason: "dead"}
			}
			if test.annotation != "" {
				host.Annotations = map[string]string{test.annotation: ""}
			}
			got, err := pause.Host(t.Context(), newClient(t, test.objects...), host)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(test.want))
		})
	}
}

// Whoever may create ElementalMachines can name the claim of any host. That pauses a host
// only if the claim's Machine names the object, or does not exist yet.
func TestThreat49_ImpostorPausesNothing(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "h"}}
	host.Spec.Claim = &infrav1.HostClaim{ID: "claim", ClusterName: "c", MachineName: "machine", Phase: infrav1.ClaimBound}
	owner := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "machine"}}
	owner.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: "m"}
	impostor := machine("claim", clusterv1.PausedAnnotation)
	impostor.Name = "impostor"
	for _, test := range []struct {
		machine *infrav1.ElementalMachine
		want    bool
	}{{impostor, false}, {machine("claim", clusterv1.PausedAnnotation), true}} {
		got, err := pause.Host(t.Context(), newClient(t, cluster("c", false), owner, test.machine), host)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got).To(Equal(test.want))
	}
}
