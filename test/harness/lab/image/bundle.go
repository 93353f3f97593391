package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle/build"
)

// Bundle is a bundle of Kubernetes for lab hosts.
type Bundle struct {
	// Version of Kubernetes, such as v1.36.3.
	Version string
	// File is the bundle on this machine.
	File string
	// SHA256 of the file, in hex.
	SHA256 string
	// Size of the file, in bytes.
	Size int64
}

// Defect is what makes upgrades with a bundle fail.
type Defect string

// Defects of bundles.
const (
	// None is that of a bundle that works.
	None Defect = ""
	// KubeletExits is a kubelet that says its version and otherwise exits with status 1.
	KubeletExits Defect = "kubelet-exits"
	// ServerExits is a kube-apiserver that exits as soon as it is started.
	ServerExits Defect = "server-exits"
)

// Bundle builds the bundle of a release, if it is missing. It holds everything that hosts of
// the image BareHost lack: Kubernetes, containerd, network plugins, units and images, and the images of
// workloads beside those of Kubernetes.
func (b Builder) Bundle(ctx context.Context, release Release, defect Defect, workloads ...Workload) (Bundle, error) {
	k, err := b.kubernetes(ctx, release)
	if err != nil {
		return Bundle{}, err
	}
	sources, err := k.bundleSources(defect)
	if err != nil {
		return Bundle{}, err
	}
	if defect == ServerExits {
		// coredns does not know the flags of kube-apiserver.
		workloads = append(workloads, Workload{
			Name: k.names["kube-apiserver"], Files: map[string]string{"/usr/local/bin/kube-apiserver": filepath.Join(k.tools, "coredns")},
		})
	}
	if len(workloads) > 0 {
		if k.extraImages, err = b.Archive("further", workloads...); err != nil {
			return Bundle{}, fmt.Errorf("packing further images: %w", err)
		}
	}
	format, err := b.bundleCode()
	if err != nil {
		return Bundle{}, fmt.Errorf("reading the code that writes bundles: %w", err)
	}
	folder := filepath.Join(b.Cache, "bundle-"+key(k.version, k.tools, k.images, k.extraImages, sources.files, defect, format))
	sources.name = bundleName(k.version, defect, workloads...)
	if _, err := os.Stat(folder); err != nil {
		err = b.Progress.Step("Building "+sources.name, func() error {
			return b.place(folder, func(temp string) error {
				return k.bundle(ctx, temp, sources)
			})
		})
		if err != nil {
			return Bundle{}, fmt.Errorf("building %s: %w", sources.name, err)
		}
	}
	return openBundle(k.version, filepath.Join(folder, sources.name))
}

// BundleFolder collects everything that the bundle of a release holds in a folder, for `bundle
// build`, and the images of workloads beside those of Kubernetes. The folder must be in the file
// system of the cache.
func (b Builder) BundleFolder(ctx context.Context, release Release, folder string, workloads ...Workload) error {
	k, err := b.kubernetes(ctx, release)
	if err != nil {
		return err
	}
	sources, err := k.bundleSources(None)
	if err != nil {
		return err
	}
	if k.extraImages, err = b.Archive("extra", workloads...); err != nil {
		return fmt.Errorf("packing further images: %w", err)
	}
	if err := k.collect(folder, sources); err != nil {
		return fmt.Errorf("collecting the files of a bundle: %w", err)
	}
	return nil
}

// bundleSources returns what the lab adds to the programs of a bundle.
func (k kubernetes) bundleSources(defect Defect) (bundleSources, error) {
	wrapper, err := content.ReadFile("files/kubernetes/usr/local/bin/kubeadm")
	if err != nil {
		return bundleSources{}, fmt.Errorf("reading the wrapper of kubeadm: %w", err)
	}
	files := map[string]string{}
	if err := embedded("kubernetes", k.names["pause"], files); err != nil {
		return bundleSources{}, err
	}
	return bundleSources{wrapper: string(wrapper), files: files, defect: defect}, nil
}

