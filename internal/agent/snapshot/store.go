package snapshot

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/pace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Folder is the folder of snapshots in the state directory.
const Folder = "etcd-snapshots"

const (
	databaseSuffix = ".db"
	factsSuffix    = ".json"
	// incomingSuffix is that of the file of a snapshot that is added.
	incomingSuffix = ".incoming"
	// authorityLength is the length of the names of clusters' folders.
	authorityLength = 16
)

// Store has the snapshots of a host. Its methods may be called by several goroutines.
type Store struct {
	// Root replaces "/".
	Root string
	// Folder has a folder for each cluster.
	Folder string
	// System writes files.
	System durable.System
	// Space returns how many bytes are free and in all on the disk of a folder.
	Space func(folder string) (free, total int64, err error)
	// Now is the host's clock.
	Now func() time.Time
	Log *slog.Logger

	mu sync.Mutex
	// verified are the files whose content was compared with their digest.
	verified map[string]version
	// incoming is what has not come yet of the snapshots that are added, by their files.
	incoming map[string]*bounded
}

// version is a version of a file.
type version struct {
	size     int64
	modified time.Time
	sha256   string
}

// List returns the complete and undamaged snapshots of the etcd that the host runs, the newest
// one first. A host that runs none may have lost the files of Kubernetes, so all snapshots are
// listed: they tell of which cluster they are. It reads each file once in the life of the Store.
func (s *Store) List(ctx context.Context) ([]protocol.EtcdSnapshotFacts, error) {
	folder, found, err := s.folder()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !found {
		return s.listAll(ctx)
	}
	return s.list(ctx, folder)
}

// listAll lists the snapshots of all clusters.
func (s *Store) listAll(ctx context.Context) ([]protocol.EtcdSnapshotFacts, error) {
	if err := s.System.Stat(s.Folder); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	_, folders, err := s.System.Walk(s.Folder)
	if err != nil {
		return nil, fmt.Errorf("looking for snapshots of etcd: %w", err)
	}
	var all []protocol.EtcdSnapshotFacts
	for _, folder := range folders {
		if folder == s.Folder {
			continue
		}
		list, err := s.list(ctx, folder)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return newest(all), nil
}

// folder returns the folder of the etcd that the host runs. found is false if it runs none.
func (s *Store) folder() (folder string, found bool, err error) {
	certificate, found, err := etcd.Authority(s.Root)
	if err != nil || !found {
		return "", false, err
	}
	sum := sha256.Sum256(certificate)
	return filepath.Join(s.Folder, hex.EncodeToString(sum[:])[:authorityLength]), true, nil
}

func (s *Store) list(ctx context.Context, folder string) ([]protocol.EtcdSnapshotFacts, error) {
	names, err := s.names(folder)
	if err != nil {
		return nil, err
	}
	var list []protocol.EtcdSnapshotFacts
	for _, name := range names {
		id, isFacts := strings.CutSuffix(name, factsSuffix)
		if !isFacts {
			continue
		}
		facts, err := s.check(ctx, folder, id)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			s.Log.Warn("A snapshot of etcd is not listed", "snapshot", id, "error", err)
			continue
		}
		list = append(list, facts)
	}
	return newest(list), nil
}

// newest returns as many snapshots as may be reported, the newest one first. IDs are times.
func newest(list []protocol.EtcdSnapshotFacts) []protocol.EtcdSnapshotFacts {
	slices.SortFunc(list, func(a, b protocol.EtcdSnapshotFacts) int { return cmp.Compare(b.ID, a.ID) })
	return list[:min(len(list), protocol.MaxEtcdSnapshots)]
}

