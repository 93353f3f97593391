// Package manifests writes the files of a release that clusterctl reads, and changes the image
// that they name.
package manifests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// placeholder is the image in config/manager.
const placeholder = "controller:latest"

// What kustomize can't have as a variable, because it is a map, and the variable.
const (
	annotationsPlaceholder = "annotations:\n    placeholder: annotations\n"
	annotationsVariable    = "annotations: ${ELEMENTAL_AGENT_API_ANNOTATIONS:=null}\n"
)

// components are the files that name the manager's image, with the folders of their sources.
func components() map[string]string {
	return map[string]string{
		"infrastructure-components.yaml":            "config/default",
		"infrastructure-components-namespaced.yaml": "config/namespaced",
	}
}

// Write writes the files into a folder, with the manager's image. root is the root folder of the
// checkout; kustomize is the command that runs kustomize there.
func Write(ctx context.Context, root, folder, image string, kustomize []string) error {
	copies := map[string]string{
		"config/namespaced/watched_namespace.yaml": "watched-namespace.yaml",
		"config/networkpolicy/network_policy.yaml": "network-policy.yaml",
		"config/prometheus/monitoring.yaml":        "monitoring.yaml",
		"config/prometheus/prometheus_rule.yaml":   "prometheus-rule.yaml",
		"config/prometheus/rules.yaml":             "alert-rules.yaml",
		"config/grafana/dashboard.json":            "grafana-dashboard.json",
		"metadata.yaml":                            "metadata.yaml",
	}
	templates, err := filepath.Glob(filepath.Join(root, "templates", "*.yaml"))
	if err != nil {
		return err
	}
	for _, template := range templates {
		copies["templates/"+filepath.Base(template)] = filepath.Base(template)
	}
	for from, to := range copies {
		text, err := os.ReadFile(filepath.Join(root, from))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(folder, to), text); err != nil {
			return err
		}
	}
	for name, source := range components() {
		cmd := exec.CommandContext(ctx, kustomize[0], append(slices.Clone(kustomize[1:]), "build", source)...)
		cmd.Dir = root
		var complaints strings.Builder
		cmd.Stderr = &complaints
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("building %s by kustomize: %w\n%s", source, err, complaints.String())
		}
		changed, err := replace(string(text), placeholder, image)
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		if !strings.Contains(changed, annotationsPlaceholder) {
			return fmt.Errorf("%s: there is no place for the annotations of the Service", source)
		}
		changed = strings.Replace(changed, annotationsPlaceholder, annotationsVariable, 1)
		if err := write(filepath.Join(folder, name), []byte(changed)); err != nil {
			return err
		}
	}
	return nil
}

// WithImage writes the files for clusterctl of a release into another folder, with another image.
func WithImage(release, folder, from, to string) error {
	files, err := filepath.Glob(filepath.Join(release, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		text, name := string(content), filepath.Base(file)
		if _, ok := components()[name]; ok {
			if text, err = replace(text, from, to); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if err := write(filepath.Join(folder, name), []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an error unless the components and the metadata are YAML, and the components name
// the image. Templates become YAML only when their variables have values.
func Check(folder, image string) error {
	if _, err := images(filepath.Join(folder, "metadata.yaml")); err != nil {
		return err
	}
	for name := range components() {
		found, err := images(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		if !slices.Equal(found, []string{image}) {
			return fmt.Errorf("%s names the images %q, not %s", name, found, image)
		}
	}
	return nil
}

// images returns the images of the Deployments of a file, and an error if it is not YAML.
func images(file string) (found []string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for decoder := yaml.NewDecoder(f); ; {
		var object struct {
			Kind string
			Spec yaml.Node
		}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", filepath.Base(file), err)
		}
		if object.Kind != "Deployment" {
			continue
		}
		var spec struct {
			Template struct {
				Spec struct{ Containers []struct{ Image string } }
			}
		}
		if err := object.Spec.Decode(&spec); err != nil {
			return nil, fmt.Errorf("reading the Deployment of %s: %w", filepath.Base(file), err)
		}
		for _, container := range spec.Template.Spec.Containers {
			found = append(found, container.Image)
		}
	}
}

// replace replaces an image, which must be there.
func replace(text, from, to string) (string, error) {
	from, to = "image: "+from+"\n", "image: "+to+"\n"
	if !strings.Contains(text, from) {
		return "", fmt.Errorf("there is no %q", strings.TrimSpace(from))
	}
	return strings.ReplaceAll(text, from, to), nil
}

// write writes a file that all users may read.
func write(file string, text []byte) error {
	return os.WriteFile(file, text, 0o644)
}
