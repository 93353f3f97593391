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

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// content holds the files of a host that come from neither Debian nor a tool set.
//
//go:embed files
var content embed.FS

// Host builds the image of lab hosts, if it is missing, and returns its name in Docker.
func (b Builder) Host(ctx context.Context) (string, error) {
	kubernetes, err := b.kubernetes(ctx, Current)
	if err != nil {
		return "", err
	}
	files, err := hostFiles(kubernetes)
	if err != nil {
		return "", err
	}
	return b.withKubernetes(ctx, repository, kubernetes, files)
}

// withKubernetes builds the image of hosts with Kubernetes, if it is missing, and returns its name in Docker.
func (b Builder) withKubernetes(ctx context.Context, repository string, kubernetes kubernetes, files files) (string, error) {
	id := key(kubernetes.system, kubernetes.tools, kubernetes.images, files.inline, sortedKeys(files.copied))
	name := repository + ":" + id
	if _, err := b.Engine.Docker(ctx, "image", "inspect", "--format", "{{.Id}}", name); err == nil {
		return name, nil
	}
	err := b.Progress.Step("Making the image "+repository, func() error {
		return b.importHost(ctx, name, kubernetes.system, kubernetes.images, files)
	})
	if err != nil {
		return "", err
	}
	return name, b.prune(ctx, name)
}

// BareHost builds the image of hosts that have nothing of Kubernetes and no container runtime,
// if it is missing, and returns its name in Docker.
func (b Builder) BareHost(ctx context.Context) (string, error) {
	system, _, err := b.rootfs(ctx)
	if err != nil {
		return "", err
	}
	files, err := bareFiles()
	if err != nil {
		return "", err
	}
	name := bareRepository + ":" + key(system, files.inline)
	if _, err := b.Engine.Docker(ctx, "image", "inspect", "--format", "{{.Id}}", name); err == nil {
		return name, nil
	}
	err = b.Progress.Step("Making the image of bare hosts", func() error { return b.dockerImport(ctx, name, files, system) })
	if err != nil {
		return "", fmt.Errorf("importing the image of bare hosts: %w", err)
	}
	return name, b.prune(ctx, name)
}

// Names of host images in Docker.
const (
	repository     = "elemental-lab-host"
	bareRepository = "elemental-lab-bare-host"
	kindRepository = "elemental-lab-kind-node"
)

// prune removes all other images of keep's repository, unless a container uses them.
func (b Builder) prune(ctx context.Context, keep string) error {
	repository, _, _ := strings.Cut(keep, ":")
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
	for _, repository := range []string{repository, bareRepository, kindRepository} {
		ids, err := b.Engine.Docker(ctx, "image", "ls", "--quiet", repository)
		if err != nil {
			return fmt.Errorf("listing host images: %w", err)
		}
		if ids == "" {
			continue
		}
		if _, err := b.Engine.Docker(ctx, append([]string{"image", "rm", "--force"}, strings.Fields(ids)...)...); err != nil {
			return fmt.Errorf("removing host images: %w", err)
		}
	}
	return nil
}

// files are the files that are added to Debian's, by path: from memory and from this machine.
type files struct {
	inline map[string]string
	copied map[string]string
	// boot is the instruction of a Dockerfile that names the first process.
	boot string
}

// labBoot is the boot of lab hosts.
const labBoot = `CMD ["/usr/local/sbin/lab-boot"]`

// hostFiles returns the programs and files of a host.
func hostFiles(k kubernetes) (files, error) {
	all := files{boot: labBoot, inline: map[string]string{}, copied: map[string]string{
		"usr/local/lib/kubeadm": filepath.Join(k.tools, "kubeadm"),
	}}
	for _, name := range nodePrograms() {
		all.copied["usr/local/bin/"+name] = filepath.Join(k.tools, name)
	}
	for _, name := range networkPlugins() {
		all.copied["opt/cni/bin/"+name] = filepath.Join(k.tools, name)
	}
	for _, folder := range []string{"system", "kubernetes"} {
		if err := embedded(folder, k.names["pause"], all.inline); err != nil {
			return files{}, err
		}
	}
	return all, nil
}

// bareFiles returns the files of a host without Kubernetes.
func bareFiles() (files, error) {
	all := files{boot: labBoot, inline: map[string]string{}}
	return all, embedded("system", "", all.inline)
}

// embedded adds the files of a folder to all, by their path on a host.
func embedded(folder, pause string, all map[string]string) error {
	root := "files/" + folder
	err := fs.WalkDir(content, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := content.ReadFile(name)
		all[strings.TrimPrefix(name, root+"/")] = strings.ReplaceAll(string(text), "@PAUSE@", pause)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the files of hosts: %w", err)
	}
	return nil
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
			"docker", "import", "--change", "ENV container=docker", "--change", files.boot, "-", name,
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
	for _, unit := range []string{"containerd", "kubelet", "lab-network", "undo-mount-hacks"} {
		if _, exists := files.inline["etc/systemd/system/"+unit+".service"]; !exists {
			continue
		}
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
