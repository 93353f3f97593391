package router_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/endpointname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/router"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }

const edgeName = "edge-endpoint.sites.svc.cluster.local"

// rig is a Router with objects in memory and tunnels that lead to nothing but themselves.
type rig struct {
	*WithT

	t        *testing.T
	client   client.Client
	tunnels  *tunnels
	router   *router.Router
	handlers informers
}

// newRig returns a rig with the cluster sites/edge.
func newRig(t *testing.T) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, infrav1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{WithT: NewWithT(t), t: t, tunnels: &tunnels{hosts: map[string]*far{}}, handlers: informers{}}
	r.client = controllertest.Wrap(t, fake.NewClientBuilder().WithScheme(scheme).Build(), index.Register)
	r.router = router.New(router.Options{Cache: r.client, Tunnels: r.tunnels, Names: endpointname.Names{ClusterDomain: "cluster.local"}})
	r.Expect(r.router.Watch(t.Context(), r.handlers)).To(Succeed())
	r.cluster("sites", "edge", edgeName)
	return r
}

func (r *rig) create(o client.Object) {
	r.t.Helper()
	r.Expect(r.client.Create(r.t.Context(), o)).To(Succeed())
}

// cluster creates a Cluster and its ElementalCluster of type Tunnel.
func (r *rig) cluster(namespace, name, endpoint string, changes ...func(*clusterv1.Cluster, *infrav1.ElementalCluster)) {
	r.t.Helper()
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)}}
	c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: name}
	infra := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: name, UID: c.UID}},
	}}
	infra.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: endpoint, Port: 16443}
	infra.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
	for _, change := range changes {
		change(c, infra)
	}
	r.create(c)
	r.create(infra)
}

// host creates a control-plane host of sites/edge with its Machine. Its API server is ready,
// and it has a tunnel.
func (r *rig) host(name string, changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	r.t.Helper()
	h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "sites", Name: name, UID: types.UID(name)}}
	h.Spec.Approval = infrav1.ApprovalApproved
	h.Spec.Claim = &infrav1.HostClaim{ID: "claim-" + name, ClusterName: "edge", MachineName: "m-" + name, Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
	h.Status.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeReachable}}
	h.Status.Tunnel = &infrav1.HostTunnel{State: infrav1.ConnectionConnected}
	for _, change := range changes {
		change(h)
	}
	r.create(h)
	r.create(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "sites", Name: "m-" + name, Labels: map[string]string{clusterv1.ClusterNameLabel: "edge"}, Finalizers: []string{"test/hold"},
	}})
	r.tunnels.hosts[name] = &far{}
	return h
}

func namespaced(host string) types.NamespacedName {
	return types.NamespacedName{Namespace: "sites", Name: host}
}

func unready(h *infrav1.ElementalHost) { h.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable }

func worker(h *infrav1.ElementalHost) {
	h.Spec.Claim.Role, h.Status.Endpoint = infrav1.RoleWorker, nil
}

// dial connects to sites/edge, which must succeed.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	conn, err := r.router.Dial(r.t.Context(), edgeName)
	r.Expect(err).NotTo(HaveOccurred())
	return conn
}

// change changes an object and sends the event of it.
func change[T client.Object](r *rig, o T, how func(T)) {
	r.t.Helper()
	r.Expect(r.client.Get(r.t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
	before, _ := o.DeepCopyObject().(T)
	how(o)
	r.Expect(r.client.Update(r.t.Context(), o)).To(Succeed())
	r.handlers.of(o).OnUpdate(before, o)
}

// remove deletes an object and sends the event of it: a change if a finalizer keeps it.
func (r *rig) remove(o client.Object) {
	r.t.Helper()
	r.Expect(r.client.Get(r.t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
	before, _ := o.DeepCopyObject().(client.Object)
	r.Expect(r.client.Delete(r.t.Context(), o)).To(Succeed())
	if r.client.Get(r.t.Context(), client.ObjectKeyFromObject(o), o) == nil {
		r.handlers.of(o).OnUpdate(before, o)
	} else {
		r.handlers.of(o).OnDelete(toolscache.DeletedFinalStateUnknown{Obj: before})
	}
}

// informers keep the handlers, by kind.
type informers map[string]toolscache.ResourceEventHandler

func kindName(o client.Object) string {
	switch o.(type) {
	case *infrav1.ElementalHost:
		return "host"
	case *infrav1.ElementalCluster:
		return "infra"
	case *clusterv1.Cluster:
		return "cluster"
	default:
		return "machine"
	}
}

func (i informers) of(o client.Object) toolscache.ResourceEventHandler { return i[kindName(o)] }

func (i informers) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return informer{add: func(h toolscache.ResourceEventHandler) { i[kindName(o)] = h }}, nil
}

type informer struct {
	cache.Informer

	add func(toolscache.ResourceEventHandler)
}

func (i informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.add(h)
	return nil, nil
}

// tunnels are fake tunnels, by the host's name.
type tunnels struct {
	mu    sync.Mutex
	hosts map[string]*far
	// dialed are the hosts in the order in which they were dialed.
	dialed []string
	// during is called during each dial.
	during func(host string)
}

// far is the far end of a host's tunnel.
type far struct {
	// err is the error of each dial; nil for success.
	err error
	// streams are the ends of the open connections.
	streams []net.Conn
}

func (t *tunnels) Dial(ctx context.Context, host types.NamespacedName, target string) (net.Conn, error) {
	t.mu.Lock()
	t.dialed = append(t.dialed, host.Name)
	is, during := t.hosts[host.Name], t.during
	t.mu.Unlock()
	if target != "kube-apiserver" || host.Namespace != "sites" {
		return nil, errors.New("unexpected target")
	}
	if during != nil {
		during(host.Name)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if is == nil {
		return nil, tunnel.ErrAbsent
	}
	if is.err != nil {
		return nil, is.err
	}
	near, end := net.Pipe()
	t.mu.Lock()
	is.streams = append(is.streams, end)
	t.mu.Unlock()
	return near, nil
}

func (t *tunnels) Streams(host types.NamespacedName) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if is := t.hosts[host.Name]; is != nil {
		return len(is.streams)
	}
	return 0
}

// takeDialed returns the dialed hosts since the last call.
func (t *tunnels) takeDialed() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { t.dialed = nil }()
	return strings.Join(slices.Clone(t.dialed), " ")
}

// isOpen reports whether a connection is open, by a write to it that the far end of some
// tunnel reads.
func (r *rig) isOpen(conn net.Conn) bool {
	r.t.Helper()
	r.tunnels.mu.Lock()
	for _, is := range r.tunnels.hosts {
		for _, end := range is.streams {
			go func() { _, _ = io.Copy(io.Discard, end) }()
		}
	}
	r.tunnels.mu.Unlock()
	_, err := conn.Write([]byte("x"))
	return err == nil
}
