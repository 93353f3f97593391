package planinput

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
)

const (
	namespace = "edge"
	ownURL    = "https://manager.example.com"
)

// indexedBuilder adds the indexes of package index to a fake client.
type indexedBuilder struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (b indexedBuilder) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	b.WithIndex(o, field, values)
	return nil
}

// authority publishes a constant bundle.
type authority struct{}

func (authority) Bundle(context.Context) (string, error) { return "bundle", nil }

// wakes records the names of woken hosts.
type wakes []string

func (w *wakes) Wake(_ context.Context, host types.NamespacedName) { *w = append(*w, host.Name) }

func (w *wakes) take() []string {
	woken := *w
	*w = nil
	return woken
}

func newReader(t *testing.T, objects ...client.Object) *Reader {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	g.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	g.Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	g.Expect(index.Register(t.Context(), indexedBuilder{builder})).To(Succeed())
	return NewReader(builder.Build(), clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), authority{}, ownURL, kubevip.ImagePolicy{})
}

// newHost returns a host that is bootstrapped for a Machine of the cluster.
func newHost(name, cluster string, role infrav1.ClaimRole, change ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	host.Spec.Claim = &infrav1.HostClaim{ID: "claim", ClusterName: cluster, MachineName: "machine-" + name, Phase: infrav1.ClaimBound, Role: role}
	host.Status.Agent = &infrav1.HostAgent{Version: "v1"}
	host.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "claim", State: infrav1.OperationSucceeded}}
	for _, f := range change {
		f(host)
	}
	return host
}

// newOwner returns the Cluster of newCluster.
func newOwner(name string) *clusterv1.Cluster {
	owner := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "owner"}}
	owner.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: name}
	return owner
}

func newCluster(name string) *infrav1.ElementalCluster {
	return &infrav1.ElementalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: name, UID: "owner"}},
		},
		Spec: infrav1.ElementalClusterSpec{ControlPlaneEndpoint: infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}},
	}
}

func TestCanTakeVIP(t *testing.T) {
	operation := func(state infrav1.OperationState) func(*infrav1.ElementalHost) {
		return func(host *infrav1.ElementalHost) { host.Status.Operations[0].State = state }
	}
	for name, test := range map[string]struct {
		role   infrav1.ClaimRole
		change func(*infrav1.ElementalHost)
		want   bool
	}{
		"bootstrapped":            {infrav1.RoleControlPlane, operation(infrav1.OperationSucceeded), true},
		"bootstrapped initial":    {infrav1.RoleInitialControlPlane, operation(infrav1.OperationSucceeded), true},
		"worker":                  {infrav1.RoleWorker, operation(infrav1.OperationSucceeded), false},
		"running bootstrap":       {infrav1.RoleControlPlane, operation(infrav1.OperationRunning), false},
		"failed bootstrap":        {infrav1.RoleControlPlane, operation(infrav1.OperationFailed), false},
		"bootstrap of last claim": {infrav1.RoleControlPlane, func(host *infrav1.ElementalHost) { host.Status.Operations[0].ID = "last" }, false},
		"restored without status": {infrav1.RoleControlPlane, func(host *infrav1.ElementalHost) { host.Status = infrav1.ElementalHostStatus{} }, true},
		"disconnected": {infrav1.RoleControlPlane, func(host *infrav1.ElementalHost) {
			host.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionDisconnected}
		}, true},
		"fenced":    {infrav1.RoleControlPlane, func(host *infrav1.ElementalHost) { host.Spec.Fence = &infrav1.HostFence{} }, false},
		"releasing": {infrav1.RoleControlPlane, func(host *infrav1.ElementalHost) { host.Spec.Claim.Phase = infrav1.ClaimReleasing }, false},
		"free":      {infrav1.RoleControlPlane, func(host *infrav1.ElementalHost) { host.Spec.Claim = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(canTakeVIP(newHost("a", "c", test.role, test.change))).To(Equal(test.want))
		})
	}
}

