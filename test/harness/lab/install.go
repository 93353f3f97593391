package lab

import (
	"context"
	"fmt"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/certs"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/repository"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// providerInstaller installs Cluster API and this provider into the management cluster.
type providerInstaller struct {
	commands *commands
	progress *shell.Progress
	// release is this provider's release; the zero value leaves this provider out.
	release release
}

// install installs what is missing: first the replacement of cert-manager, then the providers by
// clusterctl, as users do.
func (p providerInstaller) install(ctx context.Context) error {
	_, err := p.commands.KubectlInput(ctx, strings.NewReader(certs.Manifests()), "apply", "--server-side", "--filename", "-")
	if err != nil {
		return fmt.Errorf("installing the stand-in for cert-manager: %w", err)
	}
	_, err = p.commands.Kubectl(ctx, "--namespace", "cert-manager", "rollout", "status", "deployment/certs", "--timeout", "2m")
	if err != nil {
		return fmt.Errorf("waiting for the stand-in for cert-manager: %w", err)
	}
	installed, err := p.installed(ctx)
	if err != nil {
		return err
	}
	args := []string{"init", "--wait-providers"}
	if !strings.Contains(installed, "cluster-api") {
		args = append(args, "--core", "cluster-api", "--bootstrap", "kubeadm", "--control-plane", "kubeadm")
	}
	switch {
	case p.release.folder == "":
		p.progress.Say("There is no release of this provider in out/manifests (make manifests): it is not installed")
	case strings.Contains(installed, repository.Elemental().Label):
		if err := p.reinstall(ctx); err != nil {
			return err
		}
	default:
		args = append(args, "--infrastructure", repository.Elemental().Name+":"+p.release.version)
	}
	if len(args) == 2 {
		return nil
	}
	if _, err := p.commands.Clusterctl(ctx, args...); err != nil {
		return fmt.Errorf("installing providers: %w", err)
	}
	return nil
}

// installed returns the names of the providers in the management cluster.
func (p providerInstaller) installed(ctx context.Context) (string, error) {
	const kind = "providers.clusterctl.cluster.x-k8s.io"
	out, err := p.commands.Kubectl(ctx, "get", "customresourcedefinition", kind, "--ignore-not-found", "--output", "name")
	if err != nil {
		return "", fmt.Errorf("looking for clusterctl's inventory: %w", err)
	}
	if out == "" {
		return "", nil
	}
	out, err = p.commands.Kubectl(ctx, "get", kind, "--all-namespaces", "--output", "name")
	if err != nil {
		return "", fmt.Errorf("reading clusterctl's inventory: %w", err)
	}
	return out, nil
}

// reinstall replaces this provider by another build of the same version. clusterctl upgrades to
// other versions only.
func (p providerInstaller) reinstall(ctx context.Context) error {
	manifests, err := p.commands.Clusterctl(ctx, "generate", "provider", "--infrastructure", repository.Elemental().Name+":"+p.release.version)
	if err != nil {
		return fmt.Errorf("rendering this provider: %w", err)
	}
	_, err = p.commands.KubectlInput(ctx, strings.NewReader(manifests),
		"apply", "--server-side", "--force-conflicts", "--filename", "-")
	if err != nil {
		return fmt.Errorf("updating this provider: %w", err)
	}
	selector := "cluster.x-k8s.io/provider=" + repository.Elemental().Label
	namespace, err := p.commands.Kubectl(ctx, "get", "deployments", "--all-namespaces", "--selector", selector,
		"--output", "jsonpath={.items[0].metadata.namespace}")
	if err != nil {
		return fmt.Errorf("finding this provider: %w", err)
	}
	for _, args := range [][]string{{"restart"}, {"status", "--timeout", "2m"}} {
		args = append([]string{"--namespace", namespace, "rollout"}, append(args, "deployment", "--selector", selector)...)
		if _, err := p.commands.Kubectl(ctx, args...); err != nil {
			return fmt.Errorf("restarting this provider: %w", err)
		}
	}
	return nil
}
