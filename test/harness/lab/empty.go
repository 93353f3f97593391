package lab

import (
	"context"
	"fmt"
	"os"
)

// Empty is a lab with the hosts of another one, and with a management cluster of its own into which
// people install Cluster API and this provider. The other lab's Down removes it too.
type Empty struct{ *Lab }

// NewEmpty returns an Empty of a lab.
func NewEmpty(l *Lab) Empty { return Empty{other(l, "empty", "management-empty", maxHosts+2)} }

// Up makes the management cluster, in place of a former one. It has the images of Cluster API, of
// the stand-in for cert-manager and of further archives, and nothing is installed. clusterctl's
// repository of Cluster API is written too.
func (e Empty) Up(ctx context.Context, archives ...string) error {
	tools, err := e.Tools(ctx)
	if err != nil {
		return err
	}
	if err := e.Remove(ctx); err != nil {
		return err
	}
	hostImage, err := e.Prepare(ctx)
	if err != nil {
		return err
	}
	module, err := e.sources.findCAPI(ctx)
	if err != nil {
		return err
	}
	cluster := hostCluster{lab: e.Lab, image: hostImage}
	err = e.progress.Step("Starting an empty management cluster", func() error { return e.startManagement(ctx, cluster) })
	if err != nil {
		return err
	}
	provided, err := e.sources.providerImages(ctx, tools, module, release{})
	if err != nil {
		return fmt.Errorf("making the images of providers: %w", err)
	}
	if err := loadImages(ctx, e.progress, cluster, append(provided, archives...)); err != nil {
		return err
	}
	r, err := e.repository(ctx, module)
	if err != nil {
		return err
	}
	return r.Write(ctx)
}

// Remove removes the management cluster and the lab's files.
func (e Empty) Remove(ctx context.Context) error {
	if err := e.Management().Remove(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(e.options.State); err != nil {
		return fmt.Errorf("removing the state folder: %w", err)
	}
	return nil
}
