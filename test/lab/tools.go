package lab

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// Tools builds the programs that the lab itself runs, kubectl, clusterctl and the providers, and returns their folder.
func (l *Lab) Tools(ctx context.Context) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tools != "" {
		return l.tools, nil
	}
	tools, err := toolset.Select("cluster-api", "kubectl")
	if err != nil {
		return "", err
	}
	folder, err := l.images.Tools.Folder(ctx, tools...)
	if err != nil {
		return "", fmt.Errorf("building the programs of the lab: %w", err)
	}
	l.tools = folder
	return folder, nil
}

// Kubectl runs kubectl against the management cluster.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	return l.KubectlInput(ctx, nil, args...)
}

// KubectlInput is Kubectl with input for the program.
func (l *Lab) KubectlInput(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	tools, err := l.Tools(ctx)
	if err != nil {
		return "", err
	}
	return shell.Command{
		Args:  append([]string{filepath.Join(tools, "kubectl"), "--kubeconfig", l.Kubeconfig()}, args...),
		Stdin: stdin,
	}.Run(ctx)
}

// Clusterctl runs clusterctl against the management cluster, with the lab's repositories.
func (l *Lab) Clusterctl(ctx context.Context, args ...string) (string, error) {
	return l.clusterctl(ctx, nil, args...)
}

// clusterctl is Clusterctl with an addition to the environment.
func (l *Lab) clusterctl(ctx context.Context, environment []string, args ...string) (string, error) {
	tools, err := l.Tools(ctx)
	if err != nil {
		return "", err
	}
	return shell.Command{
		Args: append([]string{filepath.Join(tools, "clusterctl"), "--config", l.clusterctlConfig()}, args...),
		Env: append([]string{
			"KUBECONFIG=" + l.Kubeconfig(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off",
		}, environment...),
	}.Run(ctx)
}
