package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle/stage"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Delays before the next attempt: after an attempt that failed, and after one in which
// every source had other bytes than the pinned ones.
const (
	retryBase    = 5 * time.Second
	retryMax     = 5 * time.Minute
	retryRefused = time.Hour
)

// partSuffix is that of a file that is being fetched.
const partSuffix = ".part"

// Manager serves bundles; see client.Client.Bundle.
type Manager interface {
	Bundle(ctx context.Context, digest string, offset, size int64, save func(from int64, body io.Reader) error) error
}

// Mirror serves files by URL; see download.Mirror.
type Mirror interface {
	Get(ctx context.Context, want download.Wanted, save func(from int64, etag string, body io.Reader) error) error
}

// Options are what a Stager works with. All fields but Rand are required.
type Options struct {
	// Folder is the folder of bundles. Nothing else may be in it.
	Folder string
	// Manager returns the manager connection's client in use.
	Manager func() Manager
	Mirror  Mirror
	Disk    download.Disk
	// Architecture is the host's, as Go names it.
	Architecture string
	Clock        retry.Clock
	Rand         func() float64
	Log          *slog.Logger
}

// Stager stages one bundle at a time. Use New. It is safe for concurrent use.
type Stager struct {
	Options

	// turn is held by whoever uses the folder.
	turn chan struct{}

	// These belong to the holder of the turn.

	// last is the bundle of the last attempt; the next attempt is not before notBefore.
	last      protocol.Bundle
	notBefore time.Time
	backoff   retry.Backoff
	// distrusted are the sources that had other bytes than the pinned ones.
	distrusted map[string]bool
	// etags are the entity tags of last at its sources.
	etags map[string]string
	// staged is the digest of the bundle that this process has verified, and manifest is
	// its manifest.
	staged   string
	manifest bundle.Manifest

	mu     sync.Mutex
	report protocol.BundleReport
	watch  func(protocol.BundleReport)
}

// New returns a Stager, which looks at nothing yet.
func New(o Options) *Stager {
	return &Stager{
		Options: o, turn: make(chan struct{}, 1), backoff: retry.Backoff{Base: retryBase, Max: retryMax, Rand: o.Rand},
		watch: func(protocol.BundleReport) {},
	}
}

// Watch has report called with each change of what is staged. It must be called before
// Stage.
func (s *Stager) Watch(report func(protocol.BundleReport)) { s.watch = report }

// Stage makes one attempt to have a bundle unpacked on the disk, and returns its folder,
// which has each file of the manifest under its name. After a failed attempt for the same
// bundle it waits first. Any other bundle is removed. The folder remains until another
// bundle is staged or Clear is called; the caller must see to it that neither happens
// while it uses the folder. progress is called with each tenth of the way.
func (s *Stager) Stage(ctx context.Context, want protocol.Bundle, progress func(message string)) (folder string, m bundle.Manifest, err error) {
	if err := s.take(ctx); err != nil {
		return "", bundle.Manifest{}, err
	}
	defer s.release()
	folder = filepath.Join(s.Folder, want.SHA256)
	if s.isStaged(want) {
		s.tell(want, protocol.BundleStaged, "")
		return folder, s.manifest, nil
	}
	if err := s.prepare(ctx, want, progress); err != nil {
		return "", bundle.Manifest{}, err
	}
	m, err = s.attempt(ctx, want, func(message string) {
		s.tell(want, protocol.BundleStaging, message)
		progress(message)
	})
	if ctx.Err() != nil {
		return "", bundle.Manifest{}, context.Cause(ctx)
	}
	if err != nil {
		s.postpone(want, err)
		return "", bundle.Manifest{}, err
	}
	s.staged, s.manifest = want.SHA256, m
	s.backoff.Reset()
	s.Log.Info("Staged a bundle", "version", want.Version, "sha256", want.SHA256)
	s.tell(want, protocol.BundleStaged, "")
	return folder, m, nil
}

// Clear removes what is staged.
func (s *Stager) Clear(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.release()
	if err := s.removeOthers(""); err != nil {
		return err
	}
	s.set(protocol.BundleReport{})
	return nil
}

func (s *Stager) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Stager) release() { <-s.turn }

var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// check bounds what the manager says: the digest becomes a name, and the size bounds the
// download.
func check(want protocol.Bundle) error {
	switch {
	case !hexDigest.MatchString(want.SHA256):
		return fmt.Errorf("%q is no SHA-256 in lower-case hex: correct the pinned digest", want.SHA256)
	case want.SizeBytes < 1 || want.SizeBytes > protocol.MaxBundleBytes:
		return fmt.Errorf("a bundle can't have %d bytes: correct the pinned size", want.SizeBytes)
	case len(want.Sources) == 0 || len(want.Sources) > protocol.MaxBundleSources:
		return fmt.Errorf("the bundle has %d sources: give it 1 to %d", len(want.Sources), protocol.MaxBundleSources)
	}
	return nil
}

