package embedded

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/process"
)

// Manager is one of this provider's managers. It is not safe for concurrent use.
type Manager struct {
	// Name is the name of its process.
	Name string
	// Metrics is the URL of its metrics, Profiles the base URL of net/http/pprof. Both are empty without
	// Options.Diagnostics.
	Metrics, Profiles string

	cluster *Cluster
	spec    process.Spec
	ready   string
	running *process.Process
}

// Managers returns this provider's managers. The first is the leader until it ends.
func (c *Cluster) Managers() []*Manager { return c.managers }

// PID returns the manager's process ID.
func (m *Manager) PID() int { return m.running.PID() }

// Kill kills the manager, as the kernel does when it runs out of memory.
func (m *Manager) Kill() { m.running.Kill() }

// Start starts a killed manager and returns when it is ready. It may not be the leader yet.
func (m *Manager) Start(ctx context.Context) error {
	p, err := m.cluster.run(layerManagers, m.spec)
	if err != nil {
		return err
	}
	m.running = p
	return poll(ctx, m.Name, func(ctx context.Context) error { return probe(ctx, http.DefaultClient, m.ready) })
}

// reserveInstances reserves ports for a provider's processes.
func (c *Cluster) reserveInstances(ours bool) ([]instance, error) {
	instances := make([]instance, 1)
	if ours {
		instances = make([]instance, max(c.options.Managers, 1))
	}
	for i := range instances {
		for _, port := range []*int{&instances[i].webhook, &instances[i].health, &instances[i].metrics, &instances[i].profiler} {
			var err error
			if *port, err = c.reserve(); err != nil {
				return nil, err
			}
		}
	}
	return instances, nil
}

// startManagers starts the managers one after the other.
func (c *Cluster) startManagers(ctx context.Context) error {
	for _, p := range c.providers {
		if c.options.Alone && !p.ours {
			continue
		}
		kubeconfig := filepath.Join(c.Folder, p.name+".kubeconfig")
		if err := c.trust.writeKubeconfig(kubeconfig, c.Config.Host, p.installed.User, "system:serviceaccounts"); err != nil {
			return err
		}
		for i, own := range p.instances {
			m := c.newManager(p, i, own)
			m.spec.Env = append(m.spec.Env, "KUBECONFIG="+kubeconfig)
			if err := m.Start(ctx); err != nil {
				return err
			}
			c.everyManager = append(c.everyManager, m)
			if p.ours {
				c.managers = append(c.managers, m)
			}
			if i > 0 || len(p.instances) == 1 {
				continue
			}
			// The first manager becomes the leader.
			if err := c.findAgentAPI(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// newManager returns a Manager whose process is not started yet.
func (c *Cluster) newManager(p provider, index int, own instance) *Manager {
	m := &Manager{Name: p.name, cluster: c, ready: "http://" + loopbackAddress(own.health) + "/readyz"}
	if index > 0 {
		m.Name = fmt.Sprintf("%s-%d", p.name, index+1)
	}
	args := []string{
		fmt.Sprintf("--webhook-port=%d", own.webhook), "--webhook-cert-dir=" + c.trust.folder,
		"--health-addr=" + loopbackAddress(own.health), "--diagnostics-address=" + loopbackAddress(own.metrics),
	}
	m.spec = process.Spec{Name: m.Name, Path: p.program}
	if !p.ours {
		m.spec.Env = append(m.spec.Env, "HTTPS_PROXY="+c.Proxy)
	}
	if p.ours && c.options.Diagnostics {
		args = append(args, "--insecure-diagnostics=true", "--profiler-address="+loopbackAddress(own.profiler))
		m.Metrics = "http://" + loopbackAddress(own.metrics) + "/metrics"
		m.Profiles = "http://" + loopbackAddress(own.profiler) + "/debug/pprof"
	}
	if p.ours && c.options.InPlaceUpdates {
		// The last manager serves the webhooks, and with them the hooks.
		args = append(args, "--in-place-updates=true", "--in-place-updates-ca-file="+c.trust.file(clusterCA),
			"--in-place-updates-url="+loopbackURL(p.instances[len(p.instances)-1].webhook))
	}
	if len(p.instances) > 1 {
		args = append(args, "--leader-elect=true")
		// Outside of a Pod the namespace of the lease has no default.
		m.spec.Env = append(m.spec.Env, "POD_NAMESPACE="+namespace)
	}
	args = append(args, p.args...)
	m.spec.Args = args
	return m
}
