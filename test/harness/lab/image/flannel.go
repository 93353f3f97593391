package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// Flannel is a release of the network plugin flannel.
type Flannel struct {
	// Manifest is its kube-flannel.yml.
	Manifest string
	// Images are those that the manifest names.
	Images []Workload
}

// Flannel builds flannel from its sources. The manifest is that of its release but for two values, see flannelManifest.
func (b Builder) Flannel(ctx context.Context) (Flannel, error) {
	// flanneld has a file in C.
	if _, err := exec.LookPath("gcc"); err != nil {
		if err := engine.Install(ctx, "gcc", "libc6-dev"); err != nil {
			return Flannel{}, fmt.Errorf("getting a C compiler: %w", err)
		}
	}
	selected, err := toolset.Select("flanneld", "install-conf", "flannel")
	if err != nil {
		return Flannel{}, err
	}
	tools, err := b.Tools.Folder(ctx, selected...)
	if err != nil {
		return Flannel{}, fmt.Errorf("building flannel: %w", err)
	}
	cp, err := b.Build(ctx, Program{Package: "./test/harness/lab/cp"})
	if err != nil {
		return Flannel{}, err
	}
	_, iptables, err := b.rootfs(ctx)
	if err != nil {
		return Flannel{}, err
	}
	module, err := shell.Command{
		Args: []string{"go", "list", "-m", "-f", "{{.Dir}}", "github.com/flannel-io/flannel"}, Dir: filepath.Join(b.Tools.Modules, "flannel"),
	}.Run(ctx)
	if err != nil {
		return Flannel{}, fmt.Errorf("finding flannel's module: %w", err)
	}
	released, err := os.ReadFile(filepath.Join(module, "Documentation", "kube-flannel.yml"))
	if err != nil {
		return Flannel{}, fmt.Errorf("reading flannel's manifest: %w", err)
	}
	manifest, err := flannelManifest(string(released))
	if err != nil {
		return Flannel{}, err
	}
	images, err := flannelImages(manifest, tools, cp, iptables)
	return Flannel{Manifest: manifest, Images: images}, err
}

// flannelManifest changes two values of flannel's manifest. The backend becomes host-gw, which makes routes between hosts of
// one network, because vxlan needs a module of this machine's kernel. The configuration of CNI has the newest version that
// the plugin of the tool set flannel-cni knows.
func flannelManifest(released string) (string, error) {
	for from, to := range map[string]string{
		`"Type": "vxlan"`: `"Type": "host-gw"`, `"cniVersion": "1.0.0"`: `"cniVersion": "0.4.0"`,
	} {
		if strings.Count(released, from) != 1 {
			return "", fmt.Errorf("flannel's manifest has no %s, or several", from)
		}
		released = strings.Replace(released, from, to, 1)
	}
	return released, nil
}

// flannelImages returns the images that a manifest of flannel names, of the programs in tools, the lab's cp, and the tar
// file with iptables.
func flannelImages(manifest, tools, cp, iptables string) ([]Workload, error) {
	var images []Workload
	for _, match := range regexp.MustCompile(`(?m)^ *image: (\S+)$`).FindAllStringSubmatch(manifest, -1) {
		name := match[1]
		if slices.ContainsFunc(images, func(w Workload) bool { return w.Name == name }) {
			continue
		}
		repository, _, _ := strings.Cut(filepath.Base(name), ":")
		w := Workload{Name: name}
		switch repository {
		case "flannel":
			w.Base = iptables
			w.Files = map[string]string{
				"/opt/bin/flanneld": filepath.Join(tools, "flanneld"), "/opt/bin/install-conf": filepath.Join(tools, "install-conf"),
			}
		case "flannel-cni-plugin":
			w.Files = map[string]string{"/flannel": filepath.Join(tools, "flannel"), "/bin/cp": cp}
		default:
			return nil, fmt.Errorf("flannel's manifest names image %s, which the lab can't make", name)
		}
		images = append(images, w)
	}
	return images, nil
}