// bundleCode returns the digests of the code that writes bundles: hosts refuse those that a former
// version has written otherwise.
func (b Builder) bundleCode() (sums []string, err error) {
	for _, folder := range []string{"internal/bundle", "internal/bundle/build"} {
		files, err := filepath.Glob(filepath.Join(b.Checkout, folder, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			sum, err := fileSum(file)
			if err != nil {
				return nil, err
			}
			sums = append(sums, sum)
		}
	}
	return sums, nil
}

func bundleName(version string, defect Defect, workloads ...Workload) string {
	if defect != None {
		version += "-" + string(defect)
	} else if len(workloads) > 0 {
		version += "-images"
	}
	return fmt.Sprintf("kubernetes-%s-%s.bundle", version, architecture)
}

// bundleSources are what the lab adds to the programs of a bundle.
type bundleSources struct {
	// wrapper is the script around kubeadm.
	wrapper string
	// files are the texts of files, by their paths on hosts without the leading slash.
	files  map[string]string
	defect Defect
	// name is that of the bundle's file.
	name string
}

// openBundle returns a bundle that was built.
func openBundle(version, file string) (Bundle, error) {
	f, err := os.Open(file)
	if err != nil {
		return Bundle{}, fmt.Errorf("opening a bundle: %w", err)
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return Bundle{}, fmt.Errorf("reading a bundle: %w", err)
	}
	return Bundle{Version: version, File: file, SHA256: hex.EncodeToString(sum.Sum(nil)), Size: size}, nil
}

// bundle writes the bundle into a folder.
func (k kubernetes) bundle(ctx context.Context, folder string, sources bundleSources) (err error) {
	from, err := os.MkdirTemp(folder, "from-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(from)) }()
	if err := k.collect(from, sources); err != nil {
		return err
	}
	contents, err := build.Scan(ctx, build.Options{From: from, Version: k.version, Architecture: architecture, Limits: bundle.DefaultLimits()})
	if err != nil {
		return err
	}
	if err := contents.CheckVersions(ctx); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(folder, sources.name))
	if err != nil {
		return err
	}
	return errors.Join(contents.Write(ctx, file, func(bundle.File) {}), file.Close())
}

// collect puts the bundle's files where `bundle build` expects them.
func (k kubernetes) collect(folder string, sources bundleSources) error {
	links := map[string]string{"images/kubernetes.tar": k.images}
	if k.extraImages != "" {
		// It is imported after the other one, so its images get the names.
		links["images/later.tar"] = k.extraImages
	}
	for _, name := range nodePrograms() {
		links["bin/"+name] = filepath.Join(k.tools, name)
	}
	for _, name := range networkPlugins() {
		links["cni/"+name] = filepath.Join(k.tools, name)
	}
	for name, source := range links {
		target := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.Link(source, target); err != nil {
			return err
		}
	}
	const units = "etc/systemd/system/"
	for name, text := range sources.files {
		target := filepath.Join("files", name)
		switch {
		case name == "usr/local/bin/kubeadm":
			continue
		case strings.HasPrefix(name, units):
			target = filepath.Join("units", strings.TrimPrefix(name, units))
		}
		target = filepath.Join(folder, target)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if sources.defect == KubeletExits {
		if err := replaceKubelet(filepath.Join(folder, "bin", "kubelet"), k.version); err != nil {
			return err
		}
	}
	return wrapKubeadm(filepath.Join(folder, "bin", "kubeadm"), sources.wrapper, filepath.Join(k.tools, "kubeadm"))
}

// replaceKubelet replaces the link to the kubelet by a script that does nothing but say a version.
func replaceKubelet(target, version string) error {
	if err := os.Remove(target); err != nil {
		return err
	}
	const script = "#!/bin/sh\n[ \"$*\" = --version ] || exit 1\necho Kubernetes "
	return os.WriteFile(target, []byte(script+version+"\n"), 0o755)
}

// unwrap replaces the last line of kubeadm's wrapper in bundles. A bundle may not place programs
// in /usr/local/lib, and the kubeadm of a bundle that is only unpacked has to work too. So the
// wrapper holds the program, and unpacks it to memory once.
const unwrap = `real=${RUNTIME_DIRECTORY:-/run}/lab-kubeadm-@DIGEST@
if [ ! -x "$real" ]; then
	tail -c @SIZE@ "$0" >"$real.$$"
	chmod 0755 "$real.$$"
	mv "$real.$$" "$real"
fi
exec "$real" "$@"
`

// wrapKubeadm writes a script that holds kubeadm.
func wrapKubeadm(target, wrapper, kubeadm string) error {
	program, err := os.ReadFile(kubeadm)
	if err != nil {
		return err
	}
	head, _, found := strings.Cut(wrapper, "exec /usr/local/lib/kubeadm")
	if !found {
		return errors.New("the wrapper of kubeadm does not end by executing it")
	}
	sum := sha256.Sum256(program)
	tail := strings.NewReplacer("@DIGEST@", hex.EncodeToString(sum[:8]), "@SIZE@", strconv.Itoa(len(program))).Replace(unwrap)
	return os.WriteFile(target, append([]byte(head+tail), program...), 0o755)
}
