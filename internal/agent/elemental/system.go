package elemental

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Places on the OEM partition, which survives an upgrade and a reset.
const (
	OEMDir = "/oem"
	// ConfigPath is the agent's configuration.
	ConfigPath = OEMDir + "/elemental/agent/config.yaml"
	// StateDir is where the agent keeps its key and records.
	StateDir = OEMDir + "/elemental/agent/state"
)

// grubEnvironment is read by the boot loader.
const grubEnvironment = OEMDir + "/grubenv"

// program is the CLI.
const program = "elemental"

// maxStateBytes bounds state.yaml.
const maxStateBytes = 1 << 20

// Mode is what the host was booted into.
type Mode string

// Modes. Passive is the fallback when the active system does not boot.
const (
	ModeNone     Mode = ""
	ModeActive   Mode = "active"
	ModePassive  Mode = "passive"
	ModeRecovery Mode = "recovery"
	ModeLive     Mode = "live"
)

// System is the operating system below Root, "/" if blank.
type System struct{ Root string }

func (s System) path(name string) string {
	if s.Root == "" {
		return name
	}
	return filepath.Join(s.Root, name)
}

// Mode tells what was booted. ModeNone: this is not Elemental OS.
func (s System) Mode() Mode {
	for _, mode := range []Mode{ModeLive, ModeRecovery, ModePassive, ModeActive} {
		for _, dir := range []string{"/run/elemental/", "/run/cos/"} {
			if _, err := os.Stat(s.path(dir + string(mode) + "_mode")); err == nil {
				return mode
			}
		}
	}
	return ModeNone
}

// Detect reports whether this is Elemental OS: a boot marker is there, and the CLI
// in PATH.
func (s System) Detect() bool {
	_, err := exec.LookPath(program)
	return err == nil && s.Mode() != ModeNone
}

// InOEM reports whether a path is on the OEM partition.
func InOEM(path string) bool { return strings.HasPrefix(filepath.Clean(path), OEMDir+"/") }

// deployed is the active system as state.yaml has it.
type deployed struct {
	// Source is where its image came from, such as oci://registry/image:tag.
	Source string `json:"source,omitempty"`
	// Operation is the label that an upgrade by this agent put on it.
	Operation string `json:"operation,omitempty"`
	// Print changes with every deployment, also of the same image.
	Print string `json:"print,omitempty"`
}

// image is one deployed system in state.yaml.
type image struct {
	Source string            `yaml:"source"`
	Digest string            `yaml:"digest"`
	Active bool              `yaml:"active"`
	Labels map[string]string `yaml:"labels"`
}

// installState is what matters here of state.yaml: v2 of the toolkit numbers
// snapshots, v1 has one active image.
type installState struct {
	Date  string `yaml:"date"`
	State struct {
		Snapshots map[int]image `yaml:"snapshots"`
		Active    *image        `yaml:"active"`
	} `yaml:"state"`
}

// deployed reads state.yaml.
func (s System) deployed() (deployed, error) {
	data, err := s.stateFile()
	if err != nil {
		return deployed{}, fmt.Errorf("reading elemental's state.yaml: %w", err)
	}
	var state installState
	if err := yaml.Unmarshal(data, &state); err != nil {
		return deployed{}, fmt.Errorf("reading elemental's state.yaml: %w", err)
	}
	active, number := state.State.Active, 0
	for i, snapshot := range state.State.Snapshots {
		if snapshot.Active && (active == nil || i > number) {
			active, number = &snapshot, i
		}
	}
	if active == nil {
		return deployed{}, errors.New("reading elemental's state.yaml: it names no active system")
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s\n%s\n%s", state.Date, number, active.Source, active.Digest, active.Labels[operationLabel]))
	return deployed{Source: active.Source, Operation: active.Labels[operationLabel], Print: hex.EncodeToString(sum[:8])}, nil
}

func (s System) stateFile() ([]byte, error) {
	for _, dir := range []string{"/run/initramfs/elemental-state", "/run/initramfs/cos-state"} {
		file, err := os.Open(s.path(dir + "/state.yaml"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(io.LimitReader(file, maxStateBytes+1))
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
		if len(data) > maxStateBytes {
			return nil, fmt.Errorf("it has more than %d bytes", maxStateBytes)
		}
		return data, nil
	}
	return nil, fs.ErrNotExist
}

// is reports whether the system was deployed from a source as a person wrote it.
// A system that an operation labelled is that operation's.
func (d deployed) is(source, operation string) bool {
	if d.Operation != "" {
		return d.Operation == operation
	}
	return normalised(d.Source) == normalised(source)
}

// normalised makes sources comparable: the toolkit takes docker: for oci:, and adds
// the tag latest.
func normalised(source string) string {
	scheme, rest, found := strings.Cut(source, ":")
	if !found {
		return source
	}
	rest = strings.TrimPrefix(rest, "//")
	if scheme != "oci" && scheme != "docker" {
		return scheme + ":" + rest
	}
	if last := rest[strings.LastIndex(rest, "/")+1:]; !strings.ContainsAny(last, ":@") {
		rest += ":latest"
	}
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "docker.io/"), "library/")
	return "oci:" + rest
}
