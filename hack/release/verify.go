package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/checksums"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/image"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/manifests"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/sbom"
)

// verify checks a release, and returns an error that says all that is wrong.
func verify(folder string) (err error) {
	r, err := open(folder)
	if err != nil {
		return err
	}
	say("Verifying %s", folder)
	img, err := image.Open(r.image())
	if err != nil {
		return errors.Join(checksums.Check(folder), err)
	}
	defer func() { err = errors.Join(err, img.Close()) }()
	wrong := errors.Join(checksums.Check(folder), img.Check(architectures()...), manifests.Check(folder, img.Name), r.verifyKrew(), r.verifyImages(img.Name))
	for _, architecture := range architectures() {
		wrong = errors.Join(wrong, r.verifyPackages(architecture), r.verifyPrograms(img, architecture))
	}
	if wrong != nil {
		return fmt.Errorf("%s is no valid release:\n%w", folder, wrong)
	}
	say("%s is complete, and everything fits together", folder)
	return nil
}

// verifyPrograms compares programs with what is said about them, and the agents that the manager
// serves with those of the archives.
func (r release) verifyPrograms(img *image.Image, architecture string) error {
	program, err := img.File(architecture, manager)
	if err == nil {
		err = checkSBOM(r.sbom(manager, architecture), program)
	}
	wrong := err
	for _, command := range commands() {
		program, err := r.program(command, architecture)
		if err == nil {
			err = checkSBOM(r.sbom(command, architecture), program)
		}
		if command == agent {
			served, unserved := img.File(architecture, "agents/"+agent+"-linux-"+architecture)
			if unserved == nil && !bytes.Equal(served, program) {
				unserved = fmt.Errorf("the image serves another %s for %s than the archive has", agent, architecture)
			}
			err = errors.Join(err, unserved)
		}
		wrong = errors.Join(wrong, err)
	}
	return wrong
}

// checkSBOM compares the document about a program with it.
func checkSBOM(file string, program []byte) error {
	document, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := sbom.Check(document, program); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	return nil
}

// program reads a program from its archive.
func (r release) program(command, architecture string) ([]byte, error) {
	return readProgram(r.archive(command, architecture), command)
}

func readProgram(file, command string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zip, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return archive.Read(zip, command)
}

// verifyPackages checks that the agent's packages are there.
func (r release) verifyPackages(architecture string) error {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[architecture]
	var wrong error
	for _, pattern := range []string{agent + "_*_" + architecture + ".deb", agent + "-*." + machine + ".rpm"} {
		if found, err := filepath.Glob(filepath.Join(r.folder, pattern)); err != nil || len(found) != 1 {
			wrong = errors.Join(wrong, err, fmt.Errorf("there are %d files %s, not one", len(found), pattern))
		}
	}
	return wrong
}
