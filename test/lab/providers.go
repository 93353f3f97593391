package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab/certs"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab/image"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab/shell"
)

// provider is a Cluster API provider as clusterctl sees it.
type provider struct {
	// name and kind are clusterctl's, such as kubeadm and BootstrapProvider.
	name, kind string
	// label is the folder clusterctl expects, such as bootstrap-kubeadm.
	label string
	// components is the file name of its manifests.
	components string
	// config is the folder of its kustomization inside the cluster-api module.
	config string
	// tool is the program; image is the name of its image, which the manifests have with another registry and tag.
	tool, image string
}

// upstream returns the providers that come from the cluster-api module.
func upstream() []provider {
	return []provider{
		{
			name: "cluster-api", kind: "CoreProvider", label: "cluster-api", components: "core-components.yaml",
			config: "core/config/default", tool: "capi-core", image: "cluster-api-controller",
		},
		{
			name: "kubeadm", kind: "BootstrapProvider", label: "bootstrap-kubeadm", components: "bootstrap-components.yaml",
			config: "bootstrap/kubeadm/config/default", tool: "capi-kubeadm-bootstrap", image: "kubeadm-bootstrap-controller",
		},
		{
			name: "kubeadm", kind: "ControlPlaneProvider", label: "control-plane-kubeadm",
			components: "control-plane-components.yaml", config: "controlplane/kubeadm/config/default",
			tool: "capi-kubeadm-control-plane", image: "kubeadm-control-plane-controller",
		},
	}
}

// elemental is this provider.
func elemental() provider {
	return provider{
		name: "elemental", kind: "InfrastructureProvider", label: "infrastructure-elemental",
		components: "infrastructure-components.yaml",
	}
}

// ServedAgent is the agent in the manager's image: of the release's version, and the one that hosts get.
const ServedAgent = "/agents/elemental-agent-linux-" + runtime.GOARCH

const (
	stagingRegistry = "gcr.io/k8s-staging-cluster-api"
	registry        = "registry.k8s.io/cluster-api"
)

// release is this provider's release: its version and folder. The zero value is none.
type release struct {
	version, folder string
}

// Release returns the version of this provider that Up installs, or nothing when none was released.
func (l *Lab) Release() (version string, err error) {
	release, err := l.findRelease()
	return release.version, err
}

// findRelease returns the release that the options name, or else the newest that was made.
func (l *Lab) findRelease() (release, error) {
	if folder := l.options.Release; folder != "" {
		folder, err := filepath.Abs(folder)
		if err != nil {
			return release{}, fmt.Errorf("finding the release: %w", err)
		}
		if _, err := os.Stat(filepath.Join(folder, elemental().components)); err != nil {
			return release{}, fmt.Errorf("looking at the release: %w", err)
		}
		return release{version: filepath.Base(folder), folder: folder}, nil
	}
	files, err := filepath.Glob(filepath.Join(l.options.Checkout, "out", "release", "v*", elemental().components))
	if err != nil {
		return release{}, fmt.Errorf("looking for releases: %w", err)
	}
	var newest release
	var highest *utilversion.Version
	for _, file := range files {
		folder := filepath.Dir(file)
		v, err := utilversion.ParseSemantic(filepath.Base(folder))
		if err == nil && (highest == nil || highest.LessThan(v)) {
			highest, newest = v, release{version: filepath.Base(folder), folder: folder}
		}
	}
	return newest, nil
}

// providerImages builds archives with the images of all providers and of the stand-in for cert-manager. What changes
// while somebody works on this repository is in the second one.
func (l *Lab) providerImages(ctx context.Context, tools string, module capiModule, release release) ([]string, error) {
	var theirs, ours []image.Workload
	for _, p := range upstream() {
		theirs = append(theirs, managerWorkload(registry+"/"+p.image+":"+module.version, filepath.Join(tools, p.tool)))
	}
	file, err := l.images.Build(ctx, image.Program{Package: "./test/lab/cmd/certs"})
	if err != nil {
		return nil, err
	}
	ours = append(ours, managerWorkload(certs.Image, file))
	if release.folder != "" {
		workload, err := l.elementalWorkload(ctx, release)
		if err != nil {
			return nil, err
		}
		ours = append(ours, workload)
	}
	first, err := l.images.Archive("cluster-api", theirs...)
	if err != nil {
		return nil, err
	}
	second, err := l.images.Archive("elemental", ours...)
	return []string{first, second}, err
}

// elementalWorkload returns this provider's image, with the agent that its manager serves.
func (l *Lab) elementalWorkload(ctx context.Context, release release) (image.Workload, error) {
	name, err := managerImage(filepath.Join(release.folder, elemental().components))
	if err != nil {
		return image.Workload{}, err
	}
	manager, err := l.images.Build(ctx, image.Program{Package: "./cmd/manager", LDFlags: versionFlags(release.version)})
	if err != nil {
		return image.Workload{}, err
	}
	agent, err := l.buildAgent(ctx, release.version)
	if err != nil {
		return image.Workload{}, err
	}
	workload := managerWorkload(name, manager)
	workload.Files[ServedAgent] = agent
	return workload, nil
}

