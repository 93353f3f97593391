package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/repository"
)

// Cluster is a workload cluster made from one of this provider's templates.
type Cluster struct {
	// Name and Namespace are the cluster's. Namespace defaults to "default".
	Name, Namespace string
	// Version is its version of Kubernetes. Default: that of lab hosts.
	Version string
	// ControlPlanes and Workers are how many machines it has.
	ControlPlanes, Workers int
	// Flavor selects a template; empty for the default one.
	Flavor string
	// Variables are values for the template, in addition to the environment.
	Variables map[string]string
}

// GenerateCluster returns the manifests of a cluster, by clusterctl generate cluster.
func (l *Lab) GenerateCluster(ctx context.Context, c Cluster) (string, error) {
	version := c.Version
	if version == "" {
		var err error
		if version, err = l.KubernetesVersion(ctx); err != nil {
			return "", err
		}
	}
	args := []string{
		"generate", "cluster", c.Name, "--infrastructure", repository.Elemental().Name, "--target-namespace", c.namespace(),
		"--kubernetes-version", version,
		"--control-plane-machine-count", strconv.Itoa(c.ControlPlanes),
		"--worker-machine-count", strconv.Itoa(c.Workers),
	}
	if c.Flavor != "" {
		args = append(args, "--flavor", c.Flavor)
	}
	out, err := l.clusterctl(ctx, environment(c.Variables), args...)
	if err != nil {
		return "", fmt.Errorf("generating cluster %s: %w", c.Name, err)
	}
	if out, err = allowSwap(out); err != nil {
		return "", fmt.Errorf("generating cluster %s: %w", c.Name, err)
	}
	return out, nil
}

// allowSwap has machines use hosts with swap. Lab hosts have that of this machine, and their
// kubelets tolerate it.
func allowSwap(manifests string) (string, error) {
	const separator = "\n---\n"
	documents := strings.Split(manifests, separator)
	for i, document := range documents {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return "", err
		}
		if object.GetKind() != "ElementalMachineTemplate" {
			continue
		}
		if err := unstructured.SetNestedStringSlice(object.Object, []string{"Swap"}, "spec", "template", "spec", "ignoreFindings"); err != nil {
			return "", err
		}
		changed, err := yaml.Marshal(object.Object)
		if err != nil {
			return "", err
		}
		documents[i] = strings.TrimSpace(string(changed))
	}
	return strings.Join(documents, separator), nil
}

// CreateCluster creates a cluster, waits until it is available with all its machines, and returns
// a kubeconfig file for this machine.
func (l *Lab) CreateCluster(ctx context.Context, c Cluster) (kubeconfig string, err error) {
	manifests, err := l.GenerateCluster(ctx, c)
	if err != nil {
		return "", err
	}
	if err := writeFile(filepath.Join(l.options.State, c.Name+".yaml"), []byte(manifests)); err != nil {
		return "", err
	}
	if err := l.applyRetrying(ctx, manifests); err != nil {
		return "", fmt.Errorf("making cluster %s: %w", c.Name, err)
	}
	err = l.progress.Step("Waiting for cluster "+c.Name, func() error { return l.waitCluster(ctx, c) })
	if err != nil {
		return "", err
	}
	content, err := l.Clusterctl(ctx, "get", "kubeconfig", c.Name, "--namespace", c.namespace())
	if err != nil {
		return "", fmt.Errorf("getting the kubeconfig of cluster %s: %w", c.Name, err)
	}
	kubeconfig = filepath.Join(l.options.State, c.Name+".kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		return "", fmt.Errorf("writing the kubeconfig of cluster %s: %w", c.Name, err)
	}
	return kubeconfig, nil
}

// waitCluster waits until a cluster is available and all its machines run.
func (l *Lab) waitCluster(ctx context.Context, c Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	err := poll(ctx, 2*time.Second, func() (string, bool) {
		phases, err := l.Kubectl(ctx, "--namespace", c.namespace(), "get", "machines", "--selector",
			"cluster.x-k8s.io/cluster-name="+c.Name, "--output", "jsonpath={.items[*].status.phase}")
		if err != nil {
			return err.Error(), false
		}
		running := strings.Count(phases, "Running")
		return "its machines are: " + phases, running == c.ControlPlanes+c.Workers && running == len(strings.Fields(phases))
	})
	if err != nil {
		return fmt.Errorf("waiting for the machines of cluster %s: %w", c.Name, err)
	}
	_, err = l.Kubectl(ctx, "--namespace", c.namespace(), "wait", "cluster", c.Name,
		"--for", "condition=Available", "--timeout", "5m")
	if err != nil {
		return fmt.Errorf("waiting for cluster %s to be available: %w", c.Name, err)
	}
	return nil
}

func (c Cluster) namespace() string {
	if c.Namespace == "" {
		return "default"
	}
	return c.Namespace
}
