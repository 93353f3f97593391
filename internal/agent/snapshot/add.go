package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Add puts a snapshot of the etcd that the host runs among the others, durably, unless it is
// there. write writes the snapshot. The snapshot counts only if write returns nil and has
// written what the facts say.
func (s *Store) Add(ctx context.Context, facts protocol.EtcdSnapshotFacts, write func(io.Writer) error) error {
	folder, err := s.folderOf(facts.ID)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if is, err := s.check(ctx, folder, facts.ID); err == nil {
		if is.SHA256 != facts.SHA256 {
			return fmt.Errorf("this host has another snapshot %s: restore that one, or one of another time", facts.ID)
		}
		return nil
	}
	if err := s.makeRoom(ctx, folder, facts); err != nil {
		return err
	}
	path := filepath.Join(folder, facts.ID+databaseSuffix)
	err = durable.Stream(s.System, path, func(f durable.File) error {
		hash := sha256.New()
		counted := &bounded{to: io.MultiWriter(f, hash), left: facts.SizeBytes}
		if err := write(counted); err != nil {
			return err
		}
		if sum := hex.EncodeToString(hash.Sum(nil)); counted.left != 0 || sum != facts.SHA256 {
			return fmt.Errorf("the snapshot %s has the SHA-256 %s and lacks %d bytes; its SHA-256 must be %s", facts.ID, sum, counted.left, facts.SHA256)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.complete(path, facts)
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
	left int64
}

func (b *bounded) Write(data []byte) (int, error) {
	if int64(len(data)) > b.left {
		return 0, fmt.Errorf("the snapshot is larger than it says: %d bytes too many", int64(len(data))-b.left)
	}
	n, err := b.to.Write(data)
	b.left -= int64(n)
	return n, err
}
