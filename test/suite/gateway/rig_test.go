package gateway

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/certificate"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/clusters"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/frontend"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/review"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	patience = time.Minute
	often    = 50 * time.Millisecond
	// annToken is the token of the user ann, who is in the group ops.
	annToken = "token-of-ann"
	cluster  = "edge"
)

// rig is a management cluster with the workload cluster edge, and the gateway between them.
type rig struct {
	*WithT
	t                 *testing.T
	management, child *envtest.Environment
	namespace         string
	clock             *clocktesting.FakeClock
	// url of the gateway, and the CA of its certificate.
	url string
	ca  []byte
	// childLog is the audit log of the workload cluster, lines that of the gateway.
	childLog string
	lines    chan string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tokens := write("tokens.csv", annToken+`,ann,1,"ops"`+"\n")
	policy := write("policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	r := &rig{
		WithT: NewWithT(t), t: t, clock: clocktesting.NewFakeClock(time.Now()), childLog: filepath.Join(folder, "audit.log"),
		lines: make(chan string, 1000),
	}
	r.management = envtest.Start(t, envtest.WithFlag("token-auth-file", tokens))
	r.child = envtest.Start(t, envtest.Bare(), envtest.WithFlag("audit-policy-file", policy), envtest.WithFlag("audit-log-path", r.childLog))
	r.namespace = r.management.Namespace(t)
	r.createCluster()
	r.serve()
	return r
}

func (r *rig) create(e *envtest.Environment, o client.Object) {
	r.t.Helper()
	r.Expect(e.Client(r.t).Create(context.Background(), o)).To(Succeed())
}

// createCluster creates the Cluster with what its providers create.
func (r *rig) createCluster() {
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: cluster}}
	c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: cluster}
	r.create(r.management, c)
	infra := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: cluster, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster, UID: c.UID},
	}}}
	infra.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
	infra.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "edge-endpoint", Port: 16443}
	r.create(r.management, infra)
	config := clientcmdapi.NewConfig()
	admin := r.child.Config
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://localhost:16443", CertificateAuthorityData: admin.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.CertData, ClientKeyData: admin.KeyData}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	raw, err := clientcmd.Write(*config)
	r.Expect(err).NotTo(HaveOccurred())
	r.create(r.management, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: cluster + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
		Data:       map[string][]byte{"value": raw},
	})
}

// tunnel returns the manager's end of a tunnel to the workload cluster.
func (r *rig) tunnel(ctx context.Context) *tunnel.Session {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	r.Expect(err).NotTo(HaveOccurred())
	far, err := net.Dial("tcp", listener.Addr().String())
	r.Expect(err).NotTo(HaveOccurred())
	near, err := listener.Accept()
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(listener.Close()).To(Succeed())
	server, err := url.Parse(r.child.Config.Host)
	r.Expect(err).NotTo(HaveOccurred())
	address := server.Host
	if address == "" {
		address = r.child.Config.Host
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = tunnel.Serve(ctx, far, func(ctx context.Context, target string) (net.Conn, error) {
			if target != protocol.TargetAPIServer {
				return nil, tunnel.ErrForbidden
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		})
	}()
	session, err := tunnel.NewSession(ctx, near)
	r.Expect(err).NotTo(HaveOccurred())
	r.t.Cleanup(func() {
		session.Close(nil)
		<-served
	})
	return session
}

// serve runs the gateway until the end of the test.
func (r *rig) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	session := r.tunnel(ctx)
	c := r.management.Client(r.t)
	cas, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", "kube-system", "extension-apiserver-authentication",
		"client-ca-file", kubernetes.NewForConfigOrDie(r.management.Config))
	r.Expect(err).NotTo(HaveOccurred())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		cas.Run(ctx, 1)
	}()
	r.Eventually(func() bool {
		_, ok := cas.VerifyOptions()
		return ok
	}).WithTimeout(patience).Should(BeTrue())
	reviews := review.Options{Client: c, Clock: r.clock}
	proxied, err := proxy.New(proxy.Options{
		Authenticator: review.Authenticator(reviews, cas.VerifyOptions), Authorizer: review.Authorizer(reviews),
		Clusters: clusters.New(clusters.Options{Cache: c, Live: c, Clock: r.clock, Dial: func(ctx context.Context, _ types.NamespacedName) (net.Conn, error) {
			return session.Dial(ctx, protocol.TargetAPIServer)
		}}),
		Clock: r.clock, Metrics: prometheus.NewRegistry(),
		Audit: funcr.New(func(_, line string) { r.lines <- line }, funcr.Options{}),
	})
	r.Expect(err).NotTo(HaveOccurred())
	issuer := authority.New(c, c, r.namespace, r.clock)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	r.Expect(err).NotTo(HaveOccurred())
	server, err := frontend.New(frontend.Options{
		Handlers: map[string]http.Handler{"/clusters/": proxied}, Certificate: certificate.FromAuthority(issuer, r.clock, "127.0.0.1"),
		Metrics: prometheus.NewRegistry(), Clock: r.clock, Listener: listener,
	})
	r.Expect(err).NotTo(HaveOccurred())
	bundle, err := issuer.Bundle(ctx)
	r.Expect(err).NotTo(HaveOccurred())
	r.url, r.ca = "https://"+listener.Addr().String(), []byte(bundle)
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		for {
			select {
			case err := <-ended:
				r.Expect(err).NotTo(HaveOccurred())
				<-watched
				return
			case <-time.After(often):
				r.clock.Step(time.Second) // over the time to drain
			}
		}
	})
}

// user returns the client configuration of a user with a token.
func (r *rig) user(token string) *rest.Config {
	return &rest.Config{
		Host: r.url + "/clusters/" + r.namespace + "/" + cluster, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: r.ca},
	}
}

// clientOf returns a client of the workload cluster through the gateway.
func (r *rig) clientOf(config *rest.Config) kubernetes.Interface {
	r.t.Helper()
	c, err := kubernetes.NewForConfig(config)
	r.Expect(err).NotTo(HaveOccurred())
	return c
}

// admit lets a user in to the workload cluster, and returns the binding.
func (r *rig) admit(name string, subject rbacv1.Subject) *rbacv1.RoleBinding {
	r.t.Helper()
	meta := metav1.ObjectMeta{Namespace: r.namespace, Name: name}
	r.create(r.management, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"clusters/proxy"}, ResourceNames: []string{cluster}, Verbs: []string{"create"}},
	}})
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{subject}}
	r.create(r.management, binding)
	return binding
}

// bind gives a user of the workload cluster a role there, and returns the binding.
func (r *rig) bind(name, role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	r.t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{subject},
	}
	r.create(r.child, binding)
	return binding
}

func userNamed(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// whoami returns whom the workload cluster takes a user for. It waits until the user is let in.
func (r *rig) whoami(config *rest.Config) authenticationv1.UserInfo {
	r.t.Helper()
	c := r.clientOf(config)
	var info authenticationv1.UserInfo
	r.Eventually(func() error {
		r.clock.Step(11 * time.Second) // a refusal is kept for ten
		review, err := c.AuthenticationV1().SelfSubjectReviews().Create(context.Background(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err == nil {
			info = review.Status.UserInfo
		}
		return err
	}).WithTimeout(patience).WithPolling(often).Should(Succeed())
	return info
}
