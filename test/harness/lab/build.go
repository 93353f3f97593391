package lab

import (
	"context"
	"fmt"
)

// firstHostOfBuild is the number of the first host of a lab that Build.Lab returns.
const firstHostOfBuild = 21

// Build is a build of this provider.
type Build struct {
	// Checkout is the root folder of its sources.
	Checkout string
	// Manifests is the folder with its files for clusterctl. The name of the folder is the version.
	Manifests string
}

// Lab returns a lab with a management cluster and hosts of its own, and with this build: the manager that Up installs,
// the agents that Enrol installs, and the templates of clusters. The Down of l removes it too.
func (b Build) Lab(l *Lab, hosts int) *Lab {
	with := other(l, "build", "management-build", maxHosts+3)
	with.options.Checkout, with.options.Release, with.options.Hosts = b.Checkout, b.Manifests, hosts
	with.sources.checkout, with.sources.release = b.Checkout, b.Manifests
	with.firstHost = firstHostOfBuild
	return with
}

// OfferTo adds the build to clusterctl's repository of a lab that is up, and its image to the management cluster, so
// that clusterctl can upgrade to it.
func (b Build) OfferTo(ctx context.Context, l *Lab) error {
	s := l.sources
	s.checkout, s.release = b.Checkout, b.Manifests
	offered, err := s.findRelease()
	if err != nil {
		return err
	}
	workload, err := s.elementalWorkload(ctx, offered)
	if err != nil {
		return fmt.Errorf("making the image of %s: %w", offered.version, err)
	}
	archive, err := s.images.Archive("elemental", workload)
	if err != nil {
		return err
	}
	if err := loadImages(ctx, l.progress, l.management(""), []string{archive}); err != nil {
		return err
	}
	module, err := s.findCAPI(ctx)
	if err != nil {
		return err
	}
	r, err := l.repository(ctx, module)
	if err != nil {
		return err
	}
	return addRelease(r, offered)
}
