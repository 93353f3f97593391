package lab

import (
	"context"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/image"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/podnetwork"
)

// Bare makes hosts of a lab that have nothing of Kubernetes and no container runtime, and bundles
// with what they lack.
type Bare struct{ lab *Lab }

// NewBare returns a Bare of a lab that is up.
func NewBare(l *Lab) Bare { return Bare{l} }

// Host creates the bare host with a number, or turns it on, and waits until it has booted. Numbers
// above Options.Hosts are free.
func (b Bare) Host(ctx context.Context, number int) (*engine.Host, error) {
	return b.host(ctx, number, networkFiles(b.lab.options.Subnet, number))
}

// HostWithoutPodNetwork is Host for a host whose pods have no network until a network plugin brings
// one.
func (b Bare) HostWithoutPodNetwork(ctx context.Context, number int) (*engine.Host, error) {
	gateway := address(b.lab.options.Subnet, 1)
	return b.host(ctx, number, uplinkFiles(gateway, gateway, nil))
}

func (b Bare) host(ctx context.Context, number int, files []engine.File) (*engine.Host, error) {
	hostImage, err := b.lab.sources.images.BareHost(ctx)
	if err != nil {
		return nil, fmt.Errorf("making the image of bare hosts: %w", err)
	}
	host := b.lab.Host(number)
	return host, b.lab.ensureHost(ctx, host, hostImage, files)
}

// Programs collects what a bundle of a release of Kubernetes is made of in a folder, for
// `bundle build`, with the image of the lab's network plugin.
func (b Bare) Programs(ctx context.Context, release image.Release, folder string) error {
	program, err := b.lab.sources.images.Build(ctx, image.Program{Package: "./test/harness/lab/cmd/podnetwork"})
	if err != nil {
		return err
	}
	return b.lab.sources.images.BundleFolder(ctx, release, folder, image.Workload{
		Name: podnetwork.Image, Entrypoint: []string{"/podnetwork"}, Files: map[string]string{"/podnetwork": program},
	})
}

// Bundle builds the bundle of a release of Kubernetes, if it is missing, with the images of workloads beside those of
// Kubernetes.
func (b Bare) Bundle(ctx context.Context, release image.Release, defect image.Defect, workloads ...image.Workload) (image.Bundle, error) {
	return b.lab.sources.images.Bundle(ctx, release, defect, workloads...)
}

// Flannel builds the network plugin flannel, if it is missing.
func (b Bare) Flannel(ctx context.Context) (image.Flannel, error) {
	return b.lab.sources.images.Flannel(ctx)
}
