package tunnels

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/clusters"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/review"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

const (
	// childName is the name of the workload cluster, in the default namespace.
	childName = "child"
	// userName is the ServiceAccount of the management cluster that lists Pods.
	userName = "ann"
	// headerTimeout bounds the header of a request to the proxy.
	headerTimeout = 10 * time.Second
)

// chain is an authentication proxy, and a tunnel behind it.
type chain struct {
	proxied, direct *user

	front   *http.Server
	session *tunnel.Session
	served  chan struct{}
	// stop ends the cache of the management cluster.
	stop context.CancelFunc
}

// newChain builds the proxy of a management cluster as the manager does, and a tunnel to the API server of another one.
func newChain(ctx context.Context, management, child *embedded.Cluster) (_ *chain, err error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building a scheme: %w", err)
		}
	}
	admin, err := client.New(management.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if err := addCluster(ctx, admin, child); err != nil {
		return nil, err
	}
	token, err := addUser(ctx, admin, child)
	if err != nil {
		return nil, err
	}
	c := &chain{served: make(chan struct{})}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := c.openTunnel(ctx, child.Config.Host); err != nil {
		return nil, err
	}
	cached, err := cache.New(management.Config, cache.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a cache: %w", err)
	}
	var watching context.Context
	watching, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() { _ = cached.Start(watching) }()
	if err := c.serve(ctx, admin, cached, token); err != nil {
		return nil, err
	}
	// A client of its own, as the one of the configuration may be shared.
	direct, err := rest.TransportFor(child.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	c.direct = &user{http: &http.Client{Transport: direct}, server: child.Config.Host}
	return c, nil
}

// addCluster creates the workload cluster in the management cluster.
func addCluster(ctx context.Context, admin client.Client, child *embedded.Cluster) error {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: childName}
	cluster := &clusterv1.Cluster{ObjectMeta: meta}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: childName}
	if err := admin.Create(ctx, cluster); err != nil {
		return fmt.Errorf("creating the Cluster: %w", err)
	}
	infra := &infrav1.ElementalCluster{ObjectMeta: meta}
	infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: childName, UID: cluster.UID}}
	infra.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
	if err := admin.Create(ctx, infra); err != nil {
		return fmt.Errorf("creating the ElementalCluster: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://localhost:16443", CertificateAuthorityData: child.Config.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: child.Config.CertData, ClientKeyData: child.Config.KeyData}
	config.Contexts["x"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	secret := &corev1.Secret{ObjectMeta: meta, Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": raw}}
	secret.Name, secret.Labels = childName+"-kubeconfig", map[string]string{clusterv1.ClusterNameLabel: childName}
	if err := admin.Create(ctx, secret); err != nil {
		return fmt.Errorf("creating the kubeconfig of the Cluster: %w", err)
	}
	return nil
}

// addUser creates a user who may use the proxy and list Pods, and returns its token.
func addUser(ctx context.Context, admin client.Client, child *embedded.Cluster) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: userName}}
	if err := admin.Create(ctx, account); err != nil {
		return "", fmt.Errorf("creating a user: %w", err)
	}
	subject := "system:serviceaccount:" + metav1.NamespaceDefault + ":" + userName
	rule := rbacv1.PolicyRule{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"clusters/proxy"}, Verbs: []string{"create"}}
	if err := grant(ctx, admin, subject, rule); err != nil {
		return "", err
	}
	inside, err := client.New(child.Config, client.Options{})
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	if err := grant(ctx, inside, "management:"+subject, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}); err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{}
	if err := admin.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("requesting a token: %w", err)
	}
	return request.Status.Token, nil
}

// grant gives a user a right.
func grant(ctx context.Context, admin client.Client, user string, rule rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Name: "bench"}
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		},
	} {
		if err := admin.Create(ctx, o); err != nil {
			return fmt.Errorf("giving user %s rights: %w", user, err)
		}
	}
	return nil
}

// openTunnel opens a tunnel over TLS on the loopback to an API server.
func (c *chain) openTunnel(ctx context.Context, apiServer string) error {
	to, err := url.Parse(apiServer)
	if err != nil {
		return fmt.Errorf("reading the API server's URL: %w", err)
	}
	server, agent, err := newTLS()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		defer close(c.served)
		conn, err := (&tls.Dialer{Config: agent}).DialContext(ctx, "tcp", listener.Addr().String())
		if err != nil {
			return // the manager's end fails too
		}
		_ = tunnel.Serve(context.WithoutCancel(ctx), conn, func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", to.Host)
		})
	}()
	conn, err := listener.Accept()
	if err != nil {
		return fmt.Errorf("accepting a tunnel: %w", err)
	}
	c.session, err = tunnel.NewSession(ctx, tls.Server(conn, server))
	return err
}

// serve serves the proxy to the user with a token.
func (c *chain) serve(ctx context.Context, admin client.Client, cached client.Reader, token string) error {
	server, trusting, err := newTLS()
	if err != nil {
		return err
	}
	reviews := review.Options{Client: admin, Clock: clock.RealClock{}}
	handler, err := proxy.New(proxy.Options{
		Authenticator: review.Authenticator(reviews, func() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, false }),
		Authorizer:    review.Authorizer(reviews),
		Clusters: clusters.New(clusters.Options{Cache: cached, Live: admin, Clock: clock.RealClock{}, Dial: func(ctx context.Context, _ types.NamespacedName) (net.Conn, error) {
			return c.session.Dial(ctx, protocol.TargetAPIServer)
		}}),
		Clock: clock.RealClock{}, Audit: logr.Discard(), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server.ClientAuth = tls.NoClientCert
	c.front = &http.Server{Handler: handler, TLSConfig: server, ReadHeaderTimeout: headerTimeout}
	go func() { _ = c.front.ServeTLS(listener, "", "") }()
	trusting.Certificates = nil
	c.proxied = &user{
		http:   &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: trusting}},
		server: "https://" + listener.Addr().String() + "/clusters/" + metav1.NamespaceDefault + "/" + childName, token: token,
	}
	return nil
}

// settle waits until the proxy has made the user's rights, and API servers know them.
func (c *chain) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settled)
	defer cancel()
	for {
		_, err := c.proxied.list(ctx)
		if err == nil {
			return nil
		}
		if late := measure.Pause(ctx, time.Second); late != nil {
			return errors.Join(late, err)
		}
	}
}

func (c *chain) close() {
	if c.stop != nil {
		c.stop()
	}
	if c.front != nil {
		_ = c.front.Close()
	}
	if c.session != nil {
		c.session.Close(nil)
		<-c.served
	}
}

// newTLS returns the settings of both ends of a connection with mutual TLS 1.3.
func newTLS() (server, client *tls.Config, err error) {
	authority, err := pki.NewAuthority("bench", time.Now())
	if err != nil {
		return nil, nil, err
	}
	pair, err := authority.Peer("bench")
	if err != nil {
		return nil, nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("reading a certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Certificate)
	server = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots}
	client = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, RootCAs: roots, ServerName: "localhost"}
	return server, client, nil
}
