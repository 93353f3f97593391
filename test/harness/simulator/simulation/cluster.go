package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

const (
	// DefaultVersion is the Kubernetes version of clusters.
	DefaultVersion = "v1.36.3"

	module = "github.com/capi-elemental/cluster-api-provider-elemental"
)

// Cluster describes a workload cluster to create.
type Cluster struct {
	Name                   string
	ControlPlanes, Workers int
	// Flavor is the flavour of the template, such as "tunnel"; blank means the default template.
	Flavor string
	// Version is the version of Kubernetes; blank means DefaultVersion.
	Version string
	// Values are additional variables of the template.
	Values map[string]string
	// Change, if not nil, modifies each object before it is created.
	Change func(*unstructured.Unstructured) error
}

// Create creates a cluster from a template, as a user does. It does not wait for the cluster.
func (s *Simulation) Create(ctx context.Context, c Cluster) error {
	if c.Flavor != "" {
		return s.apply(ctx, "cluster-template-"+c.Flavor+".yaml", c)
	}
	return s.apply(ctx, "cluster-template.yaml", c)
}

// CreateHealthChecks creates the MachineHealthChecks of a cluster of the default template.
func (s *Simulation) CreateHealthChecks(ctx context.Context, c Cluster) error {
	return s.apply(ctx, "machine-health-check.yaml", c)
}

func (s *Simulation) apply(ctx context.Context, template string, c Cluster) error {
	if c.Version == "" {
		c.Version = DefaultVersion
	}
	values := map[string]string{
		"NAMESPACE": Namespace, "CLUSTER_NAME": c.Name, "KUBERNETES_VERSION": c.Version,
		"CONTROL_PLANE_MACHINE_COUNT": strconv.Itoa(c.ControlPlanes), "WORKER_MACHINE_COUNT": strconv.Itoa(c.Workers),
	}
	maps.Copy(values, c.Values)
	all, err := render(filepath.Join(s.checkout, "templates", template), values)
	if err != nil {
		return fmt.Errorf("making cluster %s: %w", c.Name, err)
	}
	for _, object := range all {
		if c.Change != nil {
			if err := c.Change(object); err != nil {
				return fmt.Errorf("making cluster %s: %w", c.Name, err)
			}
		}
		if err := s.Admin.Create(ctx, object); err != nil {
			return fmt.Errorf("making cluster %s: %s %s: %w", c.Name, object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// render substitutes the variables of a template as clusterctl does.
func render(file string, values map[string]string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text, err = yamlprocessor.NewSimpleProcessor().Process(text, func(name string) (string, error) {
		value, ok := values[name]
		if !ok {
			return "", fmt.Errorf("the template has the unknown variable %s", name)
		}
		return value, nil
	})
	if err != nil {
		return nil, fmt.Errorf("filling in %s: %w", filepath.Base(file), err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var all []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", filepath.Base(file), err)
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

// checkout returns the root folder of this repository.
func checkout(ctx context.Context) (string, error) {
	out, err := shell.Command{Args: []string{"go", "list", "-m", "-f", "{{.Dir}}", module}}.Run(ctx)
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	return out, nil
}
