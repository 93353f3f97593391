package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/certificate"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/clusters"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/direct"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/frontend"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/review"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
)

// usersService is the name of the Service by which users reach the gateway.
const usersService = "elemental-gateway-proxy"

// addFrontend adds the gateway for users of the management cluster.
func addFrontend(mgr ctrl.Manager, workloads *clusters.Connector, ca *authority.Authority, tlsOptions []func(*tls.Config), o *options) error {
	if o.gateway.proxyAddress == "" {
		return nil
	}
	cas, err := clientCAs(mgr)
	if err != nil {
		return err
	}
	reviews := review.Options{Client: mgr.GetClient(), Clock: clock.RealClock{}}
	users, rights := review.Authenticator(reviews, cas.VerifyOptions), review.Authorizer(reviews)
	served, err := o.gateway.certificate(ca)
	if err != nil {
		return err // says of what
	}
	if err := certificate.RegisterMetrics(served, metrics.Registry); err != nil {
		return err // says of what
	}
	proxied, err := proxy.New(proxy.Options{
		Authenticator: users, Authorizer: rights, Clusters: workloads, Clock: clock.RealClock{},
		Audit: ctrl.Log.WithName("audit"), Metrics: metrics.Registry,
	})
	if err != nil {
		return err // says of what
	}
	handlers := map[string]http.Handler{"/clusters/": proxied}
	if o.gateway.url != "" {
		handlers[direct.Prefix], err = direct.New(direct.Options{
			Authenticator: users, Authorizer: rights, Clusters: workloads, URL: strings.TrimSuffix(o.gateway.url, "/"), CA: served.CA,
			Clock: clock.RealClock{}, Audit: ctrl.Log.WithName("audit"), Metrics: metrics.Registry,
		})
		if err != nil {
			return err // says of what
		}
	}
	server, err := frontend.New(frontend.Options{
		Handlers:    handlers,
		Certificate: served, TLS: tlsOptions, Metrics: metrics.Registry, Clock: clock.RealClock{}, Address: o.gateway.proxyAddress,
	})
	if err != nil {
		return err // says of what
	}
	return mgr.Add(server) // says why not
}

// certificate returns the certificate that users see.
func (o *gatewayOptions) certificate(ca *authority.Authority) (certificate.Source, error) {
	if o.certDir != "" {
		return certificate.FromFolder(o.certDir) // says of what
	}
	service := usersService + "." + managerNamespace() + ".svc"
	names := []string{service, service + "." + o.settings(managerNamespace()).Names.ClusterDomain}
	if u, err := url.Parse(o.url); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	return certificate.FromAuthority(ca, clock.RealClock{}, names...), nil
}

// clientCAs returns the CAs of users' client certificates, as the API server of the management
// cluster publishes them, and keeps them up to date on the leader.
func clientCAs(mgr ctrl.Manager) (*dynamiccertificates.ConfigMapCAController, error) {
	kube, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client of the management cluster: %w", err)
	}
	cas, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", "kube-system", "extension-apiserver-authentication", "client-ca-file", kube)
	if err != nil {
		return nil, fmt.Errorf("reading the CAs of client certificates: %w", err)
	}
	// A RunnableFunc runs on the leader.
	run := manager.RunnableFunc(func(ctx context.Context) error {
		cas.Run(ctx, 1)
		return nil
	})
	if err := mgr.Add(run); err != nil {
		return nil, fmt.Errorf("watching the CAs of client certificates: %w", err)
	}
	return cas, nil
}
