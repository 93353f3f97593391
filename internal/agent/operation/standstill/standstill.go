package standstill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/checkpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
)

// ControlPlane is the control plane of this host; see controlplane.Host. Its manifests decide
// what Start starts.
type ControlPlane interface {
	// Halt returns when neither the kubelet nor a program of the control plane runs.
	Halt(ctx context.Context) error
	// Start starts the kubelet.
	Start(ctx context.Context) error
}

// Standstill is a standstill of a control plane. All fields are required.
type Standstill struct {
	// Checkpoints has the checkpoint with the manifests, which must be complete.
	Checkpoints  checkpoint.Store
	ControlPlane ControlPlane
}

// Begin ends the control plane. First the manifests that the checkpoint has leave the kubelet's
// folder, durably. It may be repeated.
func (s Standstill) Begin(ctx context.Context, checkpoint string) error {
	kept, err := s.Checkpoints.Open(checkpoint)
	if err != nil {
		return err
	}
	manifests := manifestsOf(kept)
	for _, path := range manifests {
		if err := s.Checkpoints.System.Remove(filepath.Join(s.Checkpoints.Root, path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("taking a manifest away from the kubelet: %w", err)
		}
	}
	if len(manifests) > 0 {
		if err := s.Checkpoints.System.SyncDir(filepath.Join(s.Checkpoints.Root, staticpods.Folder)); err != nil {
			return err
		}
	}
	return s.ControlPlane.Halt(ctx)
}

// End puts the manifests of the checkpoint back and starts the kubelet. It may be repeated.
func (s Standstill) End(ctx context.Context, checkpoint string) error {
	kept, err := s.Checkpoints.Open(checkpoint)
	if err != nil {
		return err
	}
	for _, path := range manifestsOf(kept) {
		if _, err := kept.Restore(path); err != nil {
			return err
		}
	}
	return s.ControlPlane.Start(ctx)
}

// manifestsOf returns the paths of the control plane's manifests in a checkpoint.
func manifestsOf(kept *checkpoint.Checkpoint) []string {
	var paths []string
	for _, path := range kept.Paths() {
		if staticpods.IsComponent(path) {
			paths = append(paths, path)
		}
	}
	return paths
}
