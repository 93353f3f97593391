package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Push pushes the image for all architectures to a repository under a tag, and returns its name
// with the digest. It uses the credentials of docker login or podman login. An image that is
// there already is not pushed again. A tag that names another image is never moved.
func (i *Image) Push(ctx context.Context, repository, tag string) (string, error) {
	to, err := name.NewTag(repository + ":" + tag)
	if err != nil {
		return "", fmt.Errorf("the registry is no host with a path: %w", err)
	}
	digest, err := i.index.Digest()
	if err != nil {
		return "", err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	there, err := remote.Head(to, options...)
	var refused *transport.Error
	switch {
	case err == nil && there.Digest != digest:
		return "", fmt.Errorf("%s is already another image, %s: a release does not change, so choose another version or delete that tag", to, there.Digest)
	case err != nil && (!errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound):
		return "", fmt.Errorf("asking for %s: %w", to, err)
	case err != nil:
		if err := remote.WriteIndex(to, i.index, options...); err != nil {
			return "", fmt.Errorf("pushing %s: %w", to, err)
		}
	}
	return to.Context().Digest(digest.String()).String(), nil
}
