package nodeupgrade

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/checkpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// wayBack is the step rollback.
type wayBack struct{ *upgrade }

// run puts back what the upgrade has changed: the kubelet with its configuration, and
// the static Pods if no API server of the new version has served.
func (w wayBack) run(ctx context.Context) error {
	kept, err := w.kept()
	if err != nil {
		return err
	}
	for _, path := range kept.Paths() {
		if !w.goesBack(path) {
			continue
		}
		restored, err := kept.Restore(path)
		if err != nil {
			return err
		}
		if restored {
			w.Log.Warn("Put back a file", "id", w.op.ID, "path", path)
		}
	}
	if err := w.repair(); err != nil {
		return err
	}
	// kubeadm may have put back the same by itself, which is not durable.
	if err := w.store().Sync(); err != nil {
		return err
	}
	// A unit that failed often may refuse to start.
	_ = w.command(ctx, unitTimeout, "systemctl", "reset-failed", kubeletUnit)
	if err := w.command(ctx, unitTimeout, "systemctl", "restart", kubeletUnit); err != nil {
		return fmt.Errorf("restarting the kubelet: %w", err)
	}
	return nil
}

// goesBack reports whether a file of the checkpoint is put back.
func (w wayBack) goesBack(path string) bool {
	if filepath.Dir(path) == staticpods.Folder {
		return w.goesAllBack() && staticpods.IsComponent(path) && !w.hasServed(path)
	}
	isProgram := slices.ContainsFunc(w.at.Programs, func(p program) bool { return p.Path == path })
	return isProgram || checkpoint.IsOfKubelet(path)
}

// goesAllBack reports whether nothing of the new version may stay.
func (w wayBack) goesAllBack() bool { return !w.isControlPlane() || !w.at.Served }

// judge judges the Node after the way back.
func (w wayBack) judge(ctx context.Context) (*operation.Result, error) {
	var found string
	err := w.await(ctx, gateTimeout, gateHold, func(ctx context.Context) error {
		w.redirection.settle(ctx)
		found = "the Node serves with " + w.at.From
		if err := w.health().node(ctx, w.at.From); err != nil || !w.isControlPlane() {
			return err
		}
		served, err := w.health().controlPlane(ctx)
		if err == nil && w.goesAllBack() && served != w.at.Server {
			err = fmt.Errorf("the API server of this host has %s, not %s", served, w.at.Server)
		}
		found += " and API server " + served
		return err
	})
	if err == nil {
		err = w.uncordon(ctx)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("going back: %w", context.Cause(ctx))
	}
	if err := w.redirection.end(ctx); err != nil {
		return nil, err
	}
	switch {
	case err != nil:
		return w.result(protocol.UpgradeLeftBroken, "after the way back: "+sequence.Short(err)), nil
	case w.isPartlyDone():
		return w.result(protocol.UpgradePartlyDone, found), nil
	}
	return w.result(protocol.UpgradeRolledBack, found), nil
}

// isPartlyDone reports whether a static Pod has the new version. kubeadm may have put all
// of them back by itself.
func (w wayBack) isPartlyDone() bool {
	if w.goesAllBack() {
		return false
	}
	pods, err := staticpods.Read(w.Root)
	return err != nil || staticpods.CheckVersion(pods, w.at.Server) != nil || w.at.Server == w.want.Bundle.Version
}

// result is the result after the way back. It names the snapshot for people if the host has
// one, because the data of etcd is never put back.
func (w wayBack) result(outcome protocol.UpgradeOutcome, found string) *operation.Result {
	text := fmt.Sprintf("%s: %s", w.at.FailedStep, w.at.Cause)
	if _, hasEtcd, err := etcd.Local(w.Root); (hasEtcd || err != nil) && outcome == protocol.UpgradeLeftBroken {
		found += "; a snapshot of etcd is in " + filepath.Join(w.Checkpoints, w.name(), checkpoint.SnapshotFile)
	}
	return failed(w.at.FailedStep, outcome, sequence.Short(errors.New(found))+"; "+text)
}
