package bundle

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Limits bound what is read of a bundle.
type Limits struct {
	// BundleBytes bounds the bundle itself, compressed.
	BundleBytes int64
	// ManifestBytes bounds the manifest.
	ManifestBytes int64
	// Files bounds the number of files.
	Files int
	// FileBytes bounds one file, UnpackedBytes all of them together.
	FileBytes, UnpackedBytes int64
}

// DefaultLimits are several times what Kubernetes with its images needs.
func DefaultLimits() Limits {
	return Limits{BundleBytes: 4 << 30, ManifestBytes: 512 << 10, Files: 512, FileBytes: 2 << 30, UnpackedBytes: 8 << 30}
}

const (
	// maxNameBytes is what a tar header has for a name.
	maxNameBytes = 100
	// maxPathBytes bounds paths on the host.
	maxPathBytes = 200
	// maxVersionBytes bounds the version of Kubernetes.
	maxVersionBytes = 64
)

var (
	versionPattern = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	digestPattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	// partPattern is a part of a path. It never begins with a dot, so "..", hidden files
	// and the temporary files of the agent are excluded.
	partPattern = regexp.MustCompile(`^[A-Za-z0-9_@+=:-][A-Za-z0-9_@+=:.-]*$`)
	unitPattern = regexp.MustCompile(`\.(automount|mount|path|service|slice|socket|swap|target|timer)$`)
)

// Architectures are the architectures of hosts, as Go names them.
func Architectures() []string { return []string{"amd64", "arm64"} }

// Required are the programs without which a bundle is of no use.
func Required() []string { return []string{"kubeadm", "kubectl", "kubelet"} }

// Destinations are the folders of the host below which files of a kind may be. An image
// has none.
func Destinations(k Kind) []string {
	switch k {
	case KindProgram:
		return []string{"/opt", "/usr/bin", "/usr/local/bin", "/usr/local/sbin"}
	case KindUnit:
		return []string{"/etc/systemd/system", "/usr/local/lib/systemd/system"}
	case KindFile:
		return []string{"/etc/cni/net.d", "/etc/containerd", "/etc/modules-load.d", "/etc/sysctl.d", "/opt"}
	default:
		return nil
	}
}

// modes are the modes that files of a kind may have.
func modes(k Kind) []Mode {
	switch k {
	case KindProgram:
		return []Mode{0o755}
	case KindFile:
		return []Mode{0o600, 0o644, 0o755}
	default:
		return []Mode{0o644}
	}
}

// Check returns an error, with what to do, unless the manifest is one that Decode accepts.
func (m Manifest) Check(l Limits) error {
	switch {
	case m.Format != Format:
		return fmt.Errorf("format %d is unknown: use %d", m.Format, Format)
	case len(m.KubernetesVersion) > maxVersionBytes || !versionPattern.MatchString(m.KubernetesVersion):
		return fmt.Errorf("%q is no version of Kubernetes: write it like v1.36.3", m.KubernetesVersion)
	case !slices.Contains(Architectures(), m.Architecture):
		return fmt.Errorf("%q is no architecture of hosts: use one of %s", m.Architecture, strings.Join(Architectures(), ", "))
	case len(m.Files) > l.Files:
		return fmt.Errorf("it lists %d files, and the limit is %d: put fewer files into the bundle", len(m.Files), l.Files)
	}
	var total int64
	names, paths := map[string]string{ManifestName: "the manifest"}, map[string]string{}
	for i, f := range m.Files {
		if err := f.check(l); err != nil {
			return fmt.Errorf("%q: %w", f.Name, err)
		}
		if i > 0 && m.Files[i-1].Name >= f.Name {
			return fmt.Errorf("%q is listed twice or not in order: build the bundle with `bundle build`", f.Name)
		}
		if total += f.Size; total > l.UnpackedBytes {
			return fmt.Errorf("its files have more than %d bytes: leave out images, which hosts can pull", l.UnpackedBytes)
		}
		names[f.Name] = f.Name
		if other, ok := paths[f.Path]; ok && f.Kind != KindImage {
			return fmt.Errorf("%q and %q both belong at %s on the host: remove one of them", other, f.Name, f.Path)
		}
		paths[f.Path] = f.Name
	}
	if err := errors.Join(checkNested(names), checkNested(paths)); err != nil {
		return err
	}
	return m.checkRequired()
}

