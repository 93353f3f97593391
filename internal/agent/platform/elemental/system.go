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

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Paths on the OEM partition, which survives upgrades and resets.
const (
	OEMDir = "/oem"
	// ConfigPath is the agent's configuration.
	ConfigPath = OEMDir + "/elemental/agent/config.yaml"
	// StateDir contains the agent's key and records.
	StateDir = OEMDir + "/elemental/agent/state"
)

// grubEnvironment is the boot loader's environment file.
const grubEnvironment = OEMDir + "/grubenv"

// program is the name of the CLI.
const program = "elemental"

// maxStateBytes limits the size of state.yaml.
const maxStateBytes = 1 << 20

// Mode is the system that the host has booted.
type Mode string

// Modes. The passive system is the fallback if the active one does not boot.
const (
	ModeNone     Mode = ""
	ModeActive   Mode = "active"
	ModePassive  Mode = "passive"
	ModeRecovery Mode = "recovery"
	ModeLive     Mode = "live"
)

// System is an installed Elemental OS. Root replaces "/" if it is not blank.
type System struct{ Root string }

func (s System) path(name string) string {
	if s.Root == "" {
		return name
	}
	return filepath.Join(s.Root, name)
}

// Mode returns the booted system. ModeNone means that this is not Elemental OS.
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

// Detect reports whether this is Elemental OS: a boot marker exists, and the CLI
// is in PATH.
func (s System) Detect() bool {
	_, err := exec.LookPath(program)
	return err == nil && s.Mode() != ModeNone
}

// InOEM reports whether a path is on the OEM partition.
func InOEM(path string) bool { return strings.HasPrefix(filepath.Clean(path), OEMDir+"/") }

// Image returns the source of the image of the running system; blank if it is unknown. state.yaml
// does not say which image the passive and the recovery system have.
func (s System) Image() string {
	if s.Mode() != ModeActive {
		return ""
	}
	current, err := s.activeDeployment()
	if err != nil {
		return ""
	}
	return current.Source
}

// deployment is the active system according to state.yaml.
type deployment struct {
	// Source is the source of its image, such as oci://registry/image:tag.
	Source string `json:"source,omitempty"`
	// Operation is the label of the upgrade of this agent that deployed it.
	Operation string `json:"operation,omitempty"`
	// Print changes with every deployment, even of the same image.
	Print string `json:"print,omitempty"`
}

// image is one deployed system in state.yaml.
type image struct {
	Source string            `yaml:"source"`
	Digest string            `yaml:"digest"`
	Active bool              `yaml:"active"`
	Labels map[string]string `yaml:"labels"`
}

// installState is the part of state.yaml that this package uses: v2 of the toolkit
// numbers snapshots, v1 has one active image.
type installState struct {
	Date  string `yaml:"date"`
	State struct {
		Snapshots map[int]image `yaml:"snapshots"`
		Active    *image        `yaml:"active"`
	} `yaml:"state"`
}

// activeDeployment reads the active system from state.yaml.
func (s System) activeDeployment() (deployment, error) {
	data, err := s.stateFile()
	if err != nil {
		return deployment{}, fmt.Errorf("reading elemental's state.yaml: %w", err)
	}
	var state installState
	if err := yaml.Unmarshal(data, &state); err != nil {
		return deployment{}, fmt.Errorf("reading elemental's state.yaml: %w", err)
	}
	active, number := state.State.Active, 0
	for i, snapshot := range state.State.Snapshots {
		if snapshot.Active && (active == nil || i > number) {
			active, number = &snapshot, i
		}
	}
	if active == nil {
		return deployment{}, errors.New("reading elemental's state.yaml: it names no active system")
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s\n%s\n%s", state.Date, number, active.Source, active.Digest, active.Labels[operationLabel]))
	return deployment{Source: active.Source, Operation: active.Labels[operationLabel], Print: hex.EncodeToString(sum[:8])}, nil
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

// isFrom reports whether an operation deployed the system from a source. If the
// system has no label of an operation, their sources are compared.
func (d deployment) isFrom(source, operation string) bool {
	if d.Operation != "" {
		return d.Operation == operation
	}
	return protocol.SameOSImage(d.Source, source)
}
