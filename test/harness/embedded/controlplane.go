package embedded

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/process"
)

// administrators is the group of Kubernetes administrators.
const administrators = "system:masters"

// loopback is the address on which all servers with a configurable address listen.
const loopback = "127.0.0.1"

// memberName is the name of the member of etcd.
const memberName = "embedded"

func loopbackAddress(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

func loopbackURL(port int) string { return "https://" + loopbackAddress(port) }

// startServer starts etcd and kube-apiserver and waits until kube-apiserver is ready, which implies that etcd is.
func (c *Cluster) startServer(ctx context.Context) error {
	var err error
	if c.trust, err = newTrust(filepath.Join(c.Folder, "pki"), time.Now()); err != nil {
		return err
	}
	var clients, peers, server int
	for _, port := range []*int{&clients, &peers, &server} {
		if *port, err = c.reserve(); err != nil {
			return err
		}
	}
	c.Store = Store{
		URL: loopbackURL(clients), Data: filepath.Join(c.Folder, "etcd"),
		Authority: c.trust.file(storeCA), Certificate: c.trust.file(storeClient + ".crt"), Key: c.trust.file(storeClient + ".key"),
		peer: loopbackURL(peers),
	}
	if err := c.launch(layerStore, c.etcd()); err != nil {
		return err
	}
	if err := c.launch(layerServer, c.apiserver(server, loopbackURL(clients))); err != nil {
		return err
	}
	if err := c.trust.writeKubeconfig(c.Kubeconfig, loopbackURL(server), "admin", administrators); err != nil {
		return err
	}
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	c.Config.QPS = -1
	return c.awaitServer(ctx)
}

// awaitServer waits until kube-apiserver is ready, which implies that etcd is.
func (c *Cluster) awaitServer(ctx context.Context) error {
	admin, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return fmt.Errorf("making an HTTP client: %w", err)
	}
	return poll(ctx, "kube-apiserver", func(ctx context.Context) error { return probe(ctx, admin, c.Config.Host+"/readyz") })
}

func (c *Cluster) etcd() process.Spec {
	t, clients, peers := c.trust, c.Store.URL, c.Store.peer
	args := []string{
		"--name=" + memberName, "--data-dir=" + c.Store.Data,
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=" + memberName + "=" + peers,
		"--client-cert-auth", "--trusted-ca-file=" + t.file(storeCA),
		"--cert-file=" + t.file(storeName+".crt"), "--key-file=" + t.file(storeName+".key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + t.file(storeCA),
		"--peer-cert-file=" + t.file(storeName+".crt"), "--peer-key-file=" + t.file(storeName+".key"),
	}
	if !c.options.Durable {
		args = append(args, "--unsafe-no-fsync")
	}
	return process.Spec{Name: "etcd", Path: c.sources.program("etcd"), Args: args}
}

func (c *Cluster) apiserver(port int, store string) process.Spec {
	t := c.trust
	return process.Spec{Name: "kube-apiserver", Path: c.sources.program("kube-apiserver"), Args: []string{
		"--bind-address=" + loopback, "--advertise-address=" + loopback, fmt.Sprintf("--secure-port=%d", port),
		// No client needs the Service's Endpoints, which must not have loopback addresses.
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file=" + t.file(servingCert), "--tls-private-key-file=" + t.file(servingKey),
		"--client-ca-file=" + t.file(clusterCA), "--authorization-mode=RBAC",
		"--etcd-servers=" + store, "--etcd-cafile=" + t.file(storeCA),
		"--etcd-certfile=" + t.file(storeClient+".crt"), "--etcd-keyfile=" + t.file(storeClient+".key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + t.file(serviceAccount+".key"),
		"--service-account-key-file=" + t.file(serviceAccount+".pub"),
		// There are no Pods that need ServiceAccounts.
		"--disable-admission-plugins=ServiceAccount",
	}}
}

// startControllers starts the controllers of kube-controller-manager that Cluster API needs.
func (c *Cluster) startControllers(ctx context.Context) error {
	port, err := c.reserve()
	if err != nil {
		return err
	}
	t := c.trust
	if err := c.launch(layerControllers, process.Spec{
		Name: "kube-controller-manager", Path: c.sources.program("kube-controller-manager"), Args: []string{
			"--kubeconfig=" + c.Kubeconfig, "--authentication-kubeconfig=" + c.Kubeconfig, "--authorization-kubeconfig=" + c.Kubeconfig,
			// There is no front proxy with an authority.
			"--authentication-skip-lookup",
			"--bind-address=" + loopback, fmt.Sprintf("--secure-port=%d", port),
			"--tls-cert-file=" + t.file(servingCert), "--tls-private-key-file=" + t.file(servingKey),
			"--controllers=garbage-collector-controller,namespace-controller,clusterrole-aggregation-controller",
			"--leader-elect=false", "--use-service-account-credentials=false",
		},
	}); err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: t.cluster.Certificate}})
	if err != nil {
		return fmt.Errorf("making an HTTP client: %w", err)
	}
	return poll(ctx, "kube-controller-manager", func(ctx context.Context) error { return probe(ctx, client, loopbackURL(port)+"/healthz") })
}

// poll calls check until it succeeds or ctx ends.
func poll(ctx context.Context, what string, check func(context.Context) error) error {
	const every = 100 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
			}
		}
		return fmt.Errorf("waiting for %s: %w (so far: %w)", what, context.Cause(ctx), err)
	}
}

// probe calls a health URL.
func probe(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking %s: %s", url, response.Status)
	}
	return nil
}
