package clusters

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/impersonator"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
)

const (
	// readInterval is how often a kubeconfig is read again: the control-plane provider renews
	// its certificate long before the end.
	readInterval = 10 * time.Minute
	// adminTimeout bounds a request with which the proxy's rights are set up.
	adminTimeout = 10 * time.Second
	// idleTimeout closes connections of a cluster that nobody asks for anything.
	idleTimeout = 90 * time.Second
)

// serverName is in the serving certificate of every API server, by whatever it was set up.
const serverName = "kubernetes.default.svc"

// identity changes if a cluster is made anew, or its endpoint gets another type.
type identity struct {
	// uid of the Cluster.
	uid types.UID
	// isNamed: the endpoint is a name that never changes. The certificates of API servers may
	// lack an endpoint of another type that has moved since they were issued.
	isNamed bool
}

// cluster is how to connect to a workload cluster. Its fields do not change.
type cluster struct {
	identity

	kubeconfig string
	readAt     time.Time

	host string
	// ca verifies the API servers, PEM.
	ca                 []byte
	requests, upgrades *http.Transport
	admin              client.Client
	account            *impersonator.Account
}

func (c *cluster) close() {
	c.requests.CloseIdleConnections()
	c.upgrades.CloseIdleConnections()
}

// kubeconfig returns the kubeconfig that Cluster API's controllers use.
func (c *Connector) kubeconfig(ctx context.Context, key types.NamespacedName) (string, error) {
	found := &corev1.Secret{}
	err := c.o.Live.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: secret.Name(key.Name, secret.Kubeconfig)}, found)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return "", fmt.Errorf("getting the kubeconfig of Cluster %s: %w", key, err)
	case err != nil, found.Labels[clusterv1.ClusterNameLabel] != key.Name:
		// The kubeconfig of another Cluster may have this name.
		return "", fmt.Errorf("%w: its control plane is not initialized, so it has no kubeconfig", proxy.ErrUnreachable)
	}
	return string(found.Data[secret.KubeconfigDataName]), nil
}

// connectTo returns how to connect to a cluster. It opens no connection.
func (c *Connector) connectTo(key types.NamespacedName, is identity, kubeconfig string) (*cluster, error) {
	config, server, err := configOf([]byte(kubeconfig))
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// Whatever address the kubeconfig has, the gateway dials: nothing else reaches the cluster.
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return c.o.Dial(ctx, key) }
	if !is.isNamed && config.ServerName == "" {
		config.ServerName = serverName
	}
	config.Dial, config.QPS, config.Timeout = dial, -1, adminTimeout
	admin, err := client.New(config, client.Options{Scheme: scheme(), Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("making a client of the workload cluster: %w", err)
	}
	made := &cluster{
		identity: is, kubeconfig: kubeconfig, readAt: c.o.Clock.Now(),
		host: server, ca: config.CAData, admin: admin, account: impersonator.New(admin, c.o.Clock),
	}
	if made.requests, err = transport(config, dial, true); err != nil {
		return nil, err
	}
	if made.upgrades, err = transport(config, dial, false); err != nil {
		return nil, err
	}
	return made, nil
}

// transport returns a transport that knows the cluster's CA and has no credentials.
func transport(config *rest.Config, dial func(ctx context.Context, network, address string) (net.Conn, error), http2 bool) (*http.Transport, error) {
	tls, err := rest.TLSConfigFor(rest.AnonymousClientConfig(config))
	if err != nil {
		return nil, fmt.Errorf("reading the CA in the kubeconfig: %w", err)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	return &http.Transport{
		DialContext: dial, TLSClientConfig: tls, Protocols: protocols, TLSHandshakeTimeout: adminTimeout,
		IdleConnTimeout: idleTimeout, DisableCompression: true,
	}, nil
}

// scheme has the kinds that clients of workload clusters use.
func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, certificatesv1.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}

// mapper knows the scopes of these kinds, so that the workload cluster is not asked for them.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	m.Add(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), meta.RESTScopeRoot)
	m.Add(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), meta.RESTScopeRoot)
	m.Add(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), meta.RESTScopeRoot)
	m.Add(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), meta.RESTScopeRoot)
	return m
}