// A join can fail because of its cluster's endpoint. That is no fault of the host.
func TestEndpointExplainsFailure(t *testing.T) {
	moved := metav1.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	onHost := func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
			HostRef:         &infrav1.EndpointHostReference{Name: "h2", ChosenAt: moved},
			FormerEndpoints: []infrav1.FormerEndpoint{{Host: "10.0.0.9", Port: 6443, HostName: "h1"}},
		}
	}
	for name, test := range map[string]struct {
		created time.Duration
		change  func(*infrav1.ElementalCluster)
		want    bool
	}{
		"Machine older than the move":   {-time.Second, onHost, true},
		"Machine younger than the move": {time.Second, onHost, false},
		"endpoint never moved":          {-time.Second, func(*infrav1.ElementalCluster) {}, false},
		"endpoint exchanged before its first use": {-time.Second, func(c *infrav1.ElementalCluster) {
			onHost(c)
			c.Spec.ControlPlaneEndpointPolicy.FormerEndpoints[0].HostName = ""
		}, false},
		"endpoint unreachable": {time.Second, func(c *infrav1.ElementalCluster) {
			onHost(c)
			c.Status.Endpoint = &infrav1.EndpointStatus{UnreachableSince: moved}
		}, true},
		"unknown cluster": {-time.Second, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects := []client.Object{&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "machine-a", CreationTimestamp: metav1.NewTime(moved.Add(test.created)),
			}}}
			if test.change != nil {
				infra, owner := newCluster("c"), newOwner("c")
				test.change(infra)
				objects = append(objects, infra, owner)
			}
			got, err := newReader(t, objects...).EndpointExplainsFailure(t.Context(), newHost("a", "c", infrav1.RoleWorker))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func TestClusterChangeWakesItsHosts(t *testing.T) {
	g := NewWithT(t)
	woken := &wakes{}
	n := NewNotifier(newReader(t, newHost("a", "c", infrav1.RoleControlPlane), newHost("b", "c", infrav1.RoleWorker), newHost("x", "d", infrav1.RoleWorker)), woken, nil)
	before := newCluster("c")
	n.InfraClusterChanged(t.Context(), nil, before)
	g.Expect(woken.take()).To(ConsistOf("a", "b"), "the cluster was created")

	after := before.DeepCopy()
	after.Annotations = map[string]string{"note": "x"}
	n.InfraClusterChanged(t.Context(), before, after)
	g.Expect(woken.take()).To(BeEmpty(), "the endpoint did not change")

	for name, change := range map[string]func(*infrav1.ElementalCluster){
		"endpoint": func(c *infrav1.ElementalCluster) { c.Spec.ControlPlaneEndpoint.Host = "10.0.0.2" },
		"owner": func(c *infrav1.ElementalCluster) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "c"}}
		},
		"virtual IP address": func(c *infrav1.ElementalCluster) { c.Status.VirtualIP = "10.0.0.1" },
		"access":             func(c *infrav1.ElementalCluster) { c.Spec.Access = &infrav1.Access{} },
		"policy": func(c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeExternal
		},
	} {
		after := before.DeepCopy()
		change(after)
		n.InfraClusterChanged(t.Context(), before, after)
		g.Expect(woken.take()).To(ConsistOf("a", "b"), name)
	}

	after = before.DeepCopy()
	after.Spec.EtcdSnapshots = &infrav1.EtcdSnapshots{}
	after.Spec.EtcdSnapshotRecord = &infrav1.EtcdSnapshotRecord{Request: &infrav1.EtcdSnapshotRequest{HostName: "a"}}
	n.InfraClusterChanged(t.Context(), before, after)
	g.Expect(woken.take()).To(ConsistOf("a"), "it is asked for a snapshot of etcd")
	n.InfraClusterChanged(t.Context(), after, before)
	g.Expect(woken.take()).To(ConsistOf("a"), "it is no longer asked")

	after.Spec.EtcdSnapshots.Destination = &infrav1.EtcdSnapshotDestination{}
	after.Spec.EtcdSnapshotRecord = &infrav1.EtcdSnapshotRecord{Last: &infrav1.EtcdSnapshotTaken{HostName: "b"}}
	read := after.DeepCopy()
	read.Status.EtcdSnapshots = &infrav1.UploadedEtcdSnapshots{}
	n.InfraClusterChanged(t.Context(), after, read)
	g.Expect(woken.take()).To(ConsistOf("b"), "it is to upload its snapshot")
	n.InfraClusterChanged(t.Context(), read, after)
	g.Expect(woken.take()).To(ConsistOf("b"), "it no longer is")

	after = before.DeepCopy()
	after.Labels[clusterv1.ClusterNameLabel] = "d"
	n.InfraClusterChanged(t.Context(), before, after)
	g.Expect(woken.take()).To(ConsistOf("a", "b", "x"), "hosts of both clusters")
}

