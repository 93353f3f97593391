package elemental

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/erase"
)

// seedPath is the seed file for the CLI, in memory.
const seedPath = "/run/elemental-agent/seed.yaml"

// seedMark is the name by which the installed system finds the seed among the files
// that the CLI copied to the OEM partition.
const seedMark = "Elemental host agent seed"

// Settings are the settings of an installation.
type Settings struct {
	// Device is the disk to install to. Its content is erased.
	Device string
	// Image is a source of the elemental CLI; blank means the image of the live media.
	Image string
	// CloudInit are additional files or URLs that the CLI copies to the OEM partition.
	CloudInit []string
	// ConfigDir is the CLI's configuration directory; blank means its default.
	ConfigDir string
	// PowerOff powers off the host after the installation, instead of a reboot.
	PowerOff bool
	// Force replaces an installed system.
	Force bool
}

// Installer installs Elemental OS and the agent's configuration from live media.
type Installer struct {
	System System
	CLI    CLI
	Log    *slog.Logger
}

// Plan describes an installation.
type Plan struct {
	// Erases describes the disk that the installation erases.
	Erases string
	// Command contains the CLI's arguments, and Environment additional variables.
	Command, Environment []string
}

// Plan checks the settings. It changes nothing.
func (i *Installer) Plan(s Settings) (Plan, error) {
	if mode := i.System.Mode(); mode != ModeLive {
		return Plan{}, fmt.Errorf("this host was not booted from live media (%s), and an installation would destroy it: boot the installation medium", describeMode(mode))
	}
	if s.Image != "" && !imagePattern.MatchString(s.Image) {
		return Plan{}, fmt.Errorf("os.install.image: %q is no image: one begins with oci:, docker:, dir: or file:, without spaces", s.Image)
	}
	if !strings.HasPrefix(s.Device, "/dev/") {
		return Plan{}, errors.New("os.install.device: the device file of a disk is needed, such as /dev/disk/by-id/…")
	}
	target, err := erase.Describe(i.System.path("/"), s.Device)
	if err != nil {
		return Plan{}, fmt.Errorf("os.install.device: %w", err)
	}
	if target.InUse != "" {
		return Plan{}, fmt.Errorf("os.install.device: %s cannot be installed to: %s", s.Device, target.InUse)
	}
	plan := Plan{
		Erases: target.String(),
		Environment: []string{
			"ELEMENTAL_INSTALL_TARGET=" + s.Device,
			"ELEMENTAL_INSTALL_CLOUD_INIT=" + strings.Join(append([]string{i.System.path(seedPath)}, s.CloudInit...), ","),
		},
	}
	if s.Image != "" {
		plan.Environment = append(plan.Environment, "ELEMENTAL_INSTALL_SYSTEM="+s.Image)
	}
	if s.ConfigDir != "" {
		plan.Command = append(plan.Command, "--config-dir", s.ConfigDir)
	}
	plan.Command = append(plan.Command, "install")
	if s.Force {
		plan.Command = append(plan.Command, "--force")
	}
	if s.PowerOff {
		plan.Command = append(plan.Command, "--poweroff")
	} else {
		plan.Command = append(plan.Command, "--reboot")
	}
	return plan, nil
}

// Install executes a plan. config is the content of the agent's configuration. The
// CLI reboots or powers off the host at the end.
func (i *Installer) Install(ctx context.Context, plan Plan, config []byte) (err error) {
	seed, err := seed(config)
	if err != nil {
		return err
	}
	path := i.System.path(seedPath)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making a directory for the agent's seed: %w", err)
	}
	if err := durable.WriteFile(path, seed, 0o600); err != nil {
		return fmt.Errorf("writing the agent's seed: %w", err)
	}
	defer func() {
		if gone := os.Remove(path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	i.Log.Info("Installing the operating system", "erases", plan.Erases)
	return i.CLI.run(ctx, plan.Environment, plan.Command...)
}

// seed returns a file for the CLI's boot stages (https://github.com/rancher/yip). At
// the first boot of the installed system it writes the configuration and removes
// itself: the CLI makes the file readable by all users, and it contains the token.
func seed(config []byte) ([]byte, error) {
	type file struct {
		Path        string `yaml:"path"`
		Permissions uint32 `yaml:"permissions"`
		Owner       int    `yaml:"owner"`
		Group       int    `yaml:"group"`
		Content     string `yaml:"content"`
	}
	type directory struct {
		Path        string `yaml:"path"`
		Permissions uint32 `yaml:"permissions"`
	}
	type stage struct {
		Name        string      `yaml:"name"`
		If          string      `yaml:"if,omitempty"`
		Directories []directory `yaml:"directories,omitempty"`
		Files       []file      `yaml:"files,omitempty"`
		Commands    []string    `yaml:"commands,omitempty"`
	}
	document := struct {
		Name   string             `yaml:"name"`
		Stages map[string][]stage `yaml:"stages"`
	}{Name: seedMark, Stages: map[string][]stage{"boot": {
		{
			Name: "Configure the agent", If: "[ ! -s " + ConfigPath + " ]",
			Directories: []directory{{filepath.Dir(filepath.Dir(ConfigPath)), 0o755}, {filepath.Dir(ConfigPath), 0o700}},
			Files:       []file{{Path: ConfigPath, Permissions: 0o600, Content: string(config)}},
		},
		{
			Name: "Start the agent and remove the seed", If: "[ -s " + ConfigPath + " ]",
			Commands: []string{
				"sync", "systemctl --no-block start elemental-agent.service",
				"grep -lx 'name: " + seedMark + "' " + OEMDir + "/9*_custom.yaml | xargs -r rm -f",
			},
		},
	}}}
	data, err := yaml.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding the agent's seed: %w", err)
	}
	return data, nil
}

func describeMode(mode Mode) string {
	if mode == ModeNone {
		return "it runs no Elemental OS"
	}
	return "it runs its " + string(mode) + " system"
}
