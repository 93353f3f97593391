package nodeupgrade

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/checkpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// pause is the time between two attempts of kubeadm.
	pause = 10 * time.Second
	// patience is how long kubeadm waits for a static Pod that it has replaced (timeouts.upgradeManifests
	// of kubeadm's UpgradeConfiguration). Another attempt would wait as long for the same Pod, and a
	// control plane of one host does not serve meanwhile.
	patience = 5 * time.Minute
)

// attempts is the step kubeadm.
type attempts struct{ *upgrade }

// run upgrades the static Pods and the configuration of the kubelet, in at most
// sequence.MaxAttempts attempts, and none after one in which kubeadm lost its patience. It waits
// for an attempt that an earlier agent began.
func (a attempts) run(ctx context.Context) error {
	folder, m, err := a.staged(ctx)
	if err != nil {
		return err
	}
	program, err := a.bundled(folder, m, "kubeadm")
	if err != nil {
		return err
	}
	for {
		if err := a.begin(ctx); err != nil {
			return err
		}
		err := a.try(ctx, a.arguments(program))
		if err == nil || ctx.Err() != nil || state.IsWriteError(err) {
			return err
		}
		// kubeadm makes nothing durable, neither what it puts back by itself.
		if err := a.store().Sync(); err != nil {
			return err
		}
		a.at.Futile = a.Clock.Now().Sub(a.at.BeganAt) >= patience
		if err := a.end(err); err != nil {
			return err
		}
		if err := a.CheckWanted(); err != nil {
			return err
		}
		if !a.isLast() {
			if err := a.Clock.Wait(ctx, pause); err != nil {
				return err
			}
		}
	}
}

// end records that the attempt has failed.
func (a attempts) end(failure error) error {
	a.Log.Warn("An attempt of kubeadm failed", "id", a.op.ID, "attempt", a.at.Attempt, "error", failure)
	a.at.Ended, a.at.Failure = a.at.Attempt, sequence.Short(failure)
	return a.Save()
}

// podCheck is the check of `kubeadm upgrade apply` that runs a Pod with the new version's image
// of pause on any Node. Without a registry only hosts that have imported the bundle have that
// image, so the check fails. The step gate looks at the Node itself.
const podCheck = "CreateJob"

// arguments is the command line of kubeadm.
func (a attempts) arguments(program string) []string {
	args, ignored := []string{program, "upgrade", "node"}, a.want.IgnorePreflightErrors
	if a.want.Role == protocol.UpgradeFirstControlPlane {
		args = []string{program, "upgrade", "apply", a.want.Bundle.Version, "--yes"}
		ignored = append(slices.Clone(ignored), podCheck)
	}
	// The provider and Cluster API keep the addons.
	args = append(args, "--skip-phases=addon")
	if a.want.PatchesDirectory != "" {
		args = append(args, "--patches="+a.want.PatchesDirectory)
	}
	if len(ignored) > 0 {
		args = append(args, "--ignore-preflight-errors="+strings.Join(ignored, ","))
	}
	return args
}

// errCut is the failure of an attempt during which the host went down. What kubeadm said
// last does not matter: files that it wrote may be lost.
var errCut = errors.New("the host went down meanwhile")

// begin records an attempt before it begins, when the host is ready for it: a power
// cut may have left it without manifests. It does nothing if the last attempt has not ended.
func (a attempts) begin(ctx context.Context) error {
	if a.at.Attempt > a.at.Ended {
		if a.at.BootID == a.BootID {
			return nil
		}
		a.at.Distrusted = true
		if err := a.end(errCut); err != nil {
			return err
		}
	}
	if a.isLast() {
		return fmt.Errorf("attempt %d, the last one, failed: %s", a.at.Attempt, a.at.Failure)
	}
	if err := a.repair(); err != nil {
		return err
	}
	if err := a.await(ctx, readyTimeout, 0, a.isPossible); err != nil {
		if a.at.Failure != "" {
			return fmt.Errorf("after attempt %d, which failed (%s): %w", a.at.Ended, a.at.Failure, err)
		}
		return err
	}
	a.at.Attempt, a.at.BootID, a.at.Distrusted = a.at.Attempt+1, a.BootID, false
	a.at.BeganAt = a.Clock.Now().UTC().Round(0)
	return a.Save()
}

// isLast reports whether no attempt follows the last one.
func (a attempts) isLast() bool { return a.at.Attempt >= sequence.MaxAttempts || a.at.Futile }

