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

// recordFile is the document that says how the last update went.
const recordFile = "update.json"

// What is kept beside the program.
const (
	// PreviousSuffix is of the program that is put back if need be.
	PreviousSuffix = ".previous"
	nextSuffix     = ".next"
)

type phase string

const (
	// trial: the program is about to be replaced, or was, and the new one has
	// not reached the manager yet.
	trial     phase = "Trial"
	confirmed phase = "Confirmed"
	// failed: the release was refused, or is about to be taken back, or was.
	failed phase = "Failed"
)

// record is how the last update went.
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

// is tells whether the record is about a release.
func (r record) is(release protocol.AgentRelease) bool {
	return r.SHA256 == release.SHA256 && r.To == release.Version
}

func document(files state.Files) state.Document[record] {
	return state.Document[record]{Files: files, Name: recordFile}
}

// digest is the SHA-256 of a file, in hex.
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

// putBack puts the former program into its place. It may be repeated, and does
// nothing when it was done.
func putBack(disk Disk, path string) (done bool, err error) {
	err = disk.Rename(path+PreviousSuffix, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("putting the former program back: %w", err)
	}
	return true, disk.SyncDir(filepath.Dir(path))
}
