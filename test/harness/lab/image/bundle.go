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

// Bundle builds the bundle of a release, if it is missing. It holds everything that hosts of
// the image BareHost lack: Kubernetes, containerd, network plugins, units and images.
func (b Builder) Bundle(ctx context.Context, release Release) (Bundle, error) {
	k, err := b.kubernetes(ctx, release)
	if err != nil {
		return Bundle{}, err
	}
	wrapper, err := content.ReadFile("files/kubernetes/usr/local/bin/kubeadm")
	if err != nil {
		return Bundle{}, fmt.Errorf("reading the wrapper of kubeadm: %w", err)
	}
	sources := map[string]string{}
	if err := embedded("kubernetes", k.names["pause"], sources); err != nil {
		return Bundle{}, err
	}
	folder := filepath.Join(b.Cache, "bundle-"+key(k.version, k.tools, k.images, sources))
	if _, err := os.Stat(folder); err != nil {
		err = b.Progress.Step("Building the bundle of Kubernetes "+k.version, func() error {
			return b.place(folder, func(temp string) error { return k.bundle(ctx, temp, string(wrapper), sources) })
		})
		if err != nil {
			return Bundle{}, fmt.Errorf("building the bundle of Kubernetes %s: %w", k.version, err)
		}
	}
	return openBundle(k.version, filepath.Join(folder, bundleName(k.version)))
}

func bundleName(version string) string {
	return fmt.Sprintf("kubernetes-%s-%s.bundle", version, architecture)
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
func (k kubernetes) bundle(ctx context.Context, folder, wrapper string, sources map[string]string) (err error) {
	from, err := os.MkdirTemp(folder, "from-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(from)) }()
	if err := k.collect(from, wrapper, sources); err != nil {
		return err
	}
	contents, err := build.Scan(ctx, build.Options{From: from, Version: k.version, Architecture: architecture, Limits: bundle.DefaultLimits()})
	if err != nil {
		return err
	}
	if err := contents.CheckVersions(ctx); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(folder, bundleName(k.version)))
	if err != nil {
		return err
	}
	return errors.Join(contents.Write(ctx, file, func(bundle.File) {}), file.Close())
}

// collect puts the bundle's files where `bundle build` expects them.
func (k kubernetes) collect(folder, wrapper string, sources map[string]string) error {
	links := map[string]string{"images/kubernetes.tar": k.images}
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
	for name, text := range sources {
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
	return wrapKubeadm(filepath.Join(folder, "bin", "kubeadm"), wrapper, filepath.Join(k.tools, "kubeadm"))
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
