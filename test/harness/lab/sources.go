package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/certs"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/image"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/repository"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// ServedAgent is the agent in the manager's image: of the release's version, and the one that hosts get.
const ServedAgent = "/agents/elemental-agent-linux-" + runtime.GOARCH

// sources builds everything that the lab installs.
type sources struct {
	// checkout is the root folder of the sources of this provider; release is Options.Release.
	checkout, release string
	// images builds everything but this provider, from the checkout of the lab itself.
	images image.Builder
}

// release is the version and folder of a release of this provider. The zero value means no
// release.
type release struct {
	version, folder string
}

// findRelease returns the release that the options name, otherwise the newest one in out/manifests.
func (s sources) findRelease() (release, error) {
	if folder := s.release; folder != "" {
		folder, err := filepath.Abs(folder)
		if err != nil {
			return release{}, fmt.Errorf("finding the release: %w", err)
		}
		if _, err := os.Stat(filepath.Join(folder, repository.Elemental().Components)); err != nil {
			return release{}, fmt.Errorf("looking at the release: %w", err)
		}
		return release{version: filepath.Base(folder), folder: folder}, nil
	}
	files, err := filepath.Glob(filepath.Join(s.checkout, "out", "manifests", "v*", repository.Elemental().Components))
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

// providerImages builds two archives: the images of Cluster API's providers, and the images of
// this provider and of the replacement of cert-manager. Only the second archive changes with the
// sources of this repository.
func (s sources) providerImages(ctx context.Context, tools string, module capiModule, release release) ([]string, error) {
	var upstreamImages, ownImages []image.Workload
	for _, p := range repository.Upstream(module.version) {
		upstreamImages = append(upstreamImages, managerWorkload(p.Image, filepath.Join(tools, p.Tool)))
	}
	file, err := s.images.Build(ctx, image.Program{Package: "./test/harness/lab/cmd/certs"})
	if err != nil {
		return nil, err
	}
	ownImages = append(ownImages, managerWorkload(certs.Image, file))
	if release.folder != "" {
		workload, err := s.elementalWorkload(ctx, release)
		if err != nil {
			return nil, err
		}
		ownImages = append(ownImages, workload)
	}
	first, err := s.images.Archive("cluster-api", upstreamImages...)
	if err != nil {
		return nil, err
	}
	second, err := s.images.Archive("elemental", ownImages...)
	return []string{first, second}, err
}

// elementalWorkload returns this provider's image, with the agent that its manager serves.
func (s sources) elementalWorkload(ctx context.Context, release release) (image.Workload, error) {
	name, err := managerImage(filepath.Join(release.folder, repository.Elemental().Components))
	if err != nil {
		return image.Workload{}, err
	}
	manager, err := s.build(ctx, image.Program{Package: "./cmd/manager", LDFlags: versionFlags(release.version)})
	if err != nil {
		return image.Workload{}, err
	}
	agent, err := s.buildAgent(ctx, release.version)
	if err != nil {
		return image.Workload{}, err
	}
	workload := managerWorkload(name, manager)
	workload.Files[ServedAgent] = agent
	return workload, nil
}

// buildAgent builds the agent for lab hosts, which have the machine's architecture, and returns the file.
func (s sources) buildAgent(ctx context.Context, version string) (string, error) {
	return s.build(ctx, image.Program{Package: "./cmd/elemental-agent", LDFlags: versionFlags(version)})
}

// build builds a program of this provider.
func (s sources) build(ctx context.Context, p image.Program) (string, error) {
	builder := s.images
	builder.Checkout = s.checkout
	return builder.Build(ctx, p)
}

// capiModule is the version and folder of the cluster-api module.
type capiModule struct {
	version, folder string
}

func (s sources) findCAPI(ctx context.Context) (capiModule, error) {
	out, err := s.listModule(ctx, "cluster-api", "sigs.k8s.io/cluster-api")
	version, folder, _ := strings.Cut(out, " ")
	return capiModule{version: version, folder: folder}, err
}

func (s sources) kubernetesVersion(ctx context.Context) (string, error) {
	out, err := s.listModule(ctx, "kubernetes", "k8s.io/kubernetes")
	version, _, _ := strings.Cut(out, " ")
	return version, err
}

// listModule returns version and folder of a module that a tool set requires.
func (s sources) listModule(ctx context.Context, set, module string) (string, error) {
	out, err := shell.Command{
		Args: []string{"go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", module},
		Dir:  filepath.Join(s.images.Checkout, "test", "tools", set),
	}.Run(ctx)
	if err != nil {
		return "", fmt.Errorf("finding module %s: %w", module, err)
	}
	return out, nil
}

// managerWorkload returns an image that runs a program as Cluster API's manifests expect it.
func managerWorkload(name, program string) image.Workload {
	return image.Workload{Name: name, Entrypoint: []string{"/manager"}, Files: map[string]string{"/manager": program}}
}

// versionFlags returns linker flags that set the version of a program of this repository.
func versionFlags(version string) string {
	if version == "" {
		return ""
	}
	return "-X main.version=" + version
}

// deployment is what is read of a Deployment. Other fields may be variables of clusterctl, which
// do not fit their types.
type deployment struct {
	Kind string `json:"kind"`
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Name  string `json:"name"`
					Image string `json:"image"`
				} `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

// managerImage returns the image of the container "manager" in a file of manifests.
func managerImage(file string) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("reading the release: %w", err)
	}
	defer func() { _ = in.Close() }()
	decoder := yaml.NewYAMLOrJSONDecoder(in, 4096)
	for {
		found := deployment{}
		err := decoder.Decode(&found)
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("reading %s: it has no Deployment with a container called manager", file)
		}
		if err != nil || found.Kind != "Deployment" {
			// Other kinds need not fit the type.
			continue
		}
		for _, container := range found.Spec.Template.Spec.Containers {
			if container.Name == "manager" {
				return container.Image, nil
			}
		}
	}
}
