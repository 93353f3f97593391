package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	agent   = "elemental-agent"
	manager = "manager"
	// project begins the names of archives that have more than one program.
	project = "cluster-api-provider-elemental"
	// imageList has the images that an installation needs.
	imageList = "images.txt"
	// pins is what a registration pins for the agents of the release.
	pins = "registration-agent.yaml"
)

// architectures are those of programs, packages and images.
func architectures() []string { return []string{"amd64", "arm64"} }

// commands are the folders of cmd whose programs people get as archives. The agent has packages
// too, and the manager comes as an image.
func commands() []string {
	return []string{
		agent,
		"bundle",
		plugin,
	}
}

// release is a folder with a release.
type release struct {
	folder, version string
}

// archive is the archive with a command.
func (r release) archive(command, architecture string) string {
	return filepath.Join(r.folder, fmt.Sprintf("%s_%s_linux_%s.tar.gz", command, r.version, architecture))
}

// sbom is the document with the modules of a command or the manager.
func (r release) sbom(command, architecture string) string {
	return filepath.Join(r.folder, fmt.Sprintf("%s_%s_linux_%s.cdx.json", command, r.version, architecture))
}

// image is the archive of the image layout.
func (r release) image() string {
	return filepath.Join(r.folder, fmt.Sprintf("manager-image_%s.oci.tar", r.version))
}

// images is the archive with the images of imageList, which not each release has.
func (r release) images() string {
	return filepath.Join(r.folder, fmt.Sprintf("images_%s.oci.tar", r.version))
}

// airgap is the archive with all other files.
func (r release) airgap() string {
	return filepath.Join(r.folder, fmt.Sprintf("%s_%s_airgap.tar", project, r.version))
}

// checkReplaceable returns an error if a folder has something else than a release, which must not
// be lost.
func checkReplaceable(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := open(folder); err != nil {
		return fmt.Errorf("%w, so it is not replaced: remove it, or name another folder", err)
	}
	return nil
}

// open finds out the version of the release in a folder by the name of its image.
func open(folder string) (release, error) {
	found, err := filepath.Glob(filepath.Join(folder, "manager-image_*.oci.tar"))
	if err != nil {
		return release{}, err
	}
	if len(found) != 1 {
		return release{}, fmt.Errorf("%s has %d images: it is not the folder of one release", folder, len(found))
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "manager-image_"), ".oci.tar")
	return release{folder, version}, nil
}
