package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle/stage"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// reserve is the space that a bundle leaves free on the disk, in bytes, for the node and
// the agent's state.
const reserve = 256 << 20

// worthwhile is how many bytes a request must bring for the next one to follow at once.
const worthwhile = 1 << 20

// errNoSpace is the error of a disk that lacks space. No other source can help.
var errNoSpace = errors.New("the disk lacks space")

// trusted are the sources that are to be asked.
func (s *Stager) trusted(want protocol.Bundle) []string {
	return slices.DeleteFunc(slices.Clone(want.Sources), func(source string) bool { return s.distrusted[source] })
}

// obtain fetches the bundle from its sources in turn, and unpacks it.
func (s *Stager) obtain(ctx context.Context, want protocol.Bundle, progress func(string)) (bundle.Manifest, error) {
	have, err := s.fetched(want)
	if err != nil {
		return bundle.Manifest{}, err
	}
	if have == want.SizeBytes {
		// The agent was stopped before it was unpacked, or it could not be unpacked.
		m, err := s.unpackPart(ctx, want, progress)
		if !errors.Is(err, bundle.ErrWrongDigest) {
			return m, err
		}
		if err := s.remove(s.part(want)); err != nil {
			return bundle.Manifest{}, err
		}
	}
	var failures []error
	for _, source := range s.trusted(want) {
		m, err := s.obtainFrom(ctx, source, want, progress)
		if err == nil || ctx.Err() != nil || errors.Is(err, errNoSpace) {
			return m, err
		}
		if source == protocol.SourceManager && isWaiting(err) {
			failures = append(failures, fmt.Errorf("%w: %w", bundle.ErrNotServed, err))
			continue
		}
		failures = append(failures, fmt.Errorf("%s: %w", name(source), err))
	}
	return bundle.Manifest{}, errors.Join(failures...)
}

