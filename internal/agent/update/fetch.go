package update

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// reserve is the space that an update leaves free on a file system, in bytes, for the node
// and the agent's state.
const reserve = 16 << 20

// programMode is the file mode of the program.
const programMode = 0o755

var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// errWrongDigest is the error of a file with another digest.
var errWrongDigest = errors.New("its SHA-256 is not the pinned one")

// replace downloads the release, verifies it, and replaces the program.
func (u *Updater) replace(ctx context.Context, want protocol.AgentRelease) error {
	if err := permit(u.Version, want.Version); err != nil {
		return &refusal{err: err}
	}
	if !hexDigest.MatchString(want.SHA256) {
		return &refusal{err: fmt.Errorf("%q is no SHA-256 in hex: correct the pinned digest", want.SHA256)}
	}
	if err := u.Disk.Writable(filepath.Dir(u.Path)); err != nil {
		return &refusal{retry: retryRefused, err: fmt.Errorf("the agent cannot be replaced where it is: %w: "+
			"make the folder writable, or install the agent in one that is", err)}
	}
	if err := u.obtain(ctx, want.SHA256); err != nil {
		return err
	}
	said, err := u.Probe(ctx, u.Path+nextSuffix)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return &refusal{err: fmt.Errorf("%s does not start on this host: %w", want.Version, err)}
	case said != want.Version:
		return &refusal{err: fmt.Errorf("the binary with the pinned digest says that it is %s, not %s: correct the pinned version", said, want.Version)}
	}
	return u.swap(want)
}

// swap replaces the program. It takes milliseconds and is not interrupted.
func (u *Updater) swap(want protocol.AgentRelease) error {
	if err := u.copyPrevious(); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	next := record{
		Phase: trial, From: u.Version, To: want.Version, SHA256: want.SHA256, Path: u.Path,
		StartedAt: u.Clock.Now().UTC().Round(0),
	}
	if err := document(u.Documents).Save(next); err != nil {
		return err
	}
	u.at, u.current = next, nil
	if err := u.Disk.Rename(u.Path+nextSuffix, u.Path); err != nil {
		return &refusal{retry: retryRefused, err: fmt.Errorf("replacing the agent: %w", err)}
	}
	if err := u.Disk.SyncDir(filepath.Dir(u.Path)); err != nil {
		// After a power cut either program may be there, and each handles that.
		u.Log.Warn("Could not make the new agent durable", "error", err)
	}
	if err := remove(u.Disk, u.download()); err != nil {
		u.Log.Warn("Could not remove the download", "error", err)
	}
	u.Log.Info("Replaced the agent, which has to be started again", "version", want.Version, "from", u.Version)
	return agent.ErrRestart
}

// copyPrevious copies the running program to PATH.previous for a rollback.
func (u *Updater) copyPrevious() error {
	self, err := u.running()
	if err != nil {
		return err
	}
	err = u.copy(u.Path, u.Path+PreviousSuffix, self)
	if errors.Is(err, errWrongDigest) {
		return &refusal{retry: retryRefused, err: fmt.Errorf("%s is not the program that runs: restart the service", u.Path)}
	}
	if err != nil {
		return fmt.Errorf("keeping the present agent: %w", err)
	}
	return nil
}

func (u *Updater) download() string { return filepath.Join(u.Folder, "binary") }

// obtain downloads the binary with the digest to PATH.next, executable. It resumes an
// earlier download; if the result has another digest, it downloads everything again.
func (u *Updater) obtain(ctx context.Context, want string) error {
	resumed, err := u.fetch(ctx, want)
	if err == nil {
		err = u.stage(want)
	}
	if resumed && (errors.Is(err, errWrongDigest) || errors.Is(err, download.ErrNoSuchPart)) {
		if err := remove(u.Disk, u.download()); err != nil {
			return err
		}
		if _, err = u.fetch(ctx, want); err == nil {
			err = u.stage(want)
		}
	}
	if errors.Is(err, errWrongDigest) || errors.Is(err, download.ErrTooBig) {
		refused := fmt.Errorf("what the manager sent is refused, nothing of it was executed: %w", err)
		return &refusal{retry: retryRefused, err: errors.Join(refused, remove(u.Disk, u.download()))}
	}
	return err
}

// fetch completes the download. resumed is true if a part existed.
func (u *Updater) fetch(ctx context.Context, want string) (resumed bool, err error) {
	have, err := u.Disk.Size(u.download())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("looking at the download: %w", err)
	}
	if have > 0 {
		// The download may be complete if the agent was stopped before it was used.
		if got, err := digest(u.Disk, u.download()); err == nil && got == want {
			return true, nil
		}
	}
	err = u.Source().AgentBinary(ctx, want, have, func(from, size int64, body io.Reader) error {
		return u.save(from, size, body)
	})
	return have > 0, err
}

// save writes the body. After a failure the part that was read remains.
func (u *Updater) save(from, size int64, body io.Reader) error {
	if size < 0 {
		size = protocol.MaxAgentBytes
	}
	return download.Save(u.Disk, u.download(), from, body, func() error {
		// The download, and two copies in the program's folder.
		if err := u.checkSpace(u.Folder, size-from); err != nil {
			return err
		}
		return u.checkSpace(filepath.Dir(u.Path), 2*size)
	}, func(int64) {})
}

// checkSpace returns an error if a folder lacks space for bytes.
func (u *Updater) checkSpace(folder string, bytes int64) error {
	free, err := u.Disk.Free(folder)
	if err != nil {
		return err
	}
	if free < bytes+reserve {
		return &refusal{retry: retryRefused, err: fmt.Errorf("%s has %d MiB free, and an update needs %d MiB: make room",
			folder, free>>20, (bytes+reserve)>>20)}
	}
	return nil
}

// stage copies the download to the program's folder. The digest of the copy is verified,
// as the copy is what is executed.
func (u *Updater) stage(want string) error {
	if err := u.copy(u.download(), u.Path+nextSuffix, want); err != nil {
		return errors.Join(fmt.Errorf("putting the new agent beside the present one: %w", err), remove(u.Disk, u.Path+nextSuffix))
	}
	return nil
}

// copy makes a durable copy, and makes it executable if it has the digest.
func (u *Updater) copy(from, to, want string) (err error) {
	source, err := u.Disk.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if err := remove(u.Disk, to); err != nil {
		return err
	}
	f, err := u.Disk.Create(to, 0)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), source)
	if got := hex.EncodeToString(sum.Sum(nil)); err == nil && got != want {
		err = fmt.Errorf("%w: it is %s, not %s", errWrongDigest, got, want)
	}
	if err == nil {
		err = f.Chmod(programMode)
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return u.Disk.SyncDir(filepath.Dir(to))
}

// remove removes a file if it exists.
func remove(disk Disk, path string) error {
	if err := disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
