package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Open opens a snapshot of the etcd that the host runs, once it is known to be undamaged. The
// caller must close the file, which stays readable when the snapshot is removed.
func (s *Store) Open(ctx context.Context, id string) (protocol.EtcdSnapshotFacts, *os.File, error) {
	folder, err := s.folderOf(id)
	if err != nil {
		return protocol.EtcdSnapshotFacts{}, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	facts, err := s.check(ctx, folder, id)
	if err != nil {
		return facts, nil, fmt.Errorf("looking for snapshot %s: %w", id, err)
	}
	file, err := os.Open(filepath.Join(folder, id+databaseSuffix))
	if err != nil {
		return facts, nil, fmt.Errorf("opening snapshot %s: %w", id, err)
	}
	// Nothing else changes files of snapshots, but another one may have taken the place.
	if info, err := file.Stat(); err != nil || info.Size() != facts.SizeBytes {
		return facts, nil, errors.Join(fmt.Errorf("snapshot %s has changed", id), err, file.Close())
	}
	return facts, file, nil
}

// Verify returns the file of a snapshot of the etcd that the host runs, and what it is. It reads
// the whole file, also if it has done so before, and returns an error for one that is incomplete
// or damaged.
func (s *Store) Verify(ctx context.Context, id string) (path string, facts protocol.EtcdSnapshotFacts, err error) {
	folder, err := s.folderOf(id)
	if err != nil {
		return "", facts, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path = filepath.Join(folder, id+databaseSuffix)
	delete(s.verified, path)
	facts, err = s.check(ctx, folder, id)
	return path, facts, err
}

// folderOf returns the folder that has a snapshot of the etcd that the host runs, if it exists.
func (s *Store) folderOf(id string) (string, error) {
	if !idPattern.MatchString(id) {
		return "", fmt.Errorf("%.64q is no ID of a snapshot", id)
	}
	folder, found, err := s.folder()
	if err == nil && !found {
		err = errNoMember
	}
	return folder, err
}