// isStaged reports whether this process has verified the bundle, and nobody has removed it.
func (s *Stager) isStaged(want protocol.Bundle) bool {
	if s.staged != want.SHA256 || s.manifest.CheckFor(want.Version, s.Architecture) != nil {
		return false
	}
	_, err := os.Lstat(filepath.Join(s.Folder, want.SHA256, bundle.ManifestName))
	return err == nil
}

// Retry has the next attempt begin at once and ask every source again: somebody asks for it, and
// may have corrected what was wrong.
func (s *Stager) Retry(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.release()
	s.notBefore = time.Time{}
	clear(s.distrusted)
	s.backoff.Reset()
	return nil
}

// prepare waits until the next attempt may begin.
func (s *Stager) prepare(ctx context.Context, want protocol.Bundle, progress func(string)) error {
	if !reflect.DeepEqual(want, s.last) {
		s.last, s.notBefore = want, time.Time{}
		s.distrusted, s.etags = map[string]bool{}, map[string]string{}
		s.backoff.Reset()
	}
	if left := s.notBefore.Sub(s.Clock.Now()); left > 0 {
		progress(fmt.Sprintf("next attempt in %s: %s", left.Round(time.Second), s.message()))
		return s.Clock.Wait(ctx, left)
	}
	return nil
}

// message is that of the last report.
func (s *Stager) message() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report.Message
}

// postpone reports a failed attempt, and decides when the next one begins.
func (s *Stager) postpone(want protocol.Bundle, err error) {
	wait := s.backoff.Next() + client.RetryAfter(err)
	if len(s.trusted(want)) == 0 {
		// No source has the pinned bytes. A person has to act, and may have done so then.
		wait = retryRefused
		clear(s.distrusted)
	}
	s.notBefore = s.Clock.Now().Add(wait)
	state := protocol.BundleFailed
	if errors.Is(err, bundle.ErrNotServed) {
		state = protocol.BundleStaging
	}
	s.Log.Warn("Could not stage a bundle, and tries again", "version", want.Version, "sha256", want.SHA256, "error", err)
	s.tell(want, state, err.Error())
}

// isWaiting reports whether the manager may serve the bundle later: it is restarted, does not
// know yet that the host needs the bundle, does not have it yet, or serves too many hosts.
func isWaiting(err error) bool {
	refusal, ok := errors.AsType[*client.ProblemError](err)
	return ok && (refusal.Problem.Status == http.StatusNotFound || refusal.Problem.Status == http.StatusServiceUnavailable) ||
		client.Unreachable(err)
}

// attempt makes the folder complete.
func (s *Stager) attempt(ctx context.Context, want protocol.Bundle, progress func(string)) (bundle.Manifest, error) {
	if err := check(want); err != nil {
		return bundle.Manifest{}, err
	}
	if err := s.removeOthers(want.SHA256); err != nil {
		return bundle.Manifest{}, err
	}
	m, err := stage.Load(ctx, filepath.Join(s.Folder, want.SHA256), bundle.DefaultLimits())
	if err == nil {
		err = m.CheckFor(want.Version, s.Architecture)
	}
	if err != nil && ctx.Err() == nil {
		if !s.hasTold(want) {
			s.tell(want, protocol.BundleStaging, "")
		}
		m, err = s.obtain(ctx, want, progress)
	}
	if err != nil {
		return bundle.Manifest{}, err
	}
	return m, s.remove(s.part(want))
}

// removeOthers removes everything but the bundle with that digest.
func (s *Stager) removeOthers(digest string) error {
	if s.staged != digest {
		s.staged, s.manifest = "", bundle.Manifest{}
	}
	entries, err := os.ReadDir(s.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for staged bundles: %w", err)
	}
	for _, entry := range entries {
		if digest != "" && strings.TrimSuffix(entry.Name(), partSuffix) == digest {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.Folder, entry.Name())); err != nil {
			return fmt.Errorf("removing a staged bundle: %w", err)
		}
	}
	return nil
}

func (s *Stager) part(want protocol.Bundle) string {
	return filepath.Join(s.Folder, want.SHA256+partSuffix)
}

// remove removes a file if it exists.
func (s *Stager) remove(path string) error {
	if err := s.Disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a download: %w", err)
	}
	return nil
}

func (s *Stager) tell(want protocol.Bundle, state protocol.BundleState, message string) {
	s.set(protocol.BundleReport{SHA256: want.SHA256, Version: want.Version, State: state, Message: message})
}

// hasTold reports whether the last report is about this bundle. If it says that the last
// attempt failed, it stands until the next one gets further.
func (s *Stager) hasTold(want protocol.Bundle) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report.SHA256 == want.SHA256
}

// set calls watch with a change.
func (s *Stager) set(next protocol.BundleReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.report == next {
		return
	}
	s.report = next
	s.watch(next)
}
