package staticpods

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
)

// Folder has the manifests.
const Folder = "/etc/kubernetes/manifests"

// Components. Etcd has a version of its own.
const (
	Server = "kube-apiserver"
	Etcd   = "etcd"
)

// versioned are the components that have the version of Kubernetes.
func versioned() []string {
	return []string{Server, "kube-controller-manager", "kube-scheduler"}
}

// Path returns the path of a component's manifest.
func Path(component string) string { return Folder + "/" + component + ".yaml" }

// IsComponent reports whether a path is that of a manifest that kubeadm writes.
func IsComponent(path string) bool {
	for _, component := range append(versioned(), Etcd) {
		if path == Path(component) {
			return true
		}
	}
	return false
}

// HasTag reports whether the tag of a component's image begins with a version.
func HasTag(root, component, version string) bool {
	data, err := os.ReadFile(filepath.Join(root, Path(component)))
	if err != nil {
		return false
	}
	image, err := Parse(data)
	return err == nil && version != "" && strings.Contains(image, ":"+version)
}

// Pod is a static Pod.
type Pod struct {
	// Component is its name, such as kube-apiserver.
	Component string
	// Image is that of its container.
	Image string
}

// Found reports whether the host has the manifest of an API server, so that it is, or has
// been, a control plane.
func Found(root string) bool {
	_, err := os.Lstat(filepath.Join(root, Path(Server)))
	return err == nil
}

// Read returns the static Pods of the control plane of the host whose file system begins at
// root. It returns an error for a manifest that is missing, empty or no Pod. Only that of
// etcd may be missing, because etcd may run elsewhere.
func Read(root string) ([]Pod, error) {
	var pods []Pod
	for _, component := range append(versioned(), Etcd) {
		data, err := os.ReadFile(filepath.Join(root, Path(component)))
		if component == Etcd && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading a manifest: %w", err)
		}
		image, err := Parse(data)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", Path(component), err)
		}
		pods = append(pods, Pod{Component: component, Image: image})
	}
	return pods, nil
}

// Parse returns the image of the first container in a manifest, or an error for a text that
// is no Pod.
func Parse(manifest []byte) (image string, err error) {
	var pod struct {
		Kind string `yaml:"kind"`
		Spec struct {
			Containers []struct {
				Image string `yaml:"image"`
			} `yaml:"containers"`
		} `yaml:"spec"`
	}
	if err := kube.Decode(manifest, &pod); err != nil {
		return "", err
	}
	if pod.Kind != "Pod" || len(pod.Spec.Containers) == 0 || pod.Spec.Containers[0].Image == "" {
		return "", errors.New("it is no manifest of a Pod with an image")
	}
	return pod.Spec.Containers[0].Image, nil
}

// HasVersion reports whether a Pod has a version of Kubernetes. A Pod of etcd has any.
func (p Pod) HasVersion(version string) bool {
	if p.Component == Etcd {
		return true
	}
	// A tag can't have a "+", so kubeadm writes "_".
	image, _, _ := strings.Cut(p.Image, "@")
	return strings.HasSuffix(image, ":"+strings.ReplaceAll(version, "+", "_"))
}

// CheckVersion returns an error unless all static Pods have the version.
func CheckVersion(pods []Pod, version string) error {
	for _, pod := range pods {
		if !pod.HasVersion(version) {
			return fmt.Errorf("the manifest of %s has the image %s, not %s", pod.Component, pod.Image, version)
		}
	}
	return nil
}
