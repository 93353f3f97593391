package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
)

const (
	// Format is the version of the format that this package reads and writes.
	Format = 1
	// ManifestName is the name of the manifest, in a bundle and where a bundle is unpacked.
	ManifestName = "bundle.json"
)

// Kind says what a file is for.
type Kind string

// Kinds of files.
const (
	// KindProgram is an executable.
	KindProgram Kind = "Program"
	// KindUnit is a systemd unit, or a drop-in of one.
	KindUnit Kind = "Unit"
	// KindFile is any other file of the host, such as configuration.
	KindFile Kind = "File"
	// KindImage is a tar archive of container images to import. It has no path on the host.
	KindImage Kind = "Image"
)

// Mode holds the permission bits of a file. In JSON it is a string of four octal digits.
type Mode uint32

// MarshalText writes octal digits.
func (m Mode) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%04o", uint32(m)), nil }

// UnmarshalText reads octal digits.
func (m *Mode) UnmarshalText(text []byte) error {
	bits, err := strconv.ParseUint(string(text), 8, 12)
	if err != nil {
		return fmt.Errorf("%q is no mode in octal digits, such as 0644", text)
	}
	*m = Mode(bits)
	return nil
}

// File is a file of a bundle.
type File struct {
	// Name is the name in the archive, such as "bin/kubelet".
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Path is where the file belongs on the host. It is blank for an image.
	Path   string `json:"path,omitempty"`
	Mode   Mode   `json:"mode"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Manifest lists what a bundle holds.
type Manifest struct {
	Format            int    `json:"format"`
	KubernetesVersion string `json:"kubernetesVersion"`
	Architecture      string `json:"architecture"`
	// Files are sorted by name.
	Files []File `json:"files"`
}

// Decode reads a manifest and checks it. Only the form that Encode writes is accepted, so
// that no two programs read different things from one manifest.
func Decode(data []byte, l Limits) (Manifest, error) {
	if int64(len(data)) > l.ManifestBytes {
		return Manifest{}, fmt.Errorf("it has more than %d bytes: put fewer files into the bundle", l.ManifestBytes)
	}
	if err := checkFormat(data); err != nil {
		return Manifest{}, err
	}
	var m Manifest
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", errForeign, err)
	}
	if err := m.Check(l); err != nil {
		return Manifest{}, err
	}
	canonical, err := m.Encode()
	if err != nil {
		return Manifest{}, err
	}
	if !bytes.Equal(canonical, data) {
		return Manifest{}, errForeign
	}
	return m, nil
}

var errForeign = errors.New("it is not in the form that `bundle build` writes: build the bundle with that program")

// checkFormat reads the format before anything else, because another format may have
// other fields.
func checkFormat(data []byte) error {
	var m struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	if m.Format > Format {
		return fmt.Errorf("it has format %d, and this program reads format %d: update the program, or build the bundle with an older one", m.Format, Format)
	}
	if m.Format != Format {
		return fmt.Errorf("it has format %d, and this program reads format %d: build the bundle again", m.Format, Format)
	}
	return nil
}

// Encode writes the manifest. Equal manifests have equal bytes.
func (m Manifest) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	return append(data, '\n'), nil
}

// UnpackedBytes is the size of all files together.
func (m Manifest) UnpackedBytes() int64 {
	var total int64
	for _, f := range m.Files {
		total += f.Size
	}
	return total
}

// Program returns the program that has this name on the host, such as "kubelet".
func (m Manifest) Program(name string) (File, bool) {
	for _, f := range m.Files {
		if f.Kind == KindProgram && path.Base(f.Path) == name {
			return f, true
		}
	}
	return File{}, false
}

// CheckFor returns an error unless the bundle holds that version of Kubernetes for that
// architecture.
func (m Manifest) CheckFor(version, architecture string) error {
	if m.KubernetesVersion != version {
		return fmt.Errorf("the bundle holds Kubernetes %s, not %s: pin the bundle of that version", m.KubernetesVersion, version)
	}
	if m.Architecture != architecture {
		return fmt.Errorf("the bundle is for %s, and the host is %s: pin a bundle for that architecture", m.Architecture, architecture)
	}
	return nil
}
