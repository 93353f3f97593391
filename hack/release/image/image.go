// Package image makes the manager's container image for several architectures, as an OCI image
// layout in one archive, and pushes it. It copies the other images of an installation into another
// such archive, and from there to a registry. No container engine takes part.
package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
)

// user is the user and group of the manager. The components name the same.
const user = "65532:65532"

// Options say what the image is.
type Options struct {
	// Name is the image with its tag, which the layout remembers.
	Name string
	// Time is the time of everything in the image.
	Time time.Time
	// Labels are those of the image's configuration.
	Labels map[string]string
	// Programs are the paths of the manager's program, by architecture.
	Programs map[string]string
	// Shared are the files that the image has for all architectures, by name in the image.
	Shared map[string]string
}

// Write writes the archive of the image layout. The image has nothing but the files given.
func Write(out string, o Options) (err error) {
	work, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	shared, err := layer(filepath.Join(work, "shared.tar"), o.Shared, o.Time)
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var architectures []string
	for architecture := range o.Programs {
		architectures = append(architectures, architecture)
	}
	slices.Sort(architectures)
	for _, architecture := range architectures {
		program, err := layer(filepath.Join(work, architecture+".tar"), map[string]string{"manager": o.Programs[architecture]}, o.Time)
		if err != nil {
			return err
		}
		img, err := build(architecture, o, shared, program)
		if err != nil {
			return fmt.Errorf("making the image for %s: %w", architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	folder, err := layout.Write(filepath.Join(work, "layout"), empty.Index)
	if err != nil {
		return fmt.Errorf("writing the image layout: %w", err)
	}
	if err := folder.AppendIndex(index, layout.WithAnnotations(map[string]string{nameAnnotation: o.Name})); err != nil {
		return fmt.Errorf("writing the image layout: %w", err)
	}
	files, err := archive.Tree(string(folder))
	if err != nil {
		return err
	}
	return archive.Create(out, func(w io.Writer) error { return archive.Write(w, files, o.Time) })
}

// layer makes a layer of programs. Its file must stay until the image is written.
func layer(file string, programs map[string]string, at time.Time) (v1.Layer, error) {
	var files []archive.File
	for name, path := range programs {
		files = append(files, archive.File{Name: name, Mode: 0o755, Path: path})
	}
	if err := archive.Create(file, func(w io.Writer) error { return archive.Write(w, files, at) }); err != nil {
		return nil, fmt.Errorf("writing a layer: %w", err)
	}
	return tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
}

func build(architecture string, o Options, layers ...v1.Layer) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", architecture, v1.Time{Time: o.Time}
	config.Config = v1.Config{User: user, Entrypoint: []string{"/manager"}, Labels: o.Labels}
	for n := range config.History {
		config.History[n].Created = v1.Time{Time: o.Time}
	}
	return mutate.ConfigFile(img, config)
}
