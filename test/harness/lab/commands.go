package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// commands runs kubectl and clusterctl against the management cluster.
type commands struct {
	// state is the folder with the kubeconfig of the management cluster and the configuration of clusterctl.
	state   string
	builder toolset.Builder

	mu sync.Mutex
	// tools is the folder that Tools returns, after the first call.
	tools string
}

// Tools builds the programs that the lab runs itself (kubectl, clusterctl, providers) and returns
// their folder.
func (c *commands) Tools(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tools != "" {
		return c.tools, nil
	}
	tools, err := toolset.Select("cluster-api", "kubectl")
	if err != nil {
		return "", err
	}
	folder, err := c.builder.Folder(ctx, tools...)
	if err != nil {
		return "", fmt.Errorf("building the programs of the lab: %w", err)
	}
	c.tools = folder
	return folder, nil
}

// Kubectl runs kubectl against the management cluster.
func (c *commands) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlInput(ctx, nil, args...)
}

// KubectlInput runs kubectl with standard input.
func (c *commands) KubectlInput(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	tools, err := c.Tools(ctx)
	if err != nil {
		return "", err
	}
	return shell.Command{
		Args:  append([]string{filepath.Join(tools, "kubectl"), "--kubeconfig", c.Kubeconfig()}, args...),
		Stdin: stdin,
	}.Run(ctx)
}

// Clusterctl runs clusterctl against the management cluster, with the lab's repositories.
func (c *commands) Clusterctl(ctx context.Context, args ...string) (string, error) {
	return c.clusterctl(ctx, nil, args...)
}

// clusterctl runs clusterctl with additional environment variables.
func (c *commands) clusterctl(ctx context.Context, environment []string, args ...string) (string, error) {
	tools, err := c.Tools(ctx)
	if err != nil {
		return "", err
	}
	return shell.Command{
		Args: append([]string{filepath.Join(tools, "clusterctl"), "--config", c.ClusterctlConfig()}, args...),
		Env: append([]string{
			"KUBECONFIG=" + c.Kubeconfig(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off",
		}, environment...),
	}.Run(ctx)
}

// applyRetrying applies a manifest. It retries, because a webhook that has just become ready can
// only be reached once kube-proxy has updated its rules.
func (c *commands) applyRetrying(ctx context.Context, manifest string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return poll(ctx, time.Second, func() (string, bool) {
		_, err := c.KubectlInput(ctx, strings.NewReader(manifest), "apply", "--server-side", "--filename", "-")
		return fmt.Sprint(err), err == nil
	})
}

// Kubeconfig returns the kubeconfig file of the management cluster, for this machine.
func (c *commands) Kubeconfig() string { return filepath.Join(c.state, "management.kubeconfig") }

// hasManagement reports whether there is a management cluster.
func (c *commands) hasManagement() bool {
	_, err := os.Stat(c.Kubeconfig())
	return err == nil
}

// ClusterctlConfig returns the path of the configuration by which clusterctl finds the repositories of the lab.
func (c *commands) ClusterctlConfig() string { return filepath.Join(c.state, "clusterctl.yaml") }
