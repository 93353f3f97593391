package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/checksums"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/image"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/manifests"
)

// publish pushes the image of a release below a registry, under the release's version, and
// writes the files for clusterctl that name it by digest. The other images are pushed too, if the
// release has them.
func publish(ctx context.Context, folder, registry, output string) (err error) {
	registry = strings.TrimSuffix(registry, "/")
	if registry == "" || output == "" {
		return errors.New("publish needs -registry and -output")
	}
	if filepath.Clean(output) == filepath.Clean(folder) {
		return errors.New("-output must be another folder than that of the release, which does not change")
	}
	r, err := open(folder)
	if err != nil {
		return err
	}
	if err := checksums.Check(folder); err != nil {
		return fmt.Errorf("%s is not as it was built, so nothing was pushed: %w", folder, err)
	}
	img, err := image.Open(r.image())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, img.Close()) }()
	repository := registry + "/" + path.Base(strings.TrimSuffix(img.Name, ":"+r.version))
	say("Pushing %s:%s", repository, r.version)
	pushed, err := img.Push(ctx, repository, r.version)
	if err != nil {
		return err
	}
	if err := r.pushImages(ctx, registry); err != nil {
		return err
	}
	if err := os.MkdirAll(output, 0o755); err != nil {
		return err
	}
	if err := manifests.WithImage(folder, output, img.Name, pushed); err != nil {
		return err
	}
	say("The files for clusterctl are in %s. They name the image by its digest:", output)
	_, err = fmt.Println(pushed)
	return errors.Join(err, manifests.Check(filepath.Clean(output), pushed))
}