// checkNested returns an error if a path is a folder of another one.
func checkNested(paths map[string]string) error {
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		for folder := path.Dir(p); folder != "." && folder != "/"; folder = path.Dir(folder) {
			if other, ok := paths[folder]; ok {
				return fmt.Errorf("%q can't be at %s, because %q is a file at %s: rename one of them", paths[p], p, other, folder)
			}
		}
	}
	return nil
}

// checkRequired returns an error unless the bundle has each required program once.
func (m Manifest) checkRequired() error {
	for _, name := range Required() {
		count := 0
		for _, f := range m.Files {
			if f.Kind == KindProgram && path.Base(f.Path) == name {
				count++
			}
		}
		if count != 1 {
			return fmt.Errorf("it has %d programs named %s: put exactly one into the bundle", count, name)
		}
	}
	return nil
}

func (f File) check(l Limits) error {
	if len(f.Name) > maxNameBytes {
		return fmt.Errorf("the name has %d bytes, and the limit is %d: choose a shorter one", len(f.Name), maxNameBytes)
	}
	if err := checkParts(f.Name); err != nil {
		return err
	}
	switch {
	case f.Name == ManifestName:
		return errors.New("this is the manifest's name: rename the file")
	case f.Size < 0:
		return fmt.Errorf("its size is %d: build the bundle with `bundle build`", f.Size)
	case f.Size > l.FileBytes:
		return fmt.Errorf("it has %d bytes, and the limit is %d: split it or leave it out", f.Size, l.FileBytes)
	case !digestPattern.MatchString(f.SHA256):
		return fmt.Errorf("%q is no SHA-256 in lower-case hex: build the bundle with `bundle build`", f.SHA256)
	}
	switch f.Kind {
	case KindImage:
		if f.Path != "" {
			return fmt.Errorf("it is an image and has the path %s: images are imported, so leave the path out", f.Path)
		}
	case KindProgram, KindUnit, KindFile:
		if err := f.checkPath(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%q is no kind of file: use %s, %s, %s or %s", f.Kind, KindProgram, KindUnit, KindFile, KindImage)
	}
	if !slices.Contains(modes(f.Kind), f.Mode) {
		return fmt.Errorf("a file of kind %s can't have the mode %04o: use one of %04o", f.Kind, uint32(f.Mode), modes(f.Kind))
	}
	return nil
}

// checkParts returns an error for a name that is absolute, not clean, or could lead out of
// its folder.
func checkParts(name string) error {
	for part := range strings.SplitSeq(name, "/") {
		if !partPattern.MatchString(part) {
			return fmt.Errorf("%q is no part of a name: use letters, digits and _ @ + = : . -, none of them a dot at the beginning", part)
		}
	}
	return nil
}

func (f File) checkPath() error {
	if len(f.Path) > maxPathBytes {
		return fmt.Errorf("its path has %d bytes, and the limit is %d: choose a shorter one", len(f.Path), maxPathBytes)
	}
	relative, absolute := strings.CutPrefix(f.Path, "/")
	if !absolute {
		return fmt.Errorf("its path %q is not absolute: begin it with /", f.Path)
	}
	if err := checkParts(relative); err != nil {
		return fmt.Errorf("its path %s: %w", f.Path, err)
	}
	for _, folder := range Destinations(f.Kind) {
		rest, ok := strings.CutPrefix(f.Path, folder+"/")
		if !ok {
			continue
		}
		if strings.Contains("/"+rest, "/elemental-agent") {
			return fmt.Errorf("%s is the agent's: the registration pins agents, so leave it out", f.Path)
		}
		if f.Kind == KindUnit {
			return checkUnit(rest)
		}
		return nil
	}
	return fmt.Errorf("a file of kind %s can't be at %s: put it below one of %s", f.Kind, f.Path, strings.Join(Destinations(f.Kind), ", "))
}

// checkUnit accepts units and drop-ins, below their folder.
func checkUnit(name string) error {
	folder, base, nested := strings.Cut(name, "/")
	if !nested && unitPattern.MatchString(name) {
		return nil
	}
	if nested && strings.HasSuffix(folder, ".d") && strings.HasSuffix(base, ".conf") && !strings.Contains(base, "/") {
		return nil
	}
	return fmt.Errorf("%s is no unit that systemd knows: name it like kubelet.service, or kubelet.service.d/10-kubeadm.conf", name)
}
