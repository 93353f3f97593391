// Package packages makes the host agent's packages for dpkg and rpm.
package packages

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
)

const (
	name = "elemental-agent"
	// programPath is where the packages have the agent. /usr/local belongs to the administrator.
	programPath = "/usr/bin/elemental-agent"
	// localPath is where an agent is that no package has installed, which the unit names.
	localPath = "/usr/local/bin/elemental-agent"
)

// Default is the agent's environment file, /etc/default/elemental-agent.
//
//go:embed elemental-agent.default
var Default []byte

//go:embed scripts
var scripts embed.FS

// Options say what the packages have.
type Options struct {
	// Version is the release's, with a "v".
	Version string
	// Architecture is Go's name for it.
	Architecture string
	// Time is the time of everything in the packages.
	Time time.Time
	// Program and Unit are files: the agent, and its unit as cmd/elemental-agent has it.
	Program, Unit string
	// License is the file with the license.
	License string
}

// Write writes elemental-agent_VERSION_ARCHITECTURE.deb and the same of rpm into a folder, named
// as their distributions do.
func Write(folder string, o Options) (err error) {
	work, err := os.MkdirTemp("", "packages-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := writeSources(work, o.Unit); err != nil {
		return err
	}
	for format, packager := range map[string]nfpm.Packager{"deb": deb.Default, "rpm": rpm.DefaultRPM} {
		info := nfpm.WithDefaults(describe(work, format, o))
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return fmt.Errorf("preparing the %s of the agent: %w", format, err)
		}
		out := filepath.Join(folder, packager.ConventionalFileName(info))
		if err := archive.Create(out, func(w io.Writer) error { return packager.Package(info, w) }); err != nil {
			return fmt.Errorf("writing the %s of the agent: %w", format, err)
		}
	}
	return nil
}

// writeSources writes the files into a folder that the packages are made of.
func writeSources(folder, unit string) error {
	text, err := os.ReadFile(unit)
	if err != nil {
		return err
	}
	if strings.Count(string(text), localPath) == 0 {
		return fmt.Errorf("%s does not start %s", unit, localPath)
	}
	sources := map[string][]byte{
		"unit":    []byte(strings.ReplaceAll(string(text), localPath, programPath)),
		"default": Default,
	}
	all, err := scripts.ReadDir("scripts")
	if err != nil {
		return err
	}
	for _, s := range all {
		if sources[s.Name()], err = scripts.ReadFile("scripts/" + s.Name()); err != nil {
			return err
		}
	}
	for name, content := range sources {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// describe describes the package of one format, whose sources are in a folder.
func describe(folder, format string, o Options) *nfpm.Info {
	source := func(name string) string { return filepath.Join(folder, name) }
	content := func(from, to, kind string, mode os.FileMode) *files.Content {
		return &files.Content{
			Source: from, Destination: to, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: o.Time},
		}
	}
	info := &nfpm.Info{
		Name: name, Arch: o.Architecture, Platform: "linux", Version: o.Version, MTime: o.Time, DisableGlobbing: true,
		Section: "admin", Priority: "optional", License: "Apache-2.0",
		Maintainer:  "The authors of cluster-api-provider-elemental <noreply@github.com>",
		Homepage:    "https://github.com/capi-elemental/cluster-api-provider-elemental",
		Description: "Elemental host agent\nMakes this host available to Cluster API: it enrols the host with a management\ncluster, and makes it a node or cleans it as that asks for.",
	}
	info.Contents = files.Contents{
		content(o.Program, programPath, files.TypeFile, 0o755),
		content(source("unit"), "/usr/lib/systemd/system/elemental-agent.service", files.TypeFile, 0o644),
		content(source("default"), "/etc/default/elemental-agent", files.TypeConfigNoReplace, 0o644),
		content(o.License, "/usr/share/doc/elemental-agent/copyright", files.TypeFile, 0o644),
	}
	switch format {
	case "deb":
		info.Depends = []string{"init-system-helpers"}
		info.Scripts = nfpm.Scripts{PostInstall: source("deb-postinst"), PreRemove: source("deb-prerm"), PostRemove: source("deb-postrm")}
	case "rpm":
		info.RPM.Group, info.RPM.Summary = "System/Management", "Elemental host agent"
		// The name of the machine that builds must not be in the package.
		info.RPM.BuildHost = "localhost"
		info.Scripts = nfpm.Scripts{PostInstall: source("rpm-post"), PreRemove: source("rpm-preun"), PostRemove: source("rpm-postun")}
	}
	return info
}
