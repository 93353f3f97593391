package etcdrestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
)

const (
	etcdutl = "etcdutl"
	// restoreTimeout is how long etcdutl may take.
	restoreTimeout = 20 * time.Minute
	versionTimeout = 30 * time.Second
	// reserve is the space that a restore leaves free, in bytes. etcd's first log has 64 MB.
	reserve = 256 << 20
	// bump is how many revisions lie between the snapshot and the restored data. etcd's
	// documentation recommends it: so many are not written between two snapshots.
	bump = "1000000000"
)

// check returns an error unless etcd can be restored. It records the member.
func (s *restore) check(ctx context.Context) error {
	if _, err := staticpods.Read(s.Root); err != nil {
		return fmt.Errorf("looking for the control plane of this host (if its files are lost, set spec.rebuildControlPlane of another ElementalEtcdRestore): %w", err)
	}
	found, isHere, err := etcd.Local(s.Root)
	if err != nil {
		return err
	}
	if !isHere {
		return errors.New("this host has no member of etcd that kubeadm has set up")
	}
	if found.Name == "" || found.PeerURL == "" {
		return errors.New("the manifest of etcd has no --name or no --initial-advertise-peer-urls: restore by hand with etcdutl")
	}
	s.at.Member = member{Name: found.Name, PeerURL: found.PeerURL, Data: found.Data}
	if s.at.HadData, err = s.exists(s.folders().current()); err != nil {
		return err
	}
	s.at.WasReady = s.ControlPlane.Ready(ctx) == nil
	if s.at.WasReady && !s.want.ReplaceHealthy {
		return errors.New("etcd is well on this host: set spec.replaceHealthy of the ElementalEtcdRestore if its data is to be replaced all the same")
	}
	versionCtx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	if _, err := s.Commands.Run(versionCtx, "", etcdutl, "version"); err != nil {
		return fmt.Errorf("%s does not run on this host: install the one of etcd's release, for example in /usr/local/bin: %w", etcdutl, err)
	}
	size, err := s.size(ctx, found)
	if err != nil {
		return err
	}
	return s.checkSpace(2*size + reserve)
}

// size returns the size of the database that the new data is made from, in bytes.
func (s *restore) size(ctx context.Context, found etcd.Member) (int64, error) {
	switch {
	case !s.want.OwnData:
		_, size, err := s.snapshot(ctx)
		return size, err
	case !s.at.HadData:
		return 0, fmt.Errorf("this host has no data of etcd in %s that could be used: choose another host, or a snapshot", s.folders().current())
	default:
		return found.DatabaseSize(s.Root)
	}
}

// checkSpace returns an error if the disk of the data lacks space.
func (s *restore) checkSpace(need int64) error {
	folder := s.folders().data
	for s.System.Stat(folder) != nil && folder != filepath.Dir(folder) {
		folder = filepath.Dir(folder)
	}
	free, err := s.Free(folder)
	if err != nil {
		return err
	}
	if free < need {
		return fmt.Errorf("the disk lacks space: %s has %d MiB free, and the restore needs %d MiB: make room", folder, free>>20, need>>20)
	}
	return nil
}

// snapshot returns the file of the snapshot and its size. It returns an error for a snapshot that
// is damaged, is not the one that a person has confirmed, or belongs to another cluster.
func (s *restore) snapshot(ctx context.Context) (path string, size int64, err error) {
	path, facts, err := s.Snapshots.Verify(ctx, s.want.SnapshotID)
	if err != nil {
		return "", 0, fmt.Errorf("reading the snapshot %s: %w", s.want.SnapshotID, err)
	}
	if facts.SHA256 != s.want.SHA256 {
		return "", 0, fmt.Errorf("the snapshot %s has the SHA-256 %s, and the restore was confirmed for %s", facts.ID, facts.SHA256, s.want.SHA256)
	}
	if facts.Cluster.Namespace != s.want.Cluster.Namespace || facts.Cluster.Name != s.want.Cluster.Name {
		return "", 0, fmt.Errorf("the snapshot %s belongs to the cluster %s/%s, not to %s/%s", facts.ID,
			facts.Cluster.Namespace, facts.Cluster.Name, s.want.Cluster.Namespace, s.want.Cluster.Name)
	}
	return path, facts.SizeBytes, nil
}

