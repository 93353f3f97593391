package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
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
	switch digest, err := push(ctx, to, i.index); {
	case errors.Is(err, errOther):
		return "", fmt.Errorf("%w: a release does not change, so choose another version or delete that tag", err)
	case err != nil:
		return "", err
	default:
		return to.Context().Digest(digest.String()).String(), nil
	}
}

// errOther is the error of a tag that names another image.
var errOther = errors.New("is already another image")

// pushed is an image or an index of images.
type pushed interface {
	remote.Taggable
	Digest() (v1.Hash, error)
}

// push pushes an image unless the tag names one, and returns its digest.
func push(ctx context.Context, to name.Tag, img pushed) (v1.Hash, error) {
	digest, err := img.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	there, err := remote.Head(to, options...)
	var refused *transport.Error
	switch {
	case err == nil && there.Digest != digest:
		return v1.Hash{}, fmt.Errorf("%s %w, %s", to, errOther, there.Digest)
	case err == nil:
		return digest, nil
	case !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound:
		return v1.Hash{}, fmt.Errorf("asking for %s: %w", to, err)
	}
	if err := remote.Push(to, img, options...); err != nil {
		return v1.Hash{}, fmt.Errorf("pushing %s: %w", to, err)
	}
	return digest, nil
}
