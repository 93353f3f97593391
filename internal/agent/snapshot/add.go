package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Add puts a snapshot of the etcd that the host runs among the others, durably, unless it is
// there. write writes the snapshot, which may take hours; nothing else waits for that. The snapshot
// counts only if write returns nil and has written what the facts say.
func (s *Store) Add(ctx context.Context, facts protocol.EtcdSnapshotFacts, write func(io.Writer) error) error {
	folder, err := s.folderOf(facts.ID)
	if err != nil {
		return err
	}
	path, content := filepath.Join(folder, facts.ID+incomingSuffix), &bounded{}
	content.left.Store(facts.SizeBytes)
	has, err := s.beginAdd(ctx, path, facts, content)
	if has || err != nil {
		return err
	}
	defer s.endAdd(path)
	err = durable.Stream(s.System, path, func(f durable.File) error {
		hash := sha256.New()
		content.to = io.MultiWriter(f, hash)
		if err := write(content); err != nil {
			return err
		}
		if left, sum := content.left.Load(), hex.EncodeToString(hash.Sum(nil)); left != 0 || sum != facts.SHA256 {
			return fmt.Errorf("the snapshot %s has the SHA-256 %s and lacks %d bytes; its SHA-256 must be %s", facts.ID, sum, left, facts.SHA256)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.accept(ctx, path, facts)
}

// beginAdd makes room for a snapshot, and keeps what is written of it from being removed, unless the
// host has it.
func (s *Store) beginAdd(ctx context.Context, path string, facts protocol.EtcdSnapshotFacts, content *bounded) (has bool, err error) {
	folder := filepath.Dir(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if has, err := s.has(ctx, folder, facts); has || err != nil {
		return has, err
	}
	if s.incoming[path] != nil {
		return false, fmt.Errorf("the snapshot %s is added already", facts.ID)
	}
	if err := s.makeRoom(ctx, folder, facts); err != nil {
		return false, err
	}
	if s.incoming == nil {
		s.incoming = map[string]*bounded{}
	}
	s.incoming[path] = content
	return false, nil
}

// accept puts the file of a complete snapshot among the others, unless the host has got that snapshot
// meanwhile.
func (s *Store) accept(ctx context.Context, path string, facts protocol.EtcdSnapshotFacts) error {
	folder := filepath.Dir(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if has, err := s.has(ctx, folder, facts); has || err != nil {
		return err
	}
	database := filepath.Join(folder, facts.ID+databaseSuffix)
	if err := s.System.Rename(path, database); err != nil {
		return fmt.Errorf("naming the snapshot %s: %w", facts.ID, err)
	}
	if err := s.System.SyncDir(folder); err != nil {
		return err
	}
	return s.complete(database, facts)
}

// endAdd removes what is left of a snapshot that was not accepted.
func (s *Store) endAdd(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.incoming, path)
	_ = s.System.Remove(path) // if it remains, the next attempt removes it
}

// has reports whether the host has a snapshot, complete and undamaged. It returns an error if it has
// another one with that ID.
func (s *Store) has(ctx context.Context, folder string, facts protocol.EtcdSnapshotFacts) (bool, error) {
	is, err := s.check(ctx, folder, facts.ID)
	if err == nil && is.SHA256 != facts.SHA256 {
		return false, fmt.Errorf("this host has another snapshot %s: restore that one, or one of another time", facts.ID)
	}
	return err == nil, nil
}

// isIncoming reports whether a file belongs to a snapshot that is added.
func (s *Store) isIncoming(path string) bool {
	for incoming := range s.incoming {
		if path == incoming || path == durable.Temporary(incoming) {
			return true
		}
	}
	return false
}

// makeRoom removes what interrupted attempts have left, and returns an error if the disk lacks
// space for a snapshot.
func (s *Store) makeRoom(ctx context.Context, folder string, facts protocol.EtcdSnapshotFacts) error {
	if err := s.mkdir(folder); err != nil {
		return fmt.Errorf("making the folder of snapshots: %w", err)
	}
	if err := s.clear(ctx, folder, facts.ID); err != nil {
		return err
	}
	_, err := s.limit(facts.SizeBytes, folder)
	return err
}

// complete writes the file that makes a snapshot count.
func (s *Store) complete(path string, facts protocol.EtcdSnapshotFacts) error {
	data, err := json.MarshalIndent(facts, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding what a snapshot is: %w", err)
	}
	return durable.Replace(s.System, filepath.Join(filepath.Dir(path), facts.ID+factsSuffix), append(data, '\n'), func(f durable.File) error { return f.Chmod(0o600) })
}

// bounded refuses more bytes than a snapshot has.
type bounded struct {
	to   io.Writer
	left atomic.Int64
}

func (b *bounded) Write(data []byte) (int, error) {
	if excess := int64(len(data)) - b.left.Load(); excess > 0 {
		return 0, fmt.Errorf("the snapshot is larger than it says: %d bytes too many", excess)
	}
	n, err := b.to.Write(data)
	b.left.Add(-int64(n))
	return n, err
}
