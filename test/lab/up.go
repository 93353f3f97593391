package lab

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab/certs"
)

// AgentAPIPort is the node port at which the management cluster serves the agent API.
const AgentAPIPort = 30443

// Up makes everything that is missing: Docker, images, hosts, the management cluster with Cluster API and, when there is
// a release of it, this provider. It may be run again, also after it failed.
func (l *Lab) Up(ctx context.Context) error {
	release, err := l.findRelease()
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
	module, err := l.findCAPI(ctx)
	if err != nil {
		return err
	}
	cluster := l.management(hostImage)
	err = l.progress.Step("Starting the management cluster", func() error { return l.startManagement(ctx, cluster) })
	if err != nil {
		return err
	}
	if err := l.StartHosts(ctx, hostImage); err != nil {
		return err
	}
	archives, err := l.providerImages(ctx, tools, module, release)
	if err != nil {
		return fmt.Errorf("making the images of providers: %w", err)
	}
	err = l.progress.Step("Loading the images of providers", func() error {
		for _, archive := range archives {
			if err := cluster.load(ctx, archive); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	address, err := cluster.address(ctx)
	if err != nil {
		return err
	}
	if err := l.writeRepositories(ctx, module, release, variables(address)); err != nil {
		return fmt.Errorf("making clusterctl's repositories: %w", err)
	}
	return l.progress.Step("Installing Cluster API", func() error { return l.initProviders(ctx, release) })
}

// variables returns what clusterctl puts into manifests.
func variables(address string) map[string]string {
	return map[string]string{
		"CLUSTER_TOPOLOGY":                      "true",
		"ELEMENTAL_AGENT_API_URL":               "https://" + net.JoinHostPort(address, strconv.Itoa(AgentAPIPort)),
		"ELEMENTAL_AGENT_API_SERVICE_TYPE":      "NodePort",
		"ELEMENTAL_AGENT_API_NODE_PORT":         strconv.Itoa(AgentAPIPort),
		"EXP_KUBEADM_BOOTSTRAP_FORMAT_IGNITION": "true",
	}
}

// initProviders installs what is not installed yet: the stand-in for cert-manager, then the providers as a user does.
func (l *Lab) initProviders(ctx context.Context, release release) error {
	_, err := l.KubectlInput(ctx, strings.NewReader(certs.Manifests()), "apply", "--server-side", "--filename", "-")
	if err != nil {
		return fmt.Errorf("installing the stand-in for cert-manager: %w", err)
	}
	_, err = l.Kubectl(ctx, "--namespace", "cert-manager", "rollout", "status", "deployment/certs", "--timeout", "2m")
	if err != nil {
		return fmt.Errorf("waiting for the stand-in for cert-manager: %w", err)
	}
	installed, err := l.installedProviders(ctx)
	if err != nil {
		return err
	}
	args := []string{"init", "--wait-providers"}
	if !strings.Contains(installed, "cluster-api") {
		args = append(args, "--core", "cluster-api", "--bootstrap", "kubeadm", "--control-plane", "kubeadm")
	}
	switch {
	case release.folder == "":
		l.progress.Say("There is no release of this provider in out/release (make release): going without it")
	case strings.Contains(installed, elemental().label):
		if err := l.reinstall(ctx, release); err != nil {
			return err
		}
	default:
		args = append(args, "--infrastructure", elemental().name+":"+release.version)
	}
	if len(args) == 2 {
		return nil
	}
	if _, err := l.Clusterctl(ctx, args...); err != nil {
		return fmt.Errorf("installing providers: %w", err)
	}
	return nil
}

// installedProviders returns the names of the providers in the management cluster.
func (l *Lab) installedProviders(ctx context.Context) (string, error) {
	const kind = "providers.clusterctl.cluster.x-k8s.io"
	out, err := l.Kubectl(ctx, "get", "customresourcedefinition", kind, "--ignore-not-found", "--output", "name")
	if err != nil {
		return "", fmt.Errorf("looking for clusterctl's inventory: %w", err)
	}
	if out == "" {
		return "", nil
	}
	out, err = l.Kubectl(ctx, "get", kind, "--all-namespaces", "--output", "name")
	if err != nil {
		return "", fmt.Errorf("reading clusterctl's inventory: %w", err)
	}
	return out, nil
}

// reinstall brings this provider up to date while its version stays, as it does while somebody works on it; clusterctl
// only goes from version to version.
func (l *Lab) reinstall(ctx context.Context, release release) error {
	manifests, err := l.Clusterctl(ctx, "generate", "provider", "--infrastructure", elemental().name+":"+release.version)
	if err != nil {
		return fmt.Errorf("rendering this provider: %w", err)
	}
	_, err = l.KubectlInput(ctx, strings.NewReader(manifests),
		"apply", "--server-side", "--force-conflicts", "--filename", "-")
	if err != nil {
		return fmt.Errorf("updating this provider: %w", err)
	}
	selector := "cluster.x-k8s.io/provider=" + elemental().label
	namespace, err := l.Kubectl(ctx, "get", "deployments", "--all-namespaces", "--selector", selector,
		"--output", "jsonpath={.items[0].metadata.namespace}")
	if err != nil {
		return fmt.Errorf("finding this provider: %w", err)
	}
	for _, args := range [][]string{{"restart"}, {"status", "--timeout", "2m"}} {
		args = append([]string{"--namespace", namespace, "rollout"}, append(args, "deployment", "--selector", selector)...)
		if _, err := l.Kubectl(ctx, args...); err != nil {
			return fmt.Errorf("restarting this provider: %w", err)
		}
	}
	return nil
}
