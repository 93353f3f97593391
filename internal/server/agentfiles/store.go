package agentfiles

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/subscription"
)

const (
	// scanInterval is how often folders are scanned. Unlike notifications, scanning
	// works on all kinds of volumes.
	scanInterval = 10 * time.Second
	// maxFiles bounds the files of one folder.
	maxFiles = 64
)

// ErrNotFound is returned if no file has the digest.
var ErrNotFound = errors.New("no file has this digest")

// Store finds agent binaries by digest. It is safe for concurrent use.
type Store struct {
	folders []string
	clock   clock.Clock
	changed subscription.List

	mu sync.Mutex
	// files by path.
	files map[string]file
	// problems that were logged last, by path.
	problems map[string]string
}

// file is a file and its digest.
type file struct {
	info   fs.FileInfo
	sha256 string
}

// New returns a Store of the files in these folders, which it hashes at once. A folder may
// be created later.
func New(ctx context.Context, folders []string, c clock.Clock) *Store {
	s := &Store{folders: folders, clock: c, files: map[string]file{}, problems: map[string]string{}}
	s.scan(ctx)
	return s
}

// Subscribe calls f after each change of the digests, until stop is called. f must
// return quickly.
func (s *Store) Subscribe(f func()) (stop func()) { return s.changed.Add(f) }

// Has reports whether a file has that SHA-256, in lower-case hex.
func (s *Store) Has(digest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.sha256 == digest {
			return true
		}
	}
	return false
}

// Open opens the file with that SHA-256, in lower-case hex. It returns ErrNotFound if
// no file has it, or if the file changed after it was hashed.
func (s *Store) Open(digest string) (*os.File, error) {
	s.mu.Lock()
	candidates := maps.Clone(s.files)
	s.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(candidates)) {
		known := candidates[path]
		if known.sha256 != digest {
			continue
		}
		opened, info, err := open(path)
		if err != nil {
			continue // the next scan removes it or logs the problem
		}
		if same(known.info, info) {
			return opened, nil
		}
		_ = opened.Close()
	}
	return nil, ErrNotFound
}

// Start scans the folders until the context ends. It implements manager.Runnable.
func (s *Store) Start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("agent-files"))
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.clock.After(scanInterval):
			s.scan(ctx)
		}
	}
}

// scan hashes new and changed files and removes deleted ones.
func (s *Store) scan(ctx context.Context) {
	s.mu.Lock()
	before := s.files
	s.mu.Unlock()
	after, problems := map[string]file{}, map[string]string{}
	for _, folder := range s.folders {
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems[folder] = err.Error()
		}
		if len(entries) > maxFiles {
			problems[folder] = fmt.Sprintf("only %d of %d files are served", maxFiles, len(entries))
			entries = entries[:maxFiles]
		}
		for _, entry := range entries {
			path := filepath.Join(folder, entry.Name())
			switch {
			case entry.Type().IsRegular():
			case entry.Type() == fs.ModeSymlink && !strings.HasPrefix(entry.Name(), ".."):
				problems[path] = "links are not followed; mount files of a ConfigMap or Secret by subPath"
				continue
			default:
				continue
			}
			found, err := hash(path, before[path])
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				problems[path] = err.Error()
			default:
				after[path] = found
			}
		}
	}
	s.mu.Lock()
	s.files = after
	s.mu.Unlock()
	s.logProblems(ctx, problems, after)
	if !maps.EqualFunc(before, after, func(a, b file) bool { return a.sha256 == b.sha256 }) {
		s.changed.Changed()
	}
}

// logProblems logs new problems. Only scan calls it, which never runs concurrently with
// itself.
func (s *Store) logProblems(ctx context.Context, problems map[string]string, files map[string]file) {
	for _, path := range slices.Sorted(maps.Keys(problems)) {
		if s.problems[path] != problems[path] {
			ctrl.LoggerFrom(ctx).Info("Not serving agents as asked", "path", path, "reason", problems[path], "served", len(files))
		}
	}
	s.problems = problems
}

// hash returns the file's digest. It reads the file only if it changed.
func hash(path string, before file) (file, error) {
	opened, info, err := open(path)
	if err != nil {
		return file{}, err
	}
	defer func() { _ = opened.Close() }()
	if before.info != nil && same(before.info, info) {
		return before, nil
	}
	digest := sha256.New()
	// The file may grow while it is read, so one byte more than allowed is read.
	size, err := io.Copy(digest, io.LimitReader(opened, protocol.MaxAgentBytes+1))
	if err != nil {
		return file{}, fmt.Errorf("reading the file: %w", err)
	}
	if size > protocol.MaxAgentBytes {
		return file{}, errTooLarge(size)
	}
	return file{info: info, sha256: hex.EncodeToString(digest.Sum(nil))}, nil
}

// open opens a regular file of an allowed size.
func open(path string) (*os.File, fs.FileInfo, error) {
	// Non-blocking, because the file may have been replaced by a pipe.
	opened, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the file: %w", err)
	}
	info, err := opened.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("looking at the file: %w", err)
	case !info.Mode().IsRegular():
		err = errors.New("it is no regular file any more")
	case info.Size() > protocol.MaxAgentBytes:
		err = errTooLarge(info.Size())
	default:
		return opened, info, nil
	}
	_ = opened.Close()
	return nil, nil, err
}

func errTooLarge(size int64) error {
	return fmt.Errorf("the file has %d bytes or more; the limit is %d", size, protocol.MaxAgentBytes)
}

// same reports whether the metadata show no change of the file.
func same(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}