// buildAgent builds the agent for lab hosts, which have the machine's architecture, and returns the file.
func (l *Lab) buildAgent(ctx context.Context, version string) (string, error) {
	return l.images.Build(ctx, image.Program{Package: "./cmd/elemental-agent", LDFlags: versionFlags(version)})
}

// managerWorkload returns an image that runs a program as Cluster API's manifests expect it.
func managerWorkload(name, program string) image.Workload {
	return image.Workload{Name: name, Entrypoint: []string{"/manager"}, Files: map[string]string{"/manager": program}}
}

// versionFlags makes a program of this repository say that it is of a version.
func versionFlags(version string) string {
	if version == "" {
		return ""
	}
	return "-X main.version=" + version
}

// managerImage returns the image of the container called manager in a file of manifests.
func managerImage(file string) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("reading the release: %w", err)
	}
	defer func() { _ = in.Close() }()
	decoder := yaml.NewYAMLOrJSONDecoder(in, 4096)
	for {
		deployment := appsv1.Deployment{}
		err := decoder.Decode(&deployment)
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("reading %s: it has no Deployment with a container called manager", file)
		}
		if err != nil || deployment.Kind != "Deployment" {
			// Other kinds need not fit the type.
			continue
		}
		for _, container := range deployment.Spec.Template.Spec.Containers {
			if container.Name == "manager" {
				return container.Image, nil
			}
		}
	}
}

// capiModule is where Go keeps the cluster-api module.
type capiModule struct {
	version, folder string
}

func (l *Lab) findCAPI(ctx context.Context) (capiModule, error) {
	out, err := l.listModule(ctx, "cluster-api", "sigs.k8s.io/cluster-api")
	version, folder, _ := strings.Cut(out, " ")
	return capiModule{version: version, folder: folder}, err
}

// KubernetesVersion returns the version that lab hosts have.
func (l *Lab) KubernetesVersion(ctx context.Context) (string, error) {
	out, err := l.listModule(ctx, "kubernetes", "k8s.io/kubernetes")
	version, _, _ := strings.Cut(out, " ")
	return version, err
}

// listModule returns version and folder of a module that a tool set requires.
func (l *Lab) listModule(ctx context.Context, set, module string) (string, error) {
	out, err := shell.Command{
		Args: []string{"go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", module},
		Dir:  filepath.Join(l.options.Checkout, "test", "tools", set),
	}.Run(ctx)
	if err != nil {
		return "", fmt.Errorf("finding module %s: %w", module, err)
	}
	return out, nil
}

// writeRepositories makes clusterctl's local repositories and its configuration, and returns the latter's file.
func (l *Lab) writeRepositories(ctx context.Context, module capiModule, release release, variables map[string]string) error {
	root := filepath.Join(l.options.State, "repository")
	providers := upstream()
	for _, p := range providers {
		manifests, err := l.Kubectl(ctx, "kustomize", filepath.Join(module.folder, p.config))
		if err != nil {
			return fmt.Errorf("rendering %s: %w", p.label, err)
		}
		manifests = strings.NewReplacer(
			stagingRegistry+"/"+p.image+":main", registry+"/"+p.image+":"+module.version,
			"imagePullPolicy: Always", "imagePullPolicy: IfNotPresent",
		).Replace(manifests)
		metadata, err := os.ReadFile(filepath.Join(module.folder, "metadata.yaml"))
		if err != nil {
			return fmt.Errorf("reading the metadata of %s: %w", p.label, err)
		}
		folder := filepath.Join(root, p.label, module.version)
		for name, content := range map[string][]byte{p.components: []byte(manifests), "metadata.yaml": metadata} {
			if err := writeFile(filepath.Join(folder, name), content); err != nil {
				return err
			}
		}
	}
	versions := map[string]string{}
	for _, p := range providers {
		versions[p.label] = module.version
	}
	if release.folder != "" {
		p := elemental()
		folder := filepath.Join(root, p.label, release.version)
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("emptying the repository: %w", err)
		}
		if err := os.CopyFS(folder, os.DirFS(release.folder)); err != nil {
			return fmt.Errorf("copying the release: %w", err)
		}
		providers, versions[p.label] = append(providers, p), release.version
	}
	return writeFile(l.clusterctlConfig(), []byte(clusterctlConfig(root, providers, versions, variables)))
}

// clusterctlConfig returns clusterctl's configuration.
func clusterctlConfig(root string, providers []provider, versions, variables map[string]string) string {
	var text strings.Builder
	text.WriteString("providers:\n")
	for _, p := range providers {
		fmt.Fprintf(&text, "  - name: %s\n    type: %s\n    url: file://%s\n", p.name, p.kind,
			filepath.Join(root, p.label, versions[p.label], p.components))
	}
	text.WriteString("cert-manager:\n  externallyProvisioned: \"true\"\n")
	names := make([]string, 0, len(variables))
	for name := range variables {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&text, "%s: %q\n", name, variables[name])
	}
	return text.String()
}

func (l *Lab) clusterctlConfig() string { return filepath.Join(l.options.State, "clusterctl.yaml") }

func writeFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return fmt.Errorf("writing a file: %w", err)
	}
	return nil
}
