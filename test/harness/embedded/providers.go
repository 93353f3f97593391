package embedded

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/manifests"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/names"
)

// namespace is the namespace of this provider.
const namespace = "elemental-system"

const (
	// clusterDomain is the domain of names in the cluster, also on machines that have another one.
	clusterDomain = "cluster.local"
	// gatewayService and servicePort are name and port of the Service that the manager's gateway has in an installation.
	gatewayService = "elemental-gateway." + namespace + ".svc." + clusterDomain
	servicePort    = "16443"
)

// provider is a manager with its configuration.
type provider struct {
	name, program string
	// config is the folder of its kustomization.
	config string
	// args are its arguments in addition to those of all managers.
	args []string
	// ours is true for this provider, false for Cluster API's providers.
	ours      bool
	instances []instance
	installed *manifests.Provider
}

// instance has the ports that are reserved for one process of a provider.
type instance struct {
	webhook, health, metrics, profiler int
}

// listProviders returns all providers in the order of their start, dependencies first.
func (c *Cluster) listProviders(agentPort, gatewayPort int) []provider {
	capi := func(name, part string, args ...string) provider {
		return provider{
			name: name, program: c.sources.program(name), config: filepath.Join(c.sources.clusterAPI, part, "config", "default"),
			args: append(args, c.options.Args[name]...),
		}
	}
	// Migrations rewrite every object, and all objects here have the newest version.
	const noMigration = "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields"
	coreGates, controlPlaneGates := "--feature-gates=ClusterTopology=true", "--feature-gates=ClusterTopology=true"
	if c.options.InPlaceUpdates {
		coreGates += ",RuntimeSDK=true,InPlaceUpdates=true"
		controlPlaneGates += ",InPlaceUpdates=true"
	}
	return []provider{
		capi("capi-core", "core", coreGates, noMigration),
		capi("capi-kubeadm-bootstrap", filepath.Join("bootstrap", "kubeadm"), noMigration),
		capi("capi-kubeadm-control-plane", filepath.Join("controlplane", "kubeadm"), controlPlaneGates, noMigration),
		{
			name: "manager", program: c.sources.manager, config: filepath.Join(c.sources.checkout, "config", "default"), ours: true,
			args: append([]string{
				"--agent-api-address=" + loopbackAddress(agentPort), "--agent-api-url=" + loopbackURL(agentPort),
				"--gateway-passthrough-address=" + loopbackAddress(gatewayPort), "--gateway-proxy-address=", "--cluster-domain=" + clusterDomain,
			}, c.options.ManagerArgs...),
		},
	}
}

