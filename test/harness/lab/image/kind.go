package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// kindBoot is the boot of kind's nodes.
const kindBoot = `ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]`

// KindNode builds the image of kind's nodes, if it is missing, and returns its name in Docker. It is the Debian and the
// Kubernetes of lab hosts with the files of kind's own image, which are in kind's module. kind's network plugin and its
// provisioner of volumes are not: clusters need disableDefaultCNI, and their StorageClass makes no volumes.
func (b Builder) KindNode(ctx context.Context) (string, error) {
	// Building kind downloads its module.
	kind, err := toolset.Select("kind")
	if err != nil {
		return "", err
	}
	if _, err := b.Tools.Folder(ctx, kind...); err != nil {
		return "", fmt.Errorf("building kind: %w", err)
	}
	module, err := shell.Command{
		Args: []string{"go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind"}, Dir: filepath.Join(b.Tools.Modules, "kind"),
	}.Run(ctx)
	if err != nil {
		return "", fmt.Errorf("finding kind's module: %w", err)
	}
	if module == "" {
		return "", errors.New("kind's module is not in Go's cache any more: go -C test/tools/kind mod download")
	}
	kubernetes, err := b.kubernetes(ctx, Current)
	if err != nil {
		return "", err
	}
	files, err := kindFiles(kubernetes, os.DirFS(filepath.Join(module, "images", "base", "files")))
	if err != nil {
		return "", err
	}
	return b.withKubernetes(ctx, kindRepository, kubernetes, files)
}

// kindFiles returns the programs and files of a node of kind: base, which are those of kind's base image, and what its
// build adds. containerd has the configuration of lab hosts, because kind's lowers OOM scores, and runs a hook that
// needs jq to hide the machine's product name.
func kindFiles(k kubernetes, base fs.FS) (files, error) {
	host, err := hostFiles(k)
	if err != nil {
		return files{}, err
	}
	all := files{boot: kindBoot, inline: map[string]string{}, copied: maps.Clone(host.copied)}
	delete(all.copied, "usr/local/lib/kubeadm")
	// The units and commands of kind expect them there.
	for _, name := range []string{"kubeadm", "kubelet", "kubectl"} {
		delete(all.copied, "usr/local/bin/"+name)
		all.copied["usr/bin/"+name] = filepath.Join(k.tools, name)
	}
	err = fs.WalkDir(base, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(base, name)
		all.inline[name] = string(text)
		return err
	})
	if err != nil {
		return files{}, fmt.Errorf("reading the files of kind: %w", err)
	}
	for _, name := range []string{"etc/containerd/config.toml", "etc/systemd/system/lab-network.service"} {
		all.inline[name] = host.inline[name]
	}
	all.inline["kind/version"] = k.version
	return all, nil
}
