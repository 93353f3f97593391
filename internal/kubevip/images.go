package kubevip

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// ImagePolicy says which images of kube-vip hosts may run. kube-vip runs as root on
// control-plane hosts, with the rights of a cluster's administrator. The zero value allows
// all images.
type ImagePolicy struct {
	repositories   []string
	requiresDigest bool
}

// NewImagePolicy returns the policy that allows images of the repositories and of those
// below them; any if there are none. A repository is written as in an image, without tag
// and digest: registry.example.com/kube-vip, or registry.example.com for a whole registry.
// If requiresDigest is true, an image must have a digest.
func NewImagePolicy(repositories []string, requiresDigest bool) (ImagePolicy, error) {
	policy := ImagePolicy{requiresDigest: requiresDigest}
	for _, text := range repositories {
		name, err := parseRepository(strings.TrimSuffix(text, "/"))
		if err != nil {
			return ImagePolicy{}, fmt.Errorf("reading repository %q: %w", text, err)
		}
		policy.repositories = append(policy.repositories, name)
	}
	return policy, nil
}

// parseRepository returns the name of the repository or registry in full.
func parseRepository(text string) (string, error) {
	// A registry alone is read as a repository of Docker Hub.
	if below, err := reference.ParseNormalizedNamed(text + "/repository"); err == nil && reference.Domain(below) == text {
		return text, nil
	}
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return "", err
	}
	if !reference.IsNameOnly(named) {
		return "", errors.New("it must have neither tag nor digest")
	}
	return named.Name(), nil
}

// Refusal returns why hosts may not run the cluster's image of kube-vip; blank if they may.
func (p ImagePolicy) Refusal(vip *infrav1.EndpointVIP) string {
	if len(p.repositories) == 0 && !p.requiresDigest {
		return ""
	}
	image := cmp.Or(vip.Image, DefaultImage)
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return fmt.Sprintf("Image %s can't be read: %v", image, err)
	}
	if !p.allows(named.Name()) {
		return fmt.Sprintf("Image %s is in none of the repositories that the manager allows: %s. Set spec.controlPlaneEndpointPolicy.vip.image, "+
			"or extend --kube-vip-repositories of the manager", image, strings.Join(p.repositories, ", "))
	}
	if _, digested := named.(reference.Digested); p.requiresDigest && !digested {
		return fmt.Sprintf("Image %s has no digest, which the manager requires (--kube-vip-require-digest). "+
			"Append @sha256:... to spec.controlPlaneEndpointPolicy.vip.image", image)
	}
	return ""
}

func (p ImagePolicy) allows(repository string) bool {
	for _, allowed := range p.repositories {
		if repository == allowed || strings.HasPrefix(repository, allowed+"/") {
			return true
		}
	}
	return len(p.repositories) == 0
}
