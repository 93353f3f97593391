package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/checksums"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/image"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/manifests"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/packages"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/programs"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/sbom"
)

// images is the text of imageList.
//
//go:embed images.txt
var images string

// builder writes releases of one checkout.
type builder struct {
	// root is the checkout. image has no tag. kustomize is a command with its arguments.
	root, version, image, kustomize string
}

// manifests writes the files for clusterctl.
func (b *builder) manifests(ctx context.Context, folder string) error {
	if err := b.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return manifests.Write(ctx, b.root, folder, b.image+":"+b.version, strings.Fields(b.kustomize))
}

// build writes a release. The folder has it when everything has succeeded, and not before.
func (b *builder) build(ctx context.Context, folder string) (err error) {
	if err := b.check(); err != nil {
		return err
	}
	if err := checkReplaceable(folder); err != nil {
		return err
	}
	at, err := programs.CommitTime(ctx, b.root)
	if err != nil {
		return err
	}
	if programs.Changed(ctx, b.root) {
		say("The checkout has changes that are not committed: nobody else can build the same release")
	}
	r := release{folder + ".new", b.version}
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work), os.RemoveAll(r.folder)) }()
	if err := os.RemoveAll(r.folder); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { say("Writing the files for clusterctl"); return b.manifests(ctx, r.folder) },
		func() error { return b.programs(ctx, work, at) },
		func() error { return b.assemble(r, work, at) },
		func() error { return os.RemoveAll(folder) },
		func() error { return os.Rename(r.folder, folder) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	say("The release is in %s", folder)
	return nil
}

// built is where a program is in the folder of programs.
func built(work, command, architecture string) string {
	return filepath.Join(work, command+"-linux-"+architecture)
}

func (b *builder) programs(ctx context.Context, work string, at time.Time) error {
	p := programs.Builder{Root: b.root, Version: b.version, Time: at}
	for _, architecture := range architectures() {
		for _, command := range append(commands(), manager) {
			say("Building %s for %s", command, architecture)
			if err := p.Build(ctx, command, architecture, built(work, command, architecture)); err != nil {
				return err
			}
		}
	}
	return nil
}

// assemble makes of the programs, which are built, and of the files for clusterctl, which are in
// the folder, a release.
func (b *builder) assemble(r release, work string, at time.Time) error {
	if err := b.archives(r, work, at); err != nil {
		return err
	}
	if err := r.writeKrew(); err != nil {
		return err
	}
	if err := b.writeImage(r, work, at); err != nil {
		return err
	}
	if err := b.lists(r, work); err != nil {
		return err
	}
	return finish(r, at)
}

// packages writes the agent's packages for the architecture of this machine.
func (b *builder) packages(ctx context.Context, folder string) (err error) {
	if !versions.MatchString(b.version) {
		return fmt.Errorf("%q is no version of a release", b.version)
	}
	at, err := programs.CommitTime(ctx, b.root)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "packages-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	program := built(work, agent, runtime.GOARCH)
	if err := (programs.Builder{Root: b.root, Version: b.version, Time: at}).Build(ctx, agent, runtime.GOARCH, program); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return packages.Write(folder, packages.Options{
		Version: b.version, Architecture: runtime.GOARCH, Time: at, Program: program,
		Unit: filepath.Join(b.root, "cmd", agent, agent+".service"), License: filepath.Join(b.root, "LICENSE"),
	})
}

// archives writes what people get of each program: an archive, packages, a list of modules.
func (b *builder) archives(r release, work string, at time.Time) error {
	license, unit := filepath.Join(b.root, "LICENSE"), filepath.Join(b.root, "cmd", agent, agent+".service")
	for _, architecture := range architectures() {
		say("Packing the programs for %s", architecture)
		for _, command := range append(commands(), manager) {
			file := built(work, command, architecture)
			program, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := archive.Create(r.sbom(command, architecture), func(w io.Writer) error { return sbom.Write(w, command, b.version, program) }); err != nil {
				return err
			}
			if command == manager {
				continue
			}
			files := []archive.File{
				{Name: command, Mode: 0o755, Path: file},
				{Name: "LICENSE", Mode: 0o644, Path: license},
			}
			if command == agent {
				files = append(files,
					archive.File{Name: agent + ".service", Mode: 0o644, Path: unit},
					archive.File{Name: agent + ".default", Mode: 0o644, Content: packages.Default})
			}
			if err := archive.WriteGzip(r.archive(command, architecture), files, at); err != nil {
				return fmt.Errorf("packing %s: %w", command, err)
			}
		}
		if err := packages.Write(r.folder, packages.Options{
			Version: b.version, Architecture: architecture, Time: at, Program: built(work, agent, architecture), Unit: unit, License: license,
		}); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) writeImage(r release, work string, at time.Time) error {
	say("Writing the manager's image")
	managers, agents := map[string]string{}, map[string]string{}
	for _, architecture := range architectures() {
		managers[architecture] = built(work, manager, architecture)
		file := built(work, agent, architecture)
		agents["agents/"+filepath.Base(file)] = file
	}
	return image.Write(r.image(), image.Options{
		Name: b.image + ":" + b.version, Time: at, Programs: managers, Shared: agents,
		Labels: map[string]string{
			"org.opencontainers.image.title":    path.Base(b.image),
			"org.opencontainers.image.version":  b.version,
			"org.opencontainers.image.source":   home,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	})
}

// lists writes which images an installation needs, and what registrations pin.
func (b *builder) lists(r release, work string) error {
	text := strings.Replace(images, "${IMAGE}", b.image+":"+b.version, 1)
	var pinned bytes.Buffer
	fmt.Fprintf(&pinned, "# For the spec of an ElementalRegistration whose hosts are to have the agent of this release.\nagent:\n  version: %s\n  binaries:\n", b.version)
	for _, architecture := range architectures() {
		sum, err := checksums.Sum(built(work, agent, architecture))
		if err != nil {
			return err
		}
		fmt.Fprintf(&pinned, "    - architecture: %s\n      sha256: %s\n", architecture, sum)
	}
	for name, content := range map[string][]byte{imageList: []byte(text), pins: pinned.Bytes()} {
		if err := os.WriteFile(filepath.Join(r.folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// finish writes the digests and the archive for sites without Internet. The archive has digests
// of its own, so that what is unpacked is a release that can be verified.
func finish(r release, at time.Time) error {
	say("Writing the archive for air-gapped sites, and the digests")
	if err := os.RemoveAll(r.airgap()); err != nil {
		return err
	}
	if err := checksums.Write(r.folder); err != nil {
		return err
	}
	files, err := archive.Tree(r.folder)
	if err != nil {
		return err
	}
	for n := range files {
		files[n].Name = project + "_" + r.version + "/" + files[n].Name
	}
	if err := archive.Create(r.airgap(), func(w io.Writer) error { return archive.Write(w, files, at) }); err != nil {
		return err
	}
	return checksums.Write(r.folder)
}
