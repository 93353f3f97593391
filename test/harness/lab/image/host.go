package image

import (
	"archive/tar"
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// content holds the files of a host that come from neither Debian nor a tool set.
//
//go:embed files
var content embed.FS

// Host builds the image of lab hosts, if it is missing, and returns its name in Docker.
func (b Builder) Host(ctx context.Context) (string, error) {
	tools, err := b.tools(ctx)
	if err != nil {
		return "", err
	}
	system, proxy, err := b.rootfs(ctx)
	if err != nil {
		return "", err
	}
	names, err := imageNames(ctx, tools)
	if err != nil {
		return "", err
	}
	names["kube-vip"] = kubevip.DefaultImage
	own := map[string]string{}
	for _, name := range []string{"pause", "kubeproxy"} {
		if own[name], err = b.Build(ctx, Program{Package: "./test/harness/lab/" + name}); err != nil {
			return "", err
		}
	}
	workloads, err := workloads(names, own, tools, proxy)
	if err != nil {
		return "", err
	}
	archive, err := b.Archive("workloads", workloads...)
	if err != nil {
		return "", fmt.Errorf("packing the images of Kubernetes: %w", err)
	}
	files, err := hostFiles(tools, names)
	if err != nil {
		return "", err
	}
	id := key(system, tools, archive, files.inline, sortedKeys(files.copied))
	name := repository + ":" + id
	if _, err := b.Engine.Docker(ctx, "image", "inspect", "--format", "{{.Id}}", name); err == nil {
		return name, nil
	}
	err = b.Progress.Step("Making the host image", func() error {
		return b.importHost(ctx, name, system, archive, files)
	})
	if err != nil {
		return "", err
	}
	return name, b.prune(ctx, name)
}

// repository is the name of host images in Docker.
const repository = "elemental-lab-host"

// prune removes all host images except the one called keep, unless a container uses them.
func (b Builder) prune(ctx context.Context, keep string) error {
	list, err := b.Engine.Docker(ctx, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", repository)
	if err != nil {
		return fmt.Errorf("listing host images: %w", err)
	}
	for name := range strings.FieldsSeq(list) {
		if name != keep {
			_, _ = b.Engine.Docker(ctx, "image", "rm", name)
		}
	}
	return nil
}

// Remove removes all host images from Docker.
func (b Builder) Remove(ctx context.Context) error {
	ids, err := b.Engine.Docker(ctx, "image", "ls", "--quiet", repository)
	if err != nil {
		return fmt.Errorf("listing host images: %w", err)
	}
	if ids == "" {
		return nil
	}
	if _, err := b.Engine.Docker(ctx, append([]string{"image", "rm", "--force"}, strings.Fields(ids)...)...); err != nil {
		return fmt.Errorf("removing host images: %w", err)
	}
	return nil
}

// tools builds the programs of a host and its images and returns their folder.
func (b Builder) tools(ctx context.Context) (string, error) {
	tools, err := toolset.Select("kubernetes", "containerd", "ctr", "containerd-shim-runc-v2", "bridge", "host-local",
		"loopback", "portmap", "etcd", "coredns", "kube-vip")
	if err != nil {
		return "", err
	}
	folder, err := b.Tools.Folder(ctx, tools...)
	if err != nil {
		return "", fmt.Errorf("building the programs of hosts: %w", err)
	}
	return folder, nil
}

// files are the files that are added to Debian's, by path: from memory and from this machine.
type files struct {
	inline map[string]string
	copied map[string]string
}

// hostFiles returns the programs and files of a host.
func hostFiles(tools string, images map[string]string) (files, error) {
	all := files{inline: map[string]string{}, copied: map[string]string{
		"usr/local/lib/kubeadm": filepath.Join(tools, "kubeadm"),
	}}
	for _, name := range []string{"kubelet", "kubectl", "containerd", "containerd-shim-runc-v2", "ctr"} {
		all.copied["usr/local/bin/"+name] = filepath.Join(tools, name)
	}
	for _, name := range []string{"bridge", "host-local", "loopback", "portmap"} {
		all.copied["opt/cni/bin/"+name] = filepath.Join(tools, name)
	}
	err := fs.WalkDir(content, "files", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := content.ReadFile(name)
		all.inline[strings.TrimPrefix(name, "files/")] = strings.ReplaceAll(string(text), "@PAUSE@", images["pause"])
		return err
	})
	if err != nil {
		return files{}, fmt.Errorf("reading the files of hosts: %w", err)
	}
	return all, nil
}

// fileMode returns the mode of a file from memory.
func fileMode(name string) int64 {
	if dir := path.Base(path.Dir(name)); dir == "bin" || dir == "sbin" {
		return 0o755
	}
	return 0o644
}

// importHost builds the image in two steps: Debian and files first, then the content of
// containerd, which a container of the first image imports from the archive. Otherwise each host
// would have to import it.
func (b Builder) importHost(ctx context.Context, name, system, archive string, files files) error {
	folder, err := os.MkdirTemp(b.Cache, "new-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	bare := name + "-bare"
	if err := b.dockerImport(ctx, bare, files, system); err != nil {
		return fmt.Errorf("importing the image without images in it: %w", err)
	}
	defer func() { _, _ = b.Engine.Docker(context.WithoutCancel(ctx), "image", "rm", bare) }()

	store := filepath.Join(folder, "store.tar")
	if err := b.fillContainerd(ctx, bare, archive, store); err != nil {
		return fmt.Errorf("loading images into containerd: %w", err)
	}
	if err := b.dockerImport(ctx, name, files, system, store); err != nil {
		return fmt.Errorf("importing the image: %w", err)
	}
	return nil
}

// fillContainerd imports an archive into the containerd of a container and packs the resulting
// store.
func (b Builder) fillContainerd(ctx context.Context, image, archive, store string) error {
	const script = `set -e
containerd >&2 &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
ctr --namespace k8s.io images import --local --discard-unpacked-layers - >&2
kill $! && wait
tar --create --directory / var/lib/containerd`
	flags, err := engine.Privileges()
	if err != nil {
		return err
	}
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(store)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	args := slices.Concat(
		[]string{"docker", "run", "--rm", "--interactive", "--label", engine.Label + "=" + b.Engine.Lab, "--network", "none"},
		flags, []string{"--volume", "/var", "--tmpfs", "/run:exec", "--entrypoint", "/bin/sh", image, "-c", script})
	if _, err := (shell.Command{Args: args, Stdin: in, Stdout: out}).Run(ctx); err != nil {
		return err
	}
	return out.Close()
}

// dockerImport creates an image with one layer from tar files and files. Later ones overwrite
// earlier ones.
func (b Builder) dockerImport(ctx context.Context, name string, files files, tars ...string) error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeRoot(w, files, tars)) }()
	defer func() { _ = r.Close() }()
	_, err := shell.Command{
		Args: []string{
			"docker", "import", "--change", "ENV container=docker", "--change", `CMD ["/usr/local/sbin/lab-boot"]`, "-", name,
		},
		Stdin: r,
	}.Run(ctx)
	return err
}

// writeRoot writes a root file system as a tar stream.
func writeRoot(out io.Writer, files files, tars []string) error {
	w := tar.NewWriter(out)
	for _, file := range tars {
		if err := copyTar(w, file); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(files.copied) {
		if err := addFile(w, name, files.copied[name], 0o755); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(files.inline) {
		if err := addBytes(w, name, []byte(files.inline[name]), fileMode(name)); err != nil {
			return err
		}
	}
	// Like "systemctl enable"; all units here belong to this target.
	for _, unit := range []string{"containerd", "kubelet", "lab-network"} {
		err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeSymlink, Mode: 0o777, ModTime: time.Unix(0, 0),
			Name:     "etc/systemd/system/multi-user.target.wants/" + unit + ".service",
			Linkname: "/etc/systemd/system/" + unit + ".service",
		})
		if err != nil {
			return err
		}
	}
	return w.Close()
}
