package bootstrap

import (
	"context"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/installation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Stager stages bundles; see staging.Stager.
type Stager interface {
	Stage(ctx context.Context, want protocol.Bundle, progress func(message string)) (folder string, m bundle.Manifest, err error)
}

// Installer installs staged bundles; see installation.Installer.
type Installer interface {
	IsNeeded(ctx context.Context, want protocol.Bundle) (bool, error)
	Install(ctx context.Context, staged installation.Staged, progress func(step string)) error
}

// installBundle installs the bundle that the plan desires now, if the host lacks programs or
// its own are to be replaced. A bundle that was pinned by mistake can so be replaced while the
// bootstrap waits for it.
func (r *Runner) installBundle(ctx context.Context, progress func(string)) (*operation.Result, error) {
	if r.Installer == nil || r.Stager == nil {
		return nil, nil
	}
	want := r.Desired().Bundle
	if want == nil {
		return nil, nil
	}
	needed, err := r.Installer.IsNeeded(ctx, *want)
	if err != nil || !needed {
		return failedToInstall(ctx, err)
	}
	progress(stepStage)
	folder, manifest, err := r.Stager.Stage(ctx, *want, func(message string) { progress(stepStage + ": " + message) })
	if err != nil {
		return nil, fmt.Errorf("staging the bundle of Kubernetes %s: %w", want.Version, err)
	}
	progress(stepInstall)
	err = r.Installer.Install(ctx, installation.Staged{SHA256: want.SHA256, Folder: folder, Manifest: manifest, Replace: want.Replace},
		func(step string) { progress(stepInstall + ": " + step) })
	return failedToInstall(ctx, err)
}

// failedToInstall returns a result for an error that ends the bootstrap.
func failedToInstall(ctx context.Context, err error) (*operation.Result, error) {
	if err == nil || ctx.Err() != nil || state.IsWriteError(err) {
		return nil, err
	}
	result := operation.Failed(stepInstall, err)
	return &result, nil
}
