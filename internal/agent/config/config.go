package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
)

// DefaultPath is the default path of the configuration.
const DefaultPath = "/etc/elemental/agent/config.yaml"

// Defaults of the settings that are rarely changed.
const (
	DefaultRotateAfter  = 30 * 24 * time.Hour
	DefaultReadoptAfter = 10 * time.Minute
)

// Config is the content of the configuration file.
type Config struct {
	// Servers are the server URLs, tried one after the other.
	Servers []string `yaml:"servers"`
	// TrustBundle has, as PEM, the CA certificates of the servers.
	TrustBundle string `yaml:"trustBundle"`
	// Token is the registration token; the agent removes it from the file once
	// the host is enrolled and approved.
	Token string `yaml:"token"`
	// StateDir is where the agent keeps its key and its records.
	StateDir string `yaml:"stateDir"`
	// RotateAfter is the age at which the host's key is replaced.
	RotateAfter time.Duration `yaml:"rotateAfter"`
	// Key configures new host keys.
	Key Key `yaml:"key"`
	// ReadoptAfter is how long every manager must not have known the host before the host
	// asks to be re-adopted, as after the loss of a management cluster.
	ReadoptAfter time.Duration `yaml:"readoptAfter"`
	// Backend selects the platform.
	Backend Backend `yaml:"backend"`
	// OS is what "elemental-agent install" installs.
	OS OS `yaml:"os"`
}

// Backend is a platform.
type Backend string

// Back ends. BackendAuto detects the platform and is the default.
const (
	BackendAuto      Backend = "Auto"
	BackendLinux     Backend = "Linux"
	BackendElemental Backend = "Elemental"
)

// OS configures the operating system that live media install.
type OS struct {
	Install Install `yaml:"install"`
}

// Install configures the installation of the operating system.
type Install struct {
	// Device is the disk, whose content is lost.
	Device string `yaml:"device"`
	// Image is an image source of the elemental CLI; blank means that of the live media.
	Image string `yaml:"image"`
	// CloudInit are further files or URLs for the OEM partition.
	CloudInit []string `yaml:"cloudInit"`
	// ConfigDir is the configuration directory of the elemental CLI; blank means its default.
	ConfigDir string `yaml:"configDir"`
	// Force installs over an installed system.
	Force bool `yaml:"force"`
	// Then is Reboot, the default, or PowerOff.
	Then string `yaml:"then"`
}

// Values of Install.Then.
const (
	ThenReboot   = "Reboot"
	ThenPowerOff = "PowerOff"
)

func (c Config) checkSystem() error {
	switch c.Backend {
	case "", BackendAuto, BackendLinux, BackendElemental:
	default:
		return fmt.Errorf("backend: Auto, Linux or Elemental is needed, not %q", c.Backend)
	}
	switch c.OS.Install.Then {
	case "", ThenReboot, ThenPowerOff:
	default:
		return fmt.Errorf("os.install.then: Reboot or PowerOff is needed, not %q", c.OS.Install.Then)
	}
	for _, file := range c.OS.Install.CloudInit {
		if file == "" || strings.ContainsAny(file, ", \t\n") {
			return fmt.Errorf("os.install.cloudInit: %q: a path or URL without commas and spaces is needed", file)
		}
	}
	return nil
}

// Key configures new host keys.
type Key struct {
	// TPM is Auto, Required or Off.
	TPM hostkey.Policy `yaml:"tpm"`
}

// String hides the token.
func (c Config) String() string {
	return fmt.Sprintf("servers %s, state in %s", strings.Join(c.Servers, " "), c.StateDir)
}

// GoString hides the token.
func (c Config) GoString() string { return c.String() }

// Load reads the file at path.
func Load(path string) (Config, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, fmt.Errorf("there is no configuration at %s: put the one that the ElementalRegistration offers there", path)
	}
	if err != nil {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Config{}, fmt.Errorf("%s holds a token and can be read by others (mode %04o): chmod 600 %s", path, info.Mode().Perm(), path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("reading the configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse reads a configuration, checks it and fills in the defaults.
func Parse(data []byte) (Config, error) {
	c := Config{StateDir: state.DefaultDir, RotateAfter: DefaultRotateAfter, ReadoptAfter: DefaultReadoptAfter, Key: Key{TPM: hostkey.Auto}}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, withoutValues(err)
	}
	c.Token = strings.TrimSpace(c.Token)
	return c, c.check()
}

func (c Config) check() error {
	if len(c.Servers) == 0 {
		return errors.New("servers: at least one URL is needed")
	}
	for _, server := range c.Servers {
		if _, err := client.ParseServer(server); err != nil {
			return fmt.Errorf("servers: %w", err)
		}
	}
	if _, err := client.ParseTrustBundle(c.TrustBundle); err != nil {
		return fmt.Errorf("trustBundle: %w", err)
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("token: it has characters that no token has")
	}
	if !filepath.IsAbs(c.StateDir) {
		return errors.New("stateDir: an absolute path is needed")
	}
	if c.RotateAfter <= 0 {
		return errors.New("rotateAfter: a positive duration such as 720h is needed")
	}
	if !c.Key.TPM.Known() {
		return fmt.Errorf("key.tpm: Auto, Required or Off is needed, not %q", c.Key.TPM)
	}
	if c.ReadoptAfter <= 0 {
		return errors.New("readoptAfter: a positive duration such as 10m is needed")
	}
	return c.checkSystem()
}

// Source identifies the servers and the trust bundle of the configuration. It changes when
// a person edits them.
func (c Config) Source() string {
	sum := sha256.Sum256([]byte(strings.Join(c.Servers, "\n") + "\n" + c.TrustBundle))
	return hex.EncodeToString(sum[:8])
}

// withoutValues removes the quoted values from YAML's type errors, as one of them could be
// the token.
func withoutValues(err error) error {
	var types *yaml.TypeError
	if !errors.As(err, &types) {
		return err
	}
	lines := make([]string, 0, len(types.Errors))
	for _, text := range types.Errors {
		if first, _, quoted := strings.Cut(text, "`"); quoted {
			if _, last, closed := strings.Cut(text[len(first)+1:], "`"); closed {
				text = first + "a value" + last
			}
		}
		lines = append(lines, text)
	}
	return errors.New(strings.Join(lines, "; "))
}
