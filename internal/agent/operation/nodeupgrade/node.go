package nodeupgrade

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/drain"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

const (
	kubeletUnit = "kubelet.service"
	// unitTimeout is how long systemd may take: 90 seconds to stop a unit, by default.
	unitTimeout = 2 * time.Minute
	// askTimeout is how long the cluster may take to answer before the drain is skipped.
	askTimeout = 2 * time.Minute
)

// drain moves Pods to other Nodes before the kubelet gets another minor version. It never
// fails: what could not be moved is in the note. The manager asks for a drain only if the
// cluster has another Node: a kubelet may read no Node but its own.
func (u *upgrade) drain(ctx context.Context) error {
	target, err := parseVersion(u.want.Bundle.Version)
	if err != nil {
		return err
	}
	from, err := parseVersion(u.at.From)
	if err != nil {
		return err
	}
	if !target.isMinor(from) || u.want.DrainTimeoutSeconds <= 0 {
		return nil
	}
	return u.empty(ctx)
}

// empty cordons the Node, and moves its Pods.
func (u *upgrade) empty(ctx context.Context) error {
	err := u.cordon(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		u.at.Note = "the Node was not drained: " + sequence.Short(err)
		return nil
	}
	left, err := drain.Drain(ctx, u.Cluster, u.Clock, u.at.DrainUntil, func(message string) { u.progress(stepDrain + ": " + message) })
	if err == nil && left != "" {
		u.at.Note = "the Node was not drained completely: " + left
	}
	return err
}

// cordon records that the upgrade cordons the Node, unless somebody else has done it, and
// when the drain ends. Then it cordons the Node.
func (u *upgrade) cordon(ctx context.Context) error {
	return u.await(ctx, askTimeout, 0, func(ctx context.Context) error {
		if u.at.DrainUntil.IsZero() {
			node, err := u.Cluster.Node(ctx)
			if err != nil {
				return err
			}
			u.at.Cordoned = !node.Unschedulable
			u.at.DrainUntil = u.Clock.Now().UTC().Add(time.Duration(u.want.DrainTimeoutSeconds) * time.Second)
			if err := u.Save(); err != nil {
				return sequence.Final{Err: err}
			}
		}
		return u.Cluster.SetUnschedulable(ctx, true)
	})
}

// uncordon reverts cordon.
func (u *upgrade) uncordon(ctx context.Context) error {
	if !u.at.Cordoned {
		return nil
	}
	return u.Cluster.SetUnschedulable(ctx, false)
}

// kubelet replaces the programs. The kubelet stands still while its own is replaced;
// containers go on.
func (u *upgrade) kubelet(ctx context.Context) error {
	folder, m, err := u.staged(ctx)
	if err != nil {
		return err
	}
	var files []bundle.File
	for _, p := range u.at.Programs {
		f, ok := m.Program(p.Name)
		if !ok {
			return fmt.Errorf("the bundle has no %s", p.Name)
		}
		f.Path = p.Path
		files = append(files, f)
	}
	if err := u.Installed.Accept(files); err != nil {
		return fmt.Errorf("recording the programs to replace: %w", err)
	}
	if err := u.command(ctx, unitTimeout, "systemctl", "stop", kubeletUnit); err != nil {
		return fmt.Errorf("stopping the kubelet: %w", err)
	}
	for _, f := range files {
		if err := u.install(filepath.Join(folder, f.Name), f); err != nil {
			return fmt.Errorf("replacing %s: %w", f.Path, err)
		}
	}
	if err := u.command(ctx, unitTimeout, "systemctl", "start", kubeletUnit); err != nil {
		return fmt.Errorf("starting the kubelet: %w", err)
	}
	return nil
}

// install replaces a program by one of the bundle. The copy is what is verified.
func (u *upgrade) install(from string, f bundle.File) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	sum := sha256.New()
	return durable.Copy(u.System, filepath.Join(u.Root, f.Path), io.TeeReader(source, sum), func(file durable.File) error {
		if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 {
			return fmt.Errorf("the SHA-256 of %s is %s, not %s: has somebody changed it?", from, got, f.SHA256)
		}
		return file.Chmod(fs.FileMode(f.Mode))
	})
}

// gate waits until the Node is well with the new version, and stays so.
func (u *upgrade) gate(ctx context.Context) error {
	target := u.want.Bundle.Version
	return u.await(ctx, gateTimeout, gateHold, func(ctx context.Context) error {
		if err := u.health().node(ctx, target); err != nil || !u.isControlPlane() {
			return err
		}
		pods, err := staticpods.Read(u.Root)
		if err != nil {
			return err
		}
		if err := staticpods.CheckVersion(pods, target); err != nil {
			return err
		}
		served, err := u.health().controlPlane(ctx)
		if err == nil && served != target {
			err = fmt.Errorf("the API server of this host has %s, not %s", served, target)
		}
		return err
	})
}

// finish makes the Node available, and removes what is no longer needed.
func (u *upgrade) finish(ctx context.Context) error {
	if err := u.redirection.end(ctx); err != nil {
		return err
	}
	if err := u.uncordon(ctx); err != nil {
		return err
	}
	if err := u.store().Prune(u.name()); err != nil {
		return err
	}
	return u.pruneBackups()
}

// butLatest returns all paths but the one that was changed last.
func butLatest(paths []string) []string {
	changed := map[string]time.Time{}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			changed[path] = info.ModTime()
		}
	}
	paths = slices.Clone(paths)
	slices.SortFunc(paths, func(a, b string) int { return changed[a].Compare(changed[b]) })
	return paths[:max(len(paths)-1, 0)]
}
