package lab

import (
	"context"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/image"
)

// Bare makes hosts of a lab that have nothing of Kubernetes and no container runtime, and bundles
// with what they lack.
type Bare struct{ lab *Lab }

// NewBare returns a Bare of a lab that is up.
func NewBare(l *Lab) Bare { return Bare{l} }

// Host creates the bare host with a number, or turns it on, and waits until it has booted. Numbers
// above Options.Hosts are free.
func (b Bare) Host(ctx context.Context, number int) (*engine.Host, error) {
	hostImage, err := b.lab.sources.images.BareHost(ctx)
	if err != nil {
		return nil, fmt.Errorf("making the image of bare hosts: %w", err)
	}
	host := b.lab.Host(number)
	return host, b.lab.startHost(ctx, host, number, hostImage)
}

// Bundle builds the bundle of a release of Kubernetes, if it is missing.
func (b Bare) Bundle(ctx context.Context, release image.Release, defect image.Defect) (image.Bundle, error) {
	return b.lab.sources.images.Bundle(ctx, release, defect)
}