// install creates the objects that managers need: kinds, namespaces, roles.
func (c *Cluster) install(ctx context.Context) error {
	admin, err := client.New(c.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	agentPort, err := c.reserve()
	if err != nil {
		return err
	}
	gateway, err := c.reserve()
	if err != nil {
		return err
	}
	if err := startNames(c, admin, gateway); err != nil {
		return err
	}
	c.AgentURL = loopbackURL(agentPort)
	c.providers = c.listProviders(agentPort, gateway)
	for i := range c.providers {
		p := &c.providers[i]
		if p.instances, err = c.reserveInstances(p.ours); err != nil {
			return err
		}
		components, err := c.sources.render(ctx, p.config)
		if err != nil {
			return err
		}
		last := p.instances[len(p.instances)-1]
		p.installed, err = manifests.Read(components, manifests.Webhook{Port: last.webhook, CABundle: c.trust.cluster.Certificate})
		if err != nil {
			return fmt.Errorf("preparing %s: %w", p.name, err)
		}
		if c.options.OneVersion {
			if err := p.installed.KeepStored(); err != nil {
				return fmt.Errorf("preparing %s: %w", p.name, err)
			}
		}
	}
	return createComponents(ctx, admin, c.providers)
}

// createComponents creates the kinds, namespaces and roles of all providers, and waits until they have taken effect.
func createComponents(ctx context.Context, admin client.Client, providers []provider) error {
	for _, p := range providers {
		if err := create(ctx, admin, p.installed.Objects); err != nil {
			return fmt.Errorf("installing %s: %w", p.name, err)
		}
	}
	for _, p := range providers {
		for _, obj := range p.installed.Objects {
			if err := poll(ctx, obj.GetKind()+" "+obj.GetName(), func(ctx context.Context) error { return effective(ctx, admin, obj) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// startNames starts what leads names of Services to the manager's gateway.
func startNames(c *Cluster, services client.Reader, gateway int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return context.Cause(c.life)
	}
	proxy, err := names.Start(names.Options{
		Services: services, Domain: clusterDomain,
		Processes: map[string]string{net.JoinHostPort(gatewayService, servicePort): loopbackAddress(gateway)},
	})
	if err != nil {
		return err
	}
	c.names, c.Proxy, c.Gateway = proxy, proxy.URL(), loopbackAddress(gateway)
	return nil
}

func create(ctx context.Context, admin client.Client, objects []*unstructured.Unstructured) error {
	for _, obj := range objects {
		// The object may be created a second time, in an empty cluster.
		if err := admin.Create(ctx, obj.DeepCopy()); err != nil {
			return fmt.Errorf("creating %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

// effective reports whether an object has taken effect: a kind is served, an aggregated role has rules.
func effective(ctx context.Context, admin client.Client, obj *unstructured.Unstructured) error {
	switch obj.GetKind() {
	case "CustomResourceDefinition":
		obj, err := read(ctx, admin, obj)
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		for _, condition := range conditions {
			if c, ok := condition.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return served(ctx, admin, obj)
			}
		}
		return errors.New("it is not established")
	case "ClusterRole":
		if _, found, _ := unstructured.NestedMap(obj.Object, "aggregationRule"); !found {
			return nil
		}
		obj, err := read(ctx, admin, obj)
		if err != nil {
			return err
		}
		if rules, _, _ := unstructured.NestedSlice(obj.Object, "rules"); len(rules) == 0 {
			return errors.New("no rules were aggregated")
		}
	}
	return nil
}

// read returns an object as it is in the cluster.
func read(ctx context.Context, admin client.Client, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	is := obj.DeepCopy()
	if err := admin.Get(ctx, client.ObjectKeyFromObject(obj), is); err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	return is, nil
}

// served reports whether objects of a kind can be listed.
func served(ctx context.Context, admin client.Client, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "listKind")
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(group + "/" + clusterv1.GroupVersion.Version)
	list.SetKind(kind)
	if err := admin.List(ctx, list, client.Limit(1)); err != nil {
		return fmt.Errorf("listing its objects: %w", err)
	}
	return nil
}

// registerWebhooks registers the webhooks, which are served now, and waits until the API server calls them. The API server
// learns of configurations in the order of their creation, so one call to the last one of each type is enough.
func (c *Cluster) registerWebhooks(ctx context.Context) error {
	admin, err := client.New(c.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	// The last mutating configuration must be Cluster API core's, the last validating one this provider's.
	for _, i := range []int{1, 2, 0, 3} {
		p := c.providers[i]
		if c.options.Alone && !p.ours {
			continue
		}
		if err := create(ctx, admin, p.installed.Webhooks); err != nil {
			return fmt.Errorf("registering webhooks of %s: %w", p.name, err)
		}
	}
	if !c.options.Alone {
		if err := poll(ctx, "webhooks that change objects", func(ctx context.Context) error { return changes(ctx, admin) }); err != nil {
			return err
		}
	}
	return poll(ctx, "webhooks that check objects", func(ctx context.Context) error { return checks(ctx, admin) })
}

// findAgentAPI waits until the agent API is served and reads its CA certificates.
func (c *Cluster) findAgentAPI(ctx context.Context) error {
	admin, err := client.New(c.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: authority.SecretName}
	if err := poll(ctx, "the agent API's authority", func(ctx context.Context) error { return admin.Get(ctx, key, secret) }); err != nil {
		return err
	}
	c.CABundle = string(secret.Data[authority.BundleKey])
	if err := os.WriteFile(filepath.Join(c.Folder, "agent-ca.crt"), secret.Data[authority.BundleKey], 0o600); err != nil {
		return fmt.Errorf("writing the agent API's authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data[authority.BundleKey]) {
		return fmt.Errorf("reading Secret %s: it has no certificate", key)
	}
	u, err := url.Parse(c.AgentURL)
	if err != nil {
		return fmt.Errorf("reading the agent API's URL: %w", err)
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: loopback, MinVersion: tls.VersionTLS13}}
	return poll(ctx, "the agent API", func(ctx context.Context) error {
		conn, err := dialer.DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