// prepare keeps a copy of the manifests, and makes the new data beside the data in use.
func (s *restore) prepare(ctx context.Context) error {
	former, err := s.checkpoints().Latest(s.name())
	if err == nil {
		err = s.checkpoints().Prune(s.name(), former)
	}
	if err != nil {
		return err
	}
	if _, err := s.checkpoints().Take(ctx, s.name(), nil, nil); err != nil || s.want.OwnData {
		return err
	}
	path, _, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	return s.makeData(ctx, path)
}

// copy makes the new data from the member's own. The member does not run, so its database has
// all that it has applied.
func (s *restore) copy(ctx context.Context) error {
	// Only snapshots end with a digest.
	return s.makeData(ctx, filepath.Join(s.folders().current(), "snap", "db"), "--skip-hash-check")
}

// makeData makes the new data from a database, durably.
func (s *restore) makeData(ctx context.Context, database string, flags ...string) error {
	if err := s.System.RemoveAll(s.folders().prepared()); err != nil {
		return fmt.Errorf("removing what an interrupted restore has left: %w", err)
	}
	if err := s.System.Mkdir(s.folders().data); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the folder of etcd's data: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	// A compacted revision ends the watches of clients that have seen later ones than the
	// snapshot has.
	command := append([]string{
		etcdutl, "snapshot", "restore", database, "--data-dir=" + s.folders().prepared(),
		"--name=" + s.at.Member.Name, "--initial-cluster=" + s.at.Member.Name + "=" + s.at.Member.PeerURL,
		"--initial-advertise-peer-urls=" + s.at.Member.PeerURL, "--initial-cluster-token=" + s.op.ID,
		"--bump-revision=" + bump, "--mark-compacted",
	}, flags...)
	if _, err := s.Commands.Run(ctx, "", command...); err != nil {
		return fmt.Errorf("making the new data: %w", err)
	}
	return syncAll(s.System, s.folders().prepared())
}

// syncAll makes durable what a program has written into a folder.
func syncAll(system durable.System, folder string) error {
	files, folders, err := system.Walk(folder)
	if err != nil {
		return fmt.Errorf("looking for the restored data: %w", err)
	}
	for _, path := range files {
		if err := syncFile(system, path); err != nil {
			return err
		}
	}
	for _, path := range append(folders, folder, filepath.Dir(folder), filepath.Dir(filepath.Dir(folder))) {
		if err := system.SyncDir(path); err != nil {
			return err
		}
	}
	return nil
}

// syncFile makes the content of a file durable.
func syncFile(system durable.System, path string) error {
	f, _, err := system.Overwrite(path)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	return nil
}

// discard removes what prepare has made.
func (s *restore) discard() error {
	if s.at.Member.Data == "" {
		return nil
	}
	if err := s.System.RemoveAll(s.folders().prepared()); err != nil {
		return fmt.Errorf("removing the restored data: %w", err)
	}
	return s.checkpoints().Remove(s.name())
}

// finish removes what is no longer needed: the emptied folder, and data of former restores.
func (s *restore) finish(context.Context) error {
	if err := s.System.RemoveAll(s.folders().prepared()); err != nil {
		return fmt.Errorf("removing an empty folder: %w", err)
	}
	if s.want.Rebuild {
		if err := s.System.RemoveAll(rebuild{s}.formerFiles()); err != nil {
			return fmt.Errorf("removing the former files of Kubernetes: %w", err)
		}
	}
	entries, err := os.ReadDir(s.folders().data)
	if err != nil {
		return fmt.Errorf("looking for data of former restores: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(s.folders().data, entry.Name())
		if !isSetAside(entry.Name()) || path == s.folders().setAside() {
			continue
		}
		if err := s.System.RemoveAll(path); err != nil {
			return fmt.Errorf("removing data of a former restore: %w", err)
		}
	}
	return nil
}

// note is the message of a success.
func (s *restore) note() string {
	text := "etcd serves the snapshot " + s.want.SnapshotID
	if s.want.OwnData {
		text = "etcd serves the data that this host had, as the only member"
	}
	text += s.at.NodesNote
	if s.System.Stat(s.folders().setAside()) == nil {
		text += "; its former data is in " + filepath.Join(s.at.Member.Data, filepath.Base(s.folders().setAside())) + " until the next restore or a reset"
	}
	return text
}
