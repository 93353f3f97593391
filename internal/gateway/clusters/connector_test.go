package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/clusters"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const endpoint = "c-endpoint.shop.svc.cluster.local"

var environment *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { environment = e }, envtest.WithAuthority()))
}

// rig is a management cluster with the Cluster c. The API server is also that of c.
type rig struct {
	*WithT
	client    client.Client
	clock     *clocktesting.FakePassiveClock
	namespace string
	connector *clusters.Connector
	secrets   *secrets

	mu sync.Mutex
	// dialed are the clusters that were dialed.
	dialed []types.NamespacedName
	broken bool
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		WithT: NewWithT(t), client: environment.Client(t), namespace: environment.Namespace(t),
		clock: clocktesting.NewFakePassiveClock(time.Now()),
	}
	server, err := url.Parse(environment.Config.Host)
	r.Expect(err).NotTo(HaveOccurred())
	if server.Host == "" {
		server.Host = environment.Config.Host
	}
	r.secrets = &secrets{Reader: r.client}
	r.connector = clusters.New(clusters.Options{
		Cache: r.client, Live: r.secrets, Clock: r.clock,
		Dial: func(ctx context.Context, cluster types.NamespacedName) (net.Conn, error) {
			r.mu.Lock()
			r.dialed = append(r.dialed, cluster)
			broken := r.broken
			r.mu.Unlock()
			if broken {
				return nil, errors.New("no host has a tunnel")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Host)
		},
	})
	return r
}

// secrets are those of the management cluster.
type secrets struct {
	client.Reader

	// reading is called when one is read; nil for nothing.
	reading func()
}

func (s *secrets) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if s.reading != nil {
		s.reading()
	}
	return s.Reader.Get(ctx, key, o, opts...)
}

func (r *rig) create(o client.Object) {
	r.Expect(r.client.Create(context.Background(), o)).To(Succeed())
}

// cluster creates a Cluster and its ElementalCluster of type Tunnel, with the changes applied.
func (r *rig) cluster(name string, changes ...func(*infrav1.ElementalCluster)) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}
	c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: name}
	r.create(c)
	infra := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: name, UID: c.UID},
	}}}
	infra.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
	infra.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: endpoint, Port: 16443}
	for _, change := range changes {
		change(infra)
	}
	r.create(infra)
	return c
}

// kubeconfig creates the Secret of a Cluster, as its control-plane provider does. The server has
// the name of the test's API server.
func (r *rig) kubeconfig(cluster string) { r.kubeconfigOf(cluster, "https://localhost:16443") }

func (r *rig) kubeconfigOf(cluster, server string) {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: environment.Bundle()}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: environment.Config.CertData, ClientKeyData: environment.Config.KeyData}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	raw, err := clientcmd.Write(*config)
	r.Expect(err).NotTo(HaveOccurred())
	r.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: cluster + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
		Data:       map[string][]byte{"value": raw},
	})
}

func (r *rig) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: name}
}

func (r *rig) connect(name string) (proxy.Connection, error) {
	return r.connector.Connect(context.Background(), r.key(name), proxy.Identity{User: "ann", Groups: []string{"ops"}})
}

// whoami asks the workload cluster who the user is, through the connection.
func (r *rig) whoami(connection proxy.Connection, transport http.RoundTripper) (int, string) {
	body := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost,
		"https://"+connection.Host+"/apis/authentication.k8s.io/v1/selfsubjectreviews", strings.NewReader(body))
	r.Expect(err).NotTo(HaveOccurred())
	request.Header = http.Header{
		"Authorization": {"Bearer " + connection.Token}, "Content-Type": {"application/json"},
		"Impersonate-User": {"ann"}, "Impersonate-Group": {"ops"},
	}
	response, err := transport.RoundTrip(request)
	r.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	r.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, fmt.Sprint(response.Proto, " ", string(answer))
}

// The connection leads to the cluster's API server through the gateway, as the caller.
func TestConnect(t *testing.T) {
	r := newRig(t)
	r.cluster("c")
	r.kubeconfig("c")
	connection, err := r.connect("c")
	r.Expect(err).NotTo(HaveOccurred())
	for want, transport := range map[string]http.RoundTripper{"HTTP/2.0": connection.Requests, "HTTP/1.1": connection.Upgrades} {
		r.Eventually(func(g Gomega) {
			code, answer := r.whoami(connection, transport)
			g.Expect(code).To(Equal(http.StatusCreated), answer)
			g.Expect(answer).To(And(HavePrefix(want), ContainSubstring(`"username":"ann"`), ContainSubstring(`"ops"`)))
		}, time.Minute).Should(Succeed())
	}
	r.mu.Lock()
	r.Expect(r.dialed).To(HaveEach(r.key("c")))
	r.mu.Unlock()

	again, err := r.connect("c")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(again).To(Equal(connection), "nothing is made anew")
	r.clock.SetTime(r.clock.Now().Add(11 * time.Minute))
	again, err = r.connect("c")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(again.Requests).To(BeIdenticalTo(connection.Requests), "the kubeconfig is the same")
}