// name is a source without what may be secret in a URL.
func name(source string) string {
	u, err := url.Parse(source)
	if err != nil || u.Host == "" {
		return source
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// obtainFrom obtains the bundle from one source. It asks again as long as each answer brings
// the download forward. What another source sent before may be wrong, so a source is
// distrusted only for bytes that all came from it.
func (s *Stager) obtainFrom(ctx context.Context, source string, want protocol.Bundle, progress func(string)) (bundle.Manifest, error) {
	if path, ok := strings.CutPrefix(source, "file:"); ok {
		m, err := s.unpackFile(ctx, path, want, progress)
		if errors.Is(err, bundle.ErrWrongDigest) {
			s.distrusted[source] = true
		}
		return m, err
	}
	isMixed := true
	for {
		before, err := s.fetched(want)
		if err != nil {
			return bundle.Manifest{}, err
		}
		startedOver := false
		if before < want.SizeBytes {
			startedOver, err = s.fetch(ctx, source, want, before, progress)
		}
		isMixed = isMixed && before > 0 && !startedOver
		var m bundle.Manifest
		if err == nil {
			m, err = s.unpackPart(ctx, want, progress)
		}
		switch {
		case isWrong(err):
			if err := s.remove(s.part(want)); err != nil {
				return bundle.Manifest{}, err
			}
			if !isMixed {
				s.distrusted[source] = true
				return bundle.Manifest{}, err
			}
		case err == nil || ctx.Err() != nil || !s.hasGrown(want, before):
			return m, err
		}
	}
}

// isWrong reports whether the bytes are not those of the bundle.
func isWrong(err error) bool {
	return errors.Is(err, bundle.ErrWrongDigest) || errors.Is(err, download.ErrTooBig) || errors.Is(err, download.ErrNoSuchPart)
}

// hasGrown reports whether a request that failed brought the download forward. After some
// minutes every request to the manager ends, and any link may break.
func (s *Stager) hasGrown(want protocol.Bundle, before int64) bool {
	have, err := s.fetched(want)
	return err == nil && have-before >= worthwhile && have < want.SizeBytes
}

// fetched is how much of the bundle was fetched. A file that can't be a part of it is
// removed.
func (s *Stager) fetched(want protocol.Bundle) (int64, error) {
	have, err := s.Disk.Size(s.part(want))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("looking at the download: %w", err)
	case have > want.SizeBytes:
		return 0, s.remove(s.part(want))
	}
	return have, nil
}

// fetch asks a source for what is missing of the download. startedOver is true if the source
// sent the bundle from its beginning.
func (s *Stager) fetch(ctx context.Context, source string, want protocol.Bundle, have int64, progress func(string)) (startedOver bool, err error) {
	save := func(from int64, body io.Reader) error {
		startedOver = from == 0
		tenths := newTenths("fetched", from, want.SizeBytes, progress)
		return download.Save(s.Disk, s.part(want), from, body, func() error {
			// Unpacked it has at least the same size. The exact one is checked then.
			return s.checkSpace(want.SizeBytes - from + want.SizeBytes)
		}, tenths.add)
	}
	if source == protocol.SourceManager {
		err = s.Manager().Bundle(ctx, want.SHA256, have, want.SizeBytes, save)
	} else {
		err = s.Mirror.Get(ctx, download.Wanted{URL: source, Size: want.SizeBytes, Offset: have, ETag: s.etags[source]}, func(from int64, etag string, body io.Reader) error {
			s.etags[source] = etag
			return save(from, body)
		})
	}
	if err != nil {
		return startedOver, err
	}
	if have, err = s.fetched(want); err == nil && have < want.SizeBytes {
		err = fmt.Errorf("it ended after %d of %d bytes", have, want.SizeBytes)
	}
	return startedOver, err
}

// unpackPart unpacks what was fetched.
func (s *Stager) unpackPart(ctx context.Context, want protocol.Bundle, progress func(string)) (bundle.Manifest, error) {
	return s.unpackFile(ctx, s.part(want), want, progress)
}

// unpackFile verifies and unpacks a file.
func (s *Stager) unpackFile(ctx context.Context, path string, want protocol.Bundle, progress func(string)) (_ bundle.Manifest, err error) {
	// A pipe would block.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return bundle.Manifest{}, fmt.Errorf("opening the bundle: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return bundle.Manifest{}, fmt.Errorf("looking at the bundle: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() != want.SizeBytes {
		return bundle.Manifest{}, fmt.Errorf("it is %s with %d bytes, not a file with %d: put the pinned bundle there", info.Mode().Type(), info.Size(), want.SizeBytes)
	}
	if err := os.MkdirAll(s.Folder, 0o700); err != nil {
		return bundle.Manifest{}, fmt.Errorf("making the folder of bundles: %w", err)
	}
	progress("verifying")
	var meter *tenths
	m, err := stage.Unpack(ctx, f, filepath.Join(s.Folder, want.SHA256), stage.Options{
		SHA256: want.SHA256, Version: want.Version, Architecture: s.Architecture, Limits: bundle.DefaultLimits(),
		Accept: func(m bundle.Manifest) error {
			meter = newTenths("unpacked", 0, m.UnpackedBytes(), progress)
			return s.checkSpace(m.UnpackedBytes())
		},
		Progress: func(p stage.Progress) { meter.set(p.Done) },
	})
	// The decompressor needed several times the memory that the agent has at rest.
	debug.FreeOSMemory()
	return m, err
}

// checkSpace returns an error if the disk lacks space for bytes.
func (s *Stager) checkSpace(bytes int64) error {
	free, err := s.Disk.Free(s.Folder)
	if err != nil {
		return err
	}
	if free < bytes+reserve {
		return fmt.Errorf("%w: %s has %d MiB free, and the bundle needs %d MiB: make room", errNoSpace, s.Folder, free>>20, (bytes+reserve)>>20)
	}
	return nil
}