// repair puts back what kubeadm or a power cut has damaged. A file that was cut short may
// look whole, so after a power cut no file is trusted that kubeadm writes in any case, and
// that was not made durable.
func (u *upgrade) repair() error {
	kept, err := u.kept()
	if err != nil {
		return err
	}
	restored, err := kept.Repair()
	for _, path := range kept.Paths() {
		if err != nil {
			return err
		}
		if !u.at.Distrusted || !staticpods.IsComponent(path) && !checkpoint.IsOfKubelet(path) || u.hasServed(path) {
			continue
		}
		var changed bool
		if changed, err = kept.Restore(path); changed {
			restored = append(restored, path)
		}
	}
	if len(restored) > 0 {
		u.Log.Warn("Put back files that were damaged, or may be", "id", u.op.ID, "paths", restored)
	}
	return err
}

// isPossible returns an error unless kubeadm's API server is ready.
func (a attempts) isPossible(ctx context.Context) error {
	if !a.isControlPlane() {
		_, err := a.Cluster.ServerVersion(ctx)
		return err
	}
	a.redirection.direct(ctx)
	if _, err := a.Cluster.LocalServer(ctx); err != nil {
		return err
	}
	if err := a.observe(ctx); err != nil {
		return sequence.Final{Err: err}
	}
	return a.health().etcd(ctx)
}

// try runs kubeadm, and returns an error unless it has done its work.
func (a attempts) try(ctx context.Context, args []string) error {
	var recording error
	err := a.Kubeadm.Run(ctx, a.attemptFolder(a.op, a.at.Attempt), args, func(ctx context.Context) {
		a.redirection.direct(ctx)
		if a.isControlPlane() && recording == nil {
			recording = a.observe(ctx)
		}
	})
	if recording != nil {
		return recording
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args[1:3], " "), err)
	}
	// kubeadm makes nothing durable.
	if err := a.store().Sync(); err != nil {
		return err
	}
	if !a.isControlPlane() {
		return nil
	}
	pods, err := staticpods.Read(a.Root)
	if err == nil {
		err = staticpods.CheckVersion(pods, a.want.Bundle.Version)
	}
	if err != nil {
		return fmt.Errorf("kubeadm says that it has upgraded the control plane: %w", err)
	}
	return a.await(ctx, readyTimeout, 0, func(ctx context.Context) error {
		a.redirection.direct(ctx)
		version, err := a.Cluster.LocalServer(ctx)
		if err != nil {
			return err
		}
		if version != a.want.Bundle.Version {
			return fmt.Errorf("the API server of this host has %s", version)
		}
		if err := a.observe(ctx); err != nil {
			return sequence.Final{Err: err}
		}
		return a.health().etcd(ctx)
	})
}

// observe records which new components have been well so far.
func (a attempts) observe(ctx context.Context) error {
	if err := a.recordEtcd(ctx); err != nil {
		return err
	}
	if version, err := a.Cluster.LocalServer(ctx); err == nil {
		return a.recordServed(version)
	}
	return nil // the API server may be restarting
}

// recordServed records that an API server of the new version was ready. Its manifest is
// durable before, because the old one must not come back.
func (u *upgrade) recordServed(version string) error {
	if u.at.Served || version != u.want.Bundle.Version {
		return nil
	}
	if err := u.store().Sync(); err != nil {
		return err
	}
	u.at.Served = true
	u.servesBy(staticpods.Path(staticpods.Server))
	return u.Save()
}

// recordEtcd records that etcd was well with the manifest that there is. etcd then stays:
// an older one may not read its data.
func (u *upgrade) recordEtcd(ctx context.Context) error {
	path := staticpods.Path(staticpods.Etcd)
	if u.hasServed(path) || !u.health().isEtcdCurrent(ctx) {
		return nil
	}
	if err := u.store().Sync(); err != nil {
		return err
	}
	u.servesBy(path)
	return u.Save()
}

// servesBy takes down the manifest with which a component was well.
func (u *upgrade) servesBy(path string) {
	if u.at.ServedBy == nil {
		u.at.ServedBy = map[string]string{}
	}
	u.at.ServedBy[path] = u.store().Digest(path)
}

// hasServed reports whether a file is a manifest with which its component was well.
func (u *upgrade) hasServed(path string) bool {
	digest := u.at.ServedBy[path]
	return digest != "" && digest == u.store().Digest(path)
}

// kubeadmBackups are what kubeadm leaves in its folder at each upgrade.
func kubeadmBackups() []string {
	return []string{"kubeadm-backup-etcd*", "kubeadm-backup-manifests*", "kubeadm-kubelet-config*", "kubeadm-upgraded-manifests*"}
}

// pruneBackups removes all of kubeadm's backups but the last one of each kind.
func (u *upgrade) pruneBackups() error {
	for _, pattern := range kubeadmBackups() {
		found, err := filepath.Glob(filepath.Join(u.Root, "/etc/kubernetes/tmp", pattern))
		if err != nil {
			return err
		}
		for _, path := range butLatest(found) {
			if err := u.System.RemoveAll(path); err != nil {
				return errors.Join(errors.New("removing a backup of kubeadm"), err)
			}
		}
	}
	return nil
}
