package etcdrestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// kubernetesFolder has the files of the control plane. Without the kubelet.conf there, no kubelet
// that kubeadm has set up starts anything, also after a reboot.
const kubernetesFolder = "/etc/kubernetes"

// kubeletFolder has the settings of the kubelet.
const kubeletFolder = "/var/lib/kubelet"

// setupTimeout bounds the programs of one step that sets up the control plane.
const setupTimeout = 10 * time.Minute

// Setup sets up the control plane of this host again; see setup.Setup. Both methods may be
// repeated.
type Setup interface {
	// ControlPlane writes certificates, kubeconfigs and manifests, and nothing for the kubelet.
	ControlPlane(ctx context.Context, operation string) error
	// Kubelet sets up the kubelet after that, and starts it.
	Kubelet(ctx context.Context) error
}

// rebuild is the part of a restore that sets up the control plane of the host again.
type rebuild struct{ *restore }

// controlPlane sets it up, without the kubelet: it must not start an etcd that
// has no data yet.
func (s rebuild) controlPlane(ctx context.Context) error {
	if !s.at.Examined {
		if err := s.checkLost(); err != nil {
			return sequence.Final{Err: err}
		}
		var err error
		if s.at.HadFiles, err = s.exists(s.kubernetes()); err != nil {
			return err
		}
		s.at.Examined = true
		if err := s.Save(); err != nil {
			return err
		}
	}
	// A kubelet that has run on without its files would start etcd as soon as there is a manifest.
	if err := s.ControlPlane.Halt(ctx); err != nil {
		return err
	}
	isAside, err := s.exists(s.formerFiles())
	if err != nil {
		return err
	}
	if s.at.HadFiles && !isAside {
		err = s.rename(s.kubernetes(), s.formerFiles())
	} else {
		err = s.removeFiles() // of an interrupted attempt
	}
	if err == nil && s.at.HadFiles {
		err = s.makeFolder()
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	if err := s.Setup.ControlPlane(ctx, s.op.ID); err != nil {
		return err
	}
	return syncAll(s.System, s.kubernetes())
}

// checkLost returns an error unless the host has lost its control plane.
func (s rebuild) checkLost() error {
	for _, component := range []string{staticpods.Etcd, staticpods.Server} {
		is, err := s.exists(filepath.Join(s.Root, staticpods.Path(component)))
		if err != nil {
			return err
		}
		if is {
			return fmt.Errorf("this host has the manifest %s, so it has not lost its control plane: leave spec.rebuildControlPlane out of the ElementalEtcdRestore", staticpods.Path(component))
		}
	}
	return nil
}

// kubelet is the step kubelet. The kubelet starts nothing of the control plane: its manifests
// come back in the next step.
func (s rebuild) kubelet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	if err := s.Setup.Kubelet(ctx); err != nil {
		return err
	}
	if err := syncAll(s.System, s.kubernetes()); err != nil {
		return err
	}
	folder := filepath.Join(s.Root, kubeletFolder)
	for _, name := range kubeletFiles() {
		if err := syncFile(s.System, filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.System.SyncDir(folder)
}

// kubeletFiles are what kubeadm writes into kubeletFolder. Which ones depends on its version.
func kubeletFiles() []string {
	return []string{"config.yaml", "kubeadm-flags.env", "instance-config.yaml"}
}

// undo removes what was made, puts the former files back, and starts the kubelet again.
func (s rebuild) undo(ctx context.Context) error {
	if !s.at.Examined {
		return nil
	}
	isAside, err := s.exists(s.formerFiles())
	if err != nil {
		return err
	}
	if isAside || !s.at.HadFiles { // otherwise nothing was set aside yet, or all is back
		if err := s.removeFiles(); err != nil {
			return err
		}
	}
	if isAside {
		if err := s.rename(s.formerFiles(), s.kubernetes()); err != nil {
			return err
		}
	}
	return s.ControlPlane.Start(ctx)
}

// fail returns the result of a restore that has failed before the data was touched.
func (s rebuild) fail(ctx context.Context, step string, cause error) (*operation.Result, error) {
	return failed(step, protocol.RestoreChangedNothing, sequence.Short(cause)), s.undo(ctx)
}

func (s rebuild) kubernetes() string { return filepath.Join(s.Root, kubernetesFolder) }

// formerFiles is where what was left of the former files stays until the restore has ended.
func (s rebuild) formerFiles() string { return s.kubernetes() + ".before-" + s.name() }

func (s rebuild) removeFiles() error {
	if err := s.System.RemoveAll(s.kubernetes()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", kubernetesFolder, err)
	}
	return s.System.SyncDir(filepath.Dir(s.kubernetes()))
}

// makeFolder makes the folder of the files empty, as it was there before: otherwise a reset would remove
// it as one that was made here.
func (s rebuild) makeFolder() error {
	if err := s.System.Mkdir(s.kubernetes()); err != nil {
		return fmt.Errorf("making %s: %w", kubernetesFolder, err)
	}
	return s.System.SyncDir(filepath.Dir(s.kubernetes()))
}

func (s rebuild) rename(from, to string) error {
	if err := s.System.Rename(from, to); err != nil {
		return fmt.Errorf("renaming %s: %w", from, err)
	}
	return s.System.SyncDir(filepath.Dir(to))
}