// kubectl begins with several requests at once. They must not create the proxy's rights twice
// at the same time, of which one attempt would fail.
func TestFirstRequestsAtOnce(t *testing.T) {
	r := newRig(t)
	r.cluster("c")
	r.kubeconfig("c")
	const requests = 4
	var read sync.WaitGroup
	read.Add(requests)
	r.secrets.reading = func() {
		read.Done()
		read.Wait()
	}
	connections, failures := make([]proxy.Connection, requests), make([]error, requests)
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() { connections[i], failures[i] = r.connect("c") })
	}
	all.Wait()
	for i := range requests {
		r.Expect(failures[i]).NotTo(HaveOccurred())
		r.Expect(connections[i]).To(Equal(connections[0]))
		r.Expect(connections[i].Requests).To(BeIdenticalTo(connections[0].Requests))
	}
}

// A cluster of another type has access if spec says so. Its API servers are verified by the
// name that all have: not all have the endpoint in their certificates after a move.
func TestAccessWithAnotherEndpoint(t *testing.T) {
	r := newRig(t)
	withAddress := func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeExternal
		c.Spec.ControlPlaneEndpoint.Host = "192.0.2.1"
	}
	r.cluster("c", withAddress, func(c *infrav1.ElementalCluster) { c.Spec.Access = &infrav1.Access{} })
	r.kubeconfigOf("c", "https://192.0.2.1:6443")
	connection, err := r.connect("c")
	r.Expect(err).NotTo(HaveOccurred())
	r.Eventually(func(g Gomega) {
		code, answer := r.whoami(connection, connection.Requests)
		g.Expect(code).To(Equal(http.StatusCreated), answer)
		g.Expect(answer).To(ContainSubstring(`"username":"ann"`))
	}, time.Minute).Should(Succeed())

	r.cluster("d", withAddress)
	r.kubeconfigOf("d", "https://192.0.2.1:6443")
	_, err = r.connect("d")
	r.Expect(err).To(MatchError(proxy.ErrNoCluster), "nobody has given access to it")
}

// Users lose their access at once, but the bindings are deleted through tunnels.
func TestAccessTakenAway(t *testing.T) {
	r := newRig(t)
	external := func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeExternal
	}
	r.cluster("c", external)
	r.kubeconfig("c")
	_, err := r.connector.Admin(t.Context(), r.key("c"))
	r.Expect(err).To(MatchError(proxy.ErrNoCluster))
	infra := &infrav1.ElementalCluster{}
	r.Expect(r.client.Get(t.Context(), r.key("c"), infra)).To(Succeed())
	infra.Status.Conditions = []metav1.Condition{{
		Type: infrav1.AccessReadyCondition, Status: metav1.ConditionFalse, Reason: "Any", LastTransitionTime: metav1.Now(),
	}}
	r.Expect(r.client.Status().Update(t.Context(), infra)).To(Succeed())
	admin, err := r.connector.Admin(t.Context(), r.key("c"))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(admin.List(t.Context(), &rbacv1.ClusterRoleBindingList{})).To(Succeed())
	_, err = r.connect("c")
	r.Expect(err).To(MatchError(proxy.ErrNoCluster))
}

// A Cluster of the same name that was made anew is another one.
func TestClusterMadeAnew(t *testing.T) {
	r := newRig(t)
	c := r.cluster("c")
	r.kubeconfig("c")
	before, err := r.connect("c")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.client.Delete(t.Context(), c)).To(Succeed())
	_, err = r.connect("c")
	r.Expect(err).To(MatchError(proxy.ErrNoCluster))
	r.Expect(r.client.Delete(t.Context(), &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "c"}})).To(Succeed())
	r.cluster("c")
	after, err := r.connect("c")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(after.Requests).NotTo(BeIdenticalTo(before.Requests))
}

func TestNoConnection(t *testing.T) {
	r := newRig(t)
	_, err := r.connect("c")
	r.Expect(err).To(MatchError(proxy.ErrNoCluster), "no Cluster")
	r.cluster("c")
	_, err = r.connect("c")
	r.Expect(err).To(MatchError(proxy.ErrUnreachable), "no kubeconfig yet")
	r.kubeconfig("c")
	r.mu.Lock()
	r.broken = true
	r.mu.Unlock()
	_, err = r.connect("c")
	r.Expect(err).To(And(MatchError(proxy.ErrUnreachable), MatchError(ContainSubstring("no host has a tunnel"))))

	impostor := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "impostor"}}
	impostor.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
	r.create(impostor)
	other := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "d"}}
	other.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: "impostor"}
	r.create(other)
	_, err = r.connect("d")
	r.Expect(err).To(MatchError(proxy.ErrNoCluster), "the ElementalCluster does not belong to the Cluster")
}
