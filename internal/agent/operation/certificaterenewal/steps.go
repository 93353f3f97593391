package certificaterenewal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/certificates"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/checkpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	kubeadm = "kubeadm"
	// renewTimeout is how long kubeadm may take. It asks the API server for its configuration.
	renewTimeout   = 5 * time.Minute
	versionTimeout = 30 * time.Second
	// reserve is the space that the checkpoint and the new files need, in bytes.
	reserve = 64 << 20

	timeFormat = "2006-01-02T15:04:05Z"
)

// check returns an error unless the certificates can be renewed. It records when they end.
func (s *renewal) check(ctx context.Context) error {
	if _, err := staticpods.Read(s.Root); err != nil {
		return fmt.Errorf("looking for the control plane of this host: %w", err)
	}
	s.at.Ends = certificates.Ends(certificates.Read(s.Root))
	if s.at.Ends.IsZero() {
		return errors.New("this host has no certificates of kubeadm")
	}
	for _, key := range []string{"ca.key", "front-proxy-ca.key", "etcd/ca.key"} {
		if err := s.System.Stat(s.path("pki/" + key)); err != nil {
			return fmt.Errorf("an authority of the cluster is not on this host, so kubeadm can't renew its certificates: %w", err)
		}
	}
	versionCtx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	if _, err := s.Commands.Run(versionCtx, "", kubeadm, "version", "-o", "short"); err != nil {
		return fmt.Errorf("kubeadm does not run on this host: %w", err)
	}
	// Certificates that have ended are a reason for a control plane that is not well.
	err := s.ControlPlane.Ready(ctx)
	s.at.WasReady = err == nil
	if err != nil && s.Clock.Now().Before(s.at.Ends) {
		return fmt.Errorf("the control plane of this host is not well, and no certificate of it has ended: %w", err)
	}
	return s.checkSpace()
}

// checkSpace returns an error if a disk lacks space.
func (s *renewal) checkSpace() error {
	for _, folder := range []string{filepath.Dir(s.Checkpoints), s.path("")} {
		free, err := s.Free(folder)
		if err != nil {
			return err
		}
		if free < reserve {
			return fmt.Errorf("the disk lacks space: %s has %d MiB free, and the renewal needs %d MiB: make room", folder, free>>20, reserve>>20)
		}
	}
	return nil
}

// keep keeps a copy of the certificates and their keys.
func (s *renewal) keep(ctx context.Context) error {
	_, err := s.checkpoints().Take(ctx, s.name(), nil, nil)
	return err
}

// renew has kubeadm renew all certificates, from those of the checkpoint.
func (s *renewal) renew(ctx context.Context) error {
	if err := s.putBack(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	if _, err := s.Commands.Run(ctx, "", kubeadm, "certs", "renew", "all"); err != nil {
		return fmt.Errorf("renewing the certificates: %w", err)
	}
	if err := s.checkpoints().Sync(); err != nil {
		return err
	}
	if ends := certificates.Ends(certificates.Read(s.Root)); !ends.After(s.at.Ends) {
		return fmt.Errorf("kubeadm ended without an error, and a certificate still ends at %s", ends.UTC().Format(timeFormat))
	}
	return nil
}

// putBack puts the files of the checkpoint back that kubeadm renews.
func (s *renewal) putBack() error {
	kept, err := s.checkpoints().Open(s.name())
	if err != nil {
		return err
	}
	for _, name := range protocol.CertificateNames() {
		if protocol.IsAuthority(name) {
			continue
		}
		if err := restoreWithKey(kept, filepath.Join(certificates.Folder, name)); err != nil {
			return err
		}
	}
	return nil
}

// restoreWithKey puts a certificate back, and the key beside it.
func restoreWithKey(kept *checkpoint.Checkpoint, path string) error {
	if _, err := kept.Restore(path); err != nil {
		return err
	}
	_, err := kept.Restore(strings.TrimSuffix(path, ".crt") + ".key")
	return err
}

// restart restarts the programs of the control plane, one after the other.
func (s *renewal) restart(ctx context.Context) error {
	pods, err := staticpods.Read(s.Root)
	if err != nil {
		return err
	}
	// The others need etcd.
	for _, isEtcd := range []bool{true, false} {
		for _, pod := range pods {
			if (pod.Component == staticpods.Etcd) != isEtcd {
				continue
			}
			if err := s.ControlPlane.Restart(ctx, pod.Component); err != nil {
				return err
			}
		}
	}
	return nil
}

// gate waits until the control plane is well and its API server has its new certificate.
func (s *renewal) gate(ctx context.Context) error {
	return s.await(ctx, func(ctx context.Context) error {
		if err := s.ControlPlane.Ready(ctx); err != nil {
			return err
		}
		return s.checkServed(ctx)
	})
}

// finish removes the checkpoint, which has keys.
func (s *renewal) finish(context.Context) error { return s.checkpoints().Remove(s.name()) }

// goBack is the step rollback: the former certificates come back.
func (s *renewal) goBack(ctx context.Context) error {
	if err := s.putBack(); err != nil {
		return err
	}
	return s.restart(ctx)
}

// judge judges the control plane after the way back. One that was not well before need not be.
func (s *renewal) judge(ctx context.Context) (*operation.Result, error) {
	s.at.Found = "the control plane is as before, not well"
	if s.at.WasReady {
		err := s.await(ctx, s.ControlPlane.Ready)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("going back: %w", context.Cause(ctx))
		}
		if err != nil {
			return s.broken("after the way back: " + sequence.Short(err)), nil
		}
		s.at.Found = "the control plane has its former certificates"
	}
	s.at.Begin(stepFinish)
	return nil, s.Save()
}

// result is the result after the last step.
func (s *renewal) result(context.Context) (*operation.Result, error) {
	if s.at.FailedStep != "" {
		return failed(s.at.FailedStep, protocol.RenewalRolledBack, s.at.Found+"; "+s.at.Cause), nil
	}
	ends := certificates.Ends(certificates.Read(s.Root))
	return &operation.Result{State: protocol.StateSucceeded, Message: "the certificates end at " + ends.UTC().Format(timeFormat)}, nil
}

// broken is the result of a way back that failed. The checkpoint stays.
func (s *renewal) broken(found string) *operation.Result {
	return failed(s.at.FailedStep, protocol.RenewalLeftBroken,
		fmt.Sprintf("%s; the former files are in %s; %s", found, filepath.Join(s.Checkpoints, s.name()), s.at.Cause))
}

// path returns a path below the folder of kubeadm.
func (s *renewal) path(name string) string { return filepath.Join(s.Root, certificates.Folder, name) }
