package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/tunnel"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/endpointname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/clusters"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/passthrough"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/router"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
)

const (
	// gatewayService is the name of the Service by which clients reach the gateway.
	gatewayService = "elemental-gateway"
	// defaultEndpointPort is the port of that Service. It must not be a port that a
	// control-plane host itself listens on.
	defaultEndpointPort = 16443
	// defaultClusterDomain is the domain of most clusters' DNS.
	defaultClusterDomain = "cluster.local"
	// resolverConfig has the cluster's domain in each Pod that uses its DNS.
	resolverConfig = "/etc/resolv.conf"
)

// gatewayOptions are the flags of the gateway to clusters whose endpoint is of type Tunnel.
type gatewayOptions struct {
	passthroughAddress string
	proxyAddress       string
	url                string
	certDir            string
	endpointPort       int32
	clusterDomain      string
	endpointDomain     string
}

func (o *gatewayOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.passthroughAddress, "gateway-passthrough-address", ":16443", "Address at which the gateway passes TLS connections on to the API servers of clusters whose endpoint is of type Tunnel; no gateway when blank.")
	fs.StringVar(&o.proxyAddress, "gateway-proxy-address", ":16444", "Address at which the gateway serves users of workload clusters, who have the rights that these clusters give them; not served when blank.")
	fs.StringVar(&o.url, "gateway-url", "", "URL at which users reach the gateway, https://host[:port].")
	fs.StringVar(&o.certDir, "gateway-cert-dir", "", "Folder with the certificate of the gateway for users, tls.crt and tls.key, and its CA, ca.crt, if clients don't know it; read again when it changes. The manager issues one itself when blank.")
	fs.Int32Var(&o.endpointPort, "endpoint-port", defaultEndpointPort, "Port of endpoints of type Tunnel: that of the gateway's Service.")
	fs.StringVar(&o.clusterDomain, "cluster-domain", "", "Domain of the management cluster's DNS; when blank that of the Pod's resolv.conf, else "+defaultClusterDomain+".")
	fs.StringVar(&o.endpointDomain, "endpoint-domain", "", "Domain whose names below all lead to the gateway. Endpoints of type Tunnel get names in it, and no Services.")
}

// validate returns an error that names the first invalid flag.
func (o *gatewayOptions) validate() error {
	if o.endpointPort < 1 || o.endpointPort > 65535 {
		return fmt.Errorf("--endpoint-port must be between 1 and 65535")
	}
	// Hosts of the control plane listen there on all addresses, and the forwarder of an
	// endpoint on a loopback address.
	if slices.Contains([]int32{infrav1.DefaultControlPlanePort, 9345}, o.endpointPort) {
		return fmt.Errorf("--endpoint-port must not be %d, because API servers and RKE2 listen on it", o.endpointPort)
	}
	if o.url != "" && !isServerURL(o.url) {
		return fmt.Errorf("--gateway-url must be https://host[:port], not %q", o.url)
	}
	for name, domain := range map[string]string{"cluster-domain": o.clusterDomain, "endpoint-domain": o.endpointDomain} {
		if domain == "" {
			continue
		}
		if len(validation.IsDNS1123Subdomain(domain)) > 0 || len(domain) > endpointname.MaxDomain {
			return fmt.Errorf("--%s must be a domain of at most %d characters in lower case, not %q", name, endpointname.MaxDomain, domain)
		}
	}
	return nil
}

// settings returns how clients reach the gateway of a manager in that namespace.
func (o *gatewayOptions) settings(namespace string) tunnel.Settings {
	names := endpointname.Names{ClusterDomain: cmp.Or(o.clusterDomain, clusterDomain(resolverConfig)), EndpointDomain: o.endpointDomain}
	return tunnel.Settings{
		Names: names, Gateway: names.Service(namespace, gatewayService),
		Port: o.endpointPort,
	}
}

// setupGateway adds the gateway, which dials through the tunnels of agents. It returns the
// manager's own way to workload clusters.
func setupGateway(ctx context.Context, mgr ctrl.Manager, agents *server.Server, ca *authority.Authority, tlsOptions []func(*tls.Config), o *options) (*clusters.Connector, error) {
	routes := router.New(router.Options{Cache: mgr.GetClient(), Tunnels: agents, Names: o.gateway.settings(managerNamespace()).Names})
	if err := routes.Watch(ctx, mgr.GetCache()); err != nil {
		return nil, fmt.Errorf("setting up the gateway: %w", err)
	}
	if err := addPassthrough(mgr, routes, o); err != nil {
		return nil, fmt.Errorf("setting up the gateway: %w", err)
	}
	workloads := clusters.New(clusters.Options{Cache: mgr.GetClient(), Live: mgr.GetAPIReader(), Dial: routes.DialCluster, Clock: clock.RealClock{}, Namespace: o.namespace})
	if err := addFrontend(mgr, workloads, ca, tlsOptions, o); err != nil {
		return nil, fmt.Errorf("setting up the gateway for users: %w", err)
	}
	return workloads, nil
}

// addPassthrough adds the gateway for holders of a cluster's kubeconfig.
func addPassthrough(mgr ctrl.Manager, routes *router.Router, o *options) error {
	if o.gateway.passthroughAddress == "" {
		return nil
	}
	gateway, err := passthrough.New(passthrough.Options{
		Router: routes, DialErrors: router.DialErrors(), Metrics: metrics.Registry, Clock: clock.RealClock{}, Address: o.gateway.passthroughAddress,
	})
	if err != nil {
		return err // says of what
	}
	return mgr.Add(gateway) // says why not
}

// clusterDomain returns the domain of the cluster's DNS, from the search list of a
// resolv.conf: a kubelet begins it with NAMESPACE.svc.DOMAIN, svc.DOMAIN and DOMAIN.
func clusterDomain(file string) string {
	config, err := os.Open(file)
	if err != nil {
		return defaultClusterDomain
	}
	defer func() { _ = config.Close() }()
	found := defaultClusterDomain
	for lines := bufio.NewScanner(config); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] != "search" {
			continue
		}
		// The last list counts, as for the resolver.
		found = defaultClusterDomain
		if len(fields) > 3 && fields[2] == "svc."+fields[3] && strings.HasSuffix(fields[1], "."+fields[2]) {
			found = fields[3]
		}
	}
	return found
}