func TestReferenceToInfrastructureWakesHosts(t *testing.T) {
	g := NewWithT(t)
	woken := &wakes{}
	n := NewNotifier(newReader(t, newHost("a", "c", infrav1.RoleControlPlane), newHost("x", "d", infrav1.RoleWorker)), woken, nil)
	before := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}}
	n.ClusterChanged(t.Context(), nil, before)
	g.Expect(woken.take()).To(ConsistOf("a"), "the Cluster was created")
	after := before.DeepCopy()
	after.Labels = map[string]string{"a": "b"}
	n.ClusterChanged(t.Context(), before, after)
	g.Expect(woken.take()).To(BeEmpty())
	after.Spec.InfrastructureRef.Name = "other"
	n.ClusterChanged(t.Context(), before, after)
	g.Expect(woken.take()).To(ConsistOf("a"))
}

func TestHostChangeWakesTheInitialHost(t *testing.T) {
	g := NewWithT(t)
	woken := &wakes{}
	second := newHost("second", "c", infrav1.RoleControlPlane)
	n := NewNotifier(newReader(t, newHost("first", "c", infrav1.RoleInitialControlPlane), second), woken, nil)
	fenced := second.DeepCopy()
	fenced.Spec.Fence = &infrav1.HostFence{}
	n.HostChanged(t.Context(), second, fenced)
	g.Expect(woken.take()).To(Equal([]string{"first"}))
	n.HostChanged(t.Context(), fenced, second)
	g.Expect(woken.take()).To(Equal([]string{"first"}))
	labelled := second.DeepCopy()
	labelled.Labels = map[string]string{"site": "north"}
	n.HostChanged(t.Context(), second, labelled)
	g.Expect(woken.take()).To(BeEmpty(), "it can still take the virtual IP")
}

func TestNewMachineWakesItsHost(t *testing.T) {
	g := NewWithT(t)
	woken := &wakes{}
	n := NewNotifier(newReader(t, newHost("a", "c", infrav1.RoleInitialControlPlane), newHost("b", "c", infrav1.RoleWorker)), woken, nil)
	n.MachineAdded(t.Context(), &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-a"}})
	g.Expect(woken.take()).To(Equal([]string{"a"}))
}

// The manager's rule for images of kube-vip reaches every plan.
func TestThreat51_PlansHaveTheImagePolicy(t *testing.T) {
	g := NewWithT(t)
	policy, err := kubevip.NewImagePolicy([]string{"ghcr.io/kube-vip"}, true)
	g.Expect(err).NotTo(HaveOccurred())
	r := newReader(t, newOwner("c"), newCluster("c"))
	r = NewReader(r.client, r.clock, authority{}, ownURL, policy)
	for _, role := range []infrav1.ClaimRole{infrav1.RoleInitialControlPlane, infrav1.RoleControlPlane} {
		is, err := r.Cluster(t.Context(), newHost("h", "c", role))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(is.Images).To(Equal(policy))
	}
}
