package embedded

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/process"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// restoredRevisions is by how much a restore raises etcd's revision, as Kubernetes recommends: no client may see a
// revision a second time.
const restoredRevisions = "1000000000"

// Snapshot saves a snapshot of etcd, as etcdctl does.
func (s Store) Snapshot(ctx context.Context, file string) error {
	pair, err := tls.LoadX509KeyPair(s.Certificate, s.Key)
	if err != nil {
		return fmt.Errorf("reading the client certificate of etcd: %w", err)
	}
	authority, err := os.ReadFile(s.Authority)
	if err != nil {
		return fmt.Errorf("reading the authority of etcd: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("creating a snapshot: %w", err)
	}
	options := etcd.Options{Endpoint: s.URL, TLS: &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12,
	}}
	if _, err := etcd.Save(ctx, options, out); err != nil {
		_ = out.Close()
		return fmt.Errorf("saving a snapshot: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("closing a snapshot: %w", err)
	}
	return nil
}

// Restore replaces the data of etcd by that of a snapshot and returns when all managers are ready. Nothing runs
// meanwhile, as in an outage of the management cluster.
func (c *Cluster) Restore(ctx context.Context, snapshot string) error {
	specs := halt(c)
	if err := os.RemoveAll(c.Store.Data); err != nil {
		return fmt.Errorf("removing the data of etcd: %w", err)
	}
	_, err := shell.Run(ctx, c.sources.program("etcdutl"), "snapshot", "restore", snapshot, "--data-dir="+c.Store.Data, "--name="+memberName,
		"--initial-cluster="+memberName+"="+c.Store.peer, "--initial-advertise-peer-urls="+c.Store.peer,
		"--bump-revision="+restoredRevisions, "--mark-compacted")
	if err != nil {
		return fmt.Errorf("restoring etcd: %w", err)
	}
	if err := startServers(ctx, c, specs); err != nil {
		return err
	}
	return startEveryManager(ctx, c)
}

// Reinstall replaces the management cluster by a new one, in which only its programs are installed, and calls prepare
// before the managers start. Addresses and credentials of administrators stay the same. It returns when all managers are
// ready and all webhooks are called.
func (c *Cluster) Reinstall(ctx context.Context, prepare func(context.Context, client.Client) error) error {
	specs := halt(c)
	if err := os.RemoveAll(c.Store.Data); err != nil {
		return fmt.Errorf("removing the data of etcd: %w", err)
	}
	if err := startServers(ctx, c, specs); err != nil {
		return err
	}
	admin, err := client.New(c.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := createComponents(ctx, admin, c.providers); err != nil {
		return err
	}
	if err := prepare(ctx, admin); err != nil {
		return fmt.Errorf("preparing the new cluster: %w", err)
	}
	if err := startEveryManager(ctx, c); err != nil {
		return err
	}
	return c.registerWebhooks(ctx)
}

// startServers starts the programs of all layers below the managers.
func startServers(ctx context.Context, c *Cluster, specs [layers][]process.Spec) error {
	for layer := range layerManagers {
		for _, spec := range specs[layer] {
			if err := c.launch(layer, spec); err != nil {
				return err
			}
		}
		if layer == layerServer {
			if err := c.awaitServer(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// startEveryManager starts all managers and waits until the agent API is served.
func startEveryManager(ctx context.Context, c *Cluster) error {
	for _, m := range c.everyManager {
		if err := m.Start(ctx); err != nil {
			return err
		}
	}
	return c.findAgentAPI(ctx)
}

// halt kills all processes, the managers first, and returns the programs of the other layers.
func halt(c *Cluster) (specs [layers][]process.Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for layer := layers - 1; layer >= 0; layer-- {
		for _, p := range c.processes[layer] {
			p.Kill()
		}
		c.processes[layer] = nil
		specs[layer], c.specs[layer] = c.specs[layer], nil
	}
	return specs
}