// names returns the names of the files in a cluster's folder.
func (s *Store) names(folder string) ([]string, error) {
	if err := s.System.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	files, _, err := s.System.Walk(folder)
	if err != nil {
		return nil, fmt.Errorf("looking for snapshots of etcd: %w", err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	return files, nil
}

// check returns what a snapshot is, or an error unless it is complete and undamaged.
func (s *Store) check(ctx context.Context, folder, id string) (protocol.EtcdSnapshotFacts, error) {
	var facts protocol.EtcdSnapshotFacts
	data, err := s.System.ReadFile(filepath.Join(folder, id+factsSuffix))
	if err != nil {
		return facts, fmt.Errorf("reading what the snapshot is: %w", err)
	}
	if err := json.Unmarshal(data, &facts); err != nil {
		return facts, fmt.Errorf("reading what the snapshot is: %w", err)
	}
	if facts.ID != id {
		return facts, fmt.Errorf("its file belongs to snapshot %.64q", facts.ID)
	}
	path := filepath.Join(folder, id+databaseSuffix)
	info, err := os.Lstat(path)
	if err != nil {
		return facts, fmt.Errorf("looking at the snapshot: %w", err)
	}
	is := version{info.Size(), info.ModTime(), facts.SHA256}
	if s.verified[path] == is {
		return facts, nil
	}
	if info.Size() != facts.SizeBytes || !info.Mode().IsRegular() {
		return facts, fmt.Errorf("it has %d bytes, not %d", info.Size(), facts.SizeBytes)
	}
	sum, err := digest(ctx, path)
	if err != nil {
		return facts, fmt.Errorf("reading the snapshot: %w", err)
	}
	if sum != facts.SHA256 {
		return facts, fmt.Errorf("its SHA-256 is %s, not %s", sum, facts.SHA256)
	}
	s.trust(path, is)
	return facts, nil
}

// trust records that a version of a file was verified.
func (s *Store) trust(path string, is version) {
	if s.verified == nil {
		s.verified = map[string]version{}
	}
	s.verified[path] = is
}

func digest(ctx context.Context, path string) (sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(hash, reader{ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// reader ends with its context.
type reader struct {
	ctx  context.Context
	from io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.from.Read(p)
}

// keepNewest removes all but the newest snapshots of a cluster's folder and what is damaged
// there. The snapshot with the ID stays in any case.
func (s *Store) keepNewest(ctx context.Context, folder, id string, keep int) error {
	list, err := s.list(ctx, folder)
	if err != nil {
		return err
	}
	stay := map[string]bool{id: true}
	for _, facts := range list {
		if len(stay) < keep {
			stay[facts.ID] = true
		}
	}
	return s.remove(ctx, folder, func(name string) bool { return !stay[idOf(name)] })
}

// removePartial removes what an interrupted attempt has left: files of snapshots that are not
// complete.
func (s *Store) removePartial(ctx context.Context, folder string) error {
	names, err := s.names(folder)
	if err != nil {
		return err
	}
	return s.remove(ctx, folder, func(name string) bool { return !slices.Contains(names, idOf(name)+factsSuffix) })
}

// remove removes the files of a cluster's folder that are unwanted. The file that makes a
// snapshot complete goes first, so that a power cut leaves no part of one.
func (s *Store) remove(ctx context.Context, folder string, isUnwanted func(name string) bool) error {
	names, err := s.names(folder)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !isUnwanted(name) || s.isIncoming(filepath.Join(folder, name)) })
	isFacts := func(name string) bool { return strings.HasSuffix(name, factsSuffix) }
	for _, goesFirst := range []bool{true, false} {
		removed := false
		for _, name := range names {
			if isFacts(name) != goesFirst {
				continue
			}
			removed = true
			if !isFacts(name) {
				if err := pace.Shrink(ctx, filepath.Join(folder, name)); err != nil {
					s.Log.Debug("A snapshot of etcd is removed at once, not step by step", "file", name, "reason", err.Error())
				}
			}
			if err := s.System.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("removing a snapshot of etcd: %w", err)
			}
		}
		if !removed {
			continue
		}
		if err := s.System.SyncDir(folder); err != nil {
			return err
		}
	}
	return nil
}

// idOf is the ID of the snapshot that a file belongs to. A file that belongs to none has an
// ID that no snapshot has.
func idOf(name string) string {
	if id, ok := strings.CutSuffix(name, factsSuffix); ok {
		return id
	}
	if id, ok := strings.CutSuffix(name, databaseSuffix); ok {
		return id
	}
	return "/" + name
}
