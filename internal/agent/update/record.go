package update

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// recordFile is the document with the state of the last update.
const recordFile = "update.json"

// Suffixes of files in the program's folder.
const (
	// PreviousSuffix is that of the former program, for a rollback.
	PreviousSuffix = ".previous"
	nextSuffix     = ".next"
)

type phase string

const (
	// trial: the program was replaced or is about to be, and the new one has not reached
	// the manager yet.
	trial     phase = "Trial"
	confirmed phase = "Confirmed"
	// failed: the release was refused, or was rolled back, or is about to be.
	failed phase = "Failed"
)

// record is the state of the last update.
type record struct {
	Phase phase `json:"phase,omitempty"`
	// From and To are versions; SHA256 is To's digest.
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// Path is the program.
	Path      string    `json:"path,omitempty"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	// Attempts counts the starts during the trial.
	Attempts int    `json:"attempts,omitempty"`
	Message  string `json:"message,omitempty"`
	// RetryAfter is how long after FailedAt the release may be tried again; 0
	// means never.
	FailedAt   time.Time     `json:"failedAt,omitzero"`
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
}

// is reports whether the record is about a release.
func (r record) is(release protocol.AgentRelease) bool {
	return r.SHA256 == release.SHA256 && r.To == release.Version
}

func document(files state.Files) state.Document[record] {
	return state.Document[record]{Files: files, Name: recordFile}
}

// digest returns the SHA-256 of a file, in hex.
func digest(disk Disk, path string) (_ string, err error) {
	f, err := disk.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return digestOf(f)
}

func digestOf(r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", fmt.Errorf("reading a program: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// rollBack restores the former program. It may be repeated, and returns false if there is
// no former program.
func rollBack(disk Disk, path string) (done bool, err error) {
	err = disk.Rename(path+PreviousSuffix, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("putting the former program back: %w", err)
	}
	return true, disk.SyncDir(filepath.Dir(path))
}
