package lab

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// AgentAPIPort is the management cluster's node port of the agent API.
const AgentAPIPort = 30443

// Up creates everything that is missing: Docker, images, hosts, the management cluster with
// Cluster API and, if it has a release, this provider. It can be repeated, also after an error. The
// manifests are applied before the providers are installed.
func (l *Lab) Up(ctx context.Context, manifests ...string) error {
	release, err := l.sources.findRelease()
	if err != nil {
		return err
	}
	tools, err := l.Tools(ctx)
	if err != nil {
		return err
	}
	hostImage, err := l.Prepare(ctx)
	if err != nil {
		return err
	}
	module, err := l.sources.findCAPI(ctx)
	if err != nil {
		return err
	}
	cluster := l.management(hostImage)
	err = l.progress.Step("Starting the management cluster", func() error { return l.startManagement(ctx, cluster) })
	if err != nil {
		return err
	}
	for _, manifest := range manifests {
		if err := l.applyRetrying(ctx, manifest); err != nil {
			return fmt.Errorf("applying what providers need: %w", err)
		}
	}
	if err := l.StartHosts(ctx, hostImage); err != nil {
		return err
	}
	archives, err := l.sources.providerImages(ctx, tools, module, release)
	if err != nil {
		return fmt.Errorf("making the images of providers: %w", err)
	}
	if err := loadImages(ctx, l.progress, cluster, archives); err != nil {
		return err
	}
	if err := l.writeRepository(ctx, module, release, variables(l.Management().Address)); err != nil {
		return fmt.Errorf("making clusterctl's repository: %w", err)
	}
	installer := providerInstaller{commands: l.commands, progress: l.progress, release: release}
	return l.progress.Step("Installing Cluster API", func() error { return installer.install(ctx) })
}

// loadImages loads archives into a management cluster.
func loadImages(ctx context.Context, progress *shell.Progress, cluster management, archives []string) error {
	return progress.Step("Loading the images of providers", func() error {
		for _, archive := range archives {
			if err := cluster.load(ctx, archive); err != nil {
				return err
			}
		}
		return nil
	})
}

// variables returns the values of clusterctl's variables.
func variables(address string) map[string]string {
	return map[string]string{
		"CLUSTER_TOPOLOGY":                      "true",
		"ELEMENTAL_AGENT_API_URL":               agentAPI(address),
		"ELEMENTAL_AGENT_API_SERVICE_TYPE":      "NodePort",
		"ELEMENTAL_AGENT_API_NODE_PORT":         strconv.Itoa(AgentAPIPort),
		"EXP_KUBEADM_BOOTSTRAP_FORMAT_IGNITION": "true",
		"EXP_RUNTIME_SDK":                       "true",
		"EXP_IN_PLACE_UPDATES":                  "true",
		"EXP_MACHINE_TAINT_PROPAGATION":         "true",
	}
}

// agentAPI returns the URL of the agent API.
func agentAPI(address string) string {
	return "https://" + net.JoinHostPort(address, strconv.Itoa(AgentAPIPort))
}
