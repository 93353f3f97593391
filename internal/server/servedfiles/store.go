package servedfiles

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

// Store finds files by digest. It is safe for concurrent use.
type Store struct {
	options Options
	clock   clock.Clock
	changed subscription.List

	mu sync.Mutex
	// files by path.
	files map[string]file
	// scanned is true once all files have been hashed.
	scanned bool
	// problems that were logged last, by path.
	problems map[string]string
}

// Options of a Store.
type Options struct {
	// Folders with the files. They may be created later.
	Folders []string
	// MaxBytes is the size of the largest file that is served.
	MaxBytes int64
}

// file is a file and its digest.
type file struct {
	info   fs.FileInfo
	sha256 string
}

// New returns a Store without files. Scan or Start finds them.
func New(o Options, c clock.Clock) *Store {
	return &Store{options: o, clock: c, files: map[string]file{}, problems: map[string]string{}}
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

// Named returns the SHA-256, in lower-case hex, of the file with that name in the first folder
// that has one.
func (s *Store) Named(name string) (digest string, found bool) {
	if filepath.Base(name) != name {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, folder := range s.options.Folders {
		if f, found := s.files[filepath.Join(folder, name)]; found {
			return f.sha256, true
		}
	}
	return "", false
}

// Scanned reports whether all files have been hashed. Until then Has may report false for a
// file that exists.
func (s *Store) Scanned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scanned
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
		opened, info, err := s.open(path)
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

// NeedLeaderElection implements manager.LeaderElectionRunnable. All replicas hash the files, so
// that a new leader can serve them at once.
func (*Store) NeedLeaderElection() bool { return false }

// Start scans the folders until the context ends. It implements manager.Runnable.
func (s *Store) Start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("served-files"))
	for {
		s.Scan(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-s.clock.After(scanInterval):
		}
	}
}

// Scan hashes new and changed files and removes deleted ones. Each file is served as soon as
// it is hashed, because the next may take minutes. It must not run concurrently with itself
// or Start.
func (s *Store) Scan(ctx context.Context) {
	s.mu.Lock()
	before := maps.Clone(s.files)
	s.mu.Unlock()
	after, problems := map[string]file{}, map[string]string{}
	for _, path := range s.candidates(problems) {
		found, err := s.hash(ctx, path, before[path])
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			problems[path] = err.Error()
		default:
			after[path] = found
			s.add(path, found)
		}
	}
	s.finish(after)
	s.logProblems(ctx, problems, after)
}

// candidates returns the paths of the regular files in the folders, and adds what else it
// finds to problems.
func (s *Store) candidates(problems map[string]string) []string {
	var paths []string
	for _, folder := range s.options.Folders {
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
				paths = append(paths, path)
			case entry.Type() == fs.ModeSymlink && !strings.HasPrefix(entry.Name(), ".."):
				problems[path] = "links are not followed; mount files of a ConfigMap or Secret by subPath"
			}
		}
	}
	return paths
}

// add serves a file from now on.
func (s *Store) add(path string, found file) {
	s.mu.Lock()
	changed := s.files[path].sha256 != found.sha256
	s.files[path] = found
	s.mu.Unlock()
	if changed {
		s.changed.Changed()
	}
}

// finish serves no other files than these, which are all that exist.
func (s *Store) finish(all map[string]file) {
	s.mu.Lock()
	changed := !s.scanned || len(s.files) != len(all)
	s.files, s.scanned = all, true
	s.mu.Unlock()
	if changed {
		s.changed.Changed()
	}
}

// logProblems logs new problems. Only Scan calls it, which never runs concurrently with
// itself.
func (s *Store) logProblems(ctx context.Context, problems map[string]string, files map[string]file) {
	for _, path := range slices.Sorted(maps.Keys(problems)) {
		if s.problems[path] != problems[path] {
			ctrl.LoggerFrom(ctx).Info("Not serving files as asked", "path", path, "reason", problems[path], "served", len(files))
		}
	}
	s.problems = problems
}

// hash returns the file's digest. It reads the file only if it changed.
func (s *Store) hash(ctx context.Context, path string, before file) (file, error) {
	opened, info, err := s.open(path)
	if err != nil {
		return file{}, err
	}
	defer func() { _ = opened.Close() }()
	if before.info != nil && same(before.info, info) {
		return before, nil
	}
	digest := sha256.New()
	// The file may grow while it is read, so one byte more than allowed is read.
	size, err := io.Copy(digest, io.LimitReader(&cancellable{ctx, opened}, s.options.MaxBytes+1))
	if err != nil {
		return file{}, fmt.Errorf("reading the file: %w", err)
	}
	if size > s.options.MaxBytes {
		return file{}, s.errTooLarge(size)
	}
	return file{info: info, sha256: hex.EncodeToString(digest.Sum(nil))}, nil
}

// cancellable reads until its context ends.
type cancellable struct {
	ctx    context.Context
	reader io.Reader
}

// Read implements io.Reader.
func (c *cancellable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.reader.Read(p)
}

// open opens a regular file of an allowed size.
func (s *Store) open(path string) (*os.File, fs.FileInfo, error) {
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
	case info.Size() > s.options.MaxBytes:
		err = s.errTooLarge(info.Size())
	default:
		return opened, info, nil
	}
	_ = opened.Close()
	return nil, nil, err
}

func (s *Store) errTooLarge(size int64) error {
	return fmt.Errorf("the file has %d bytes or more; the limit is %d", size, s.options.MaxBytes)
}

// same reports whether the metadata show no change of the file.
func same(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}
