package upload

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"filippo.io/age"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// blockSize is that of tar, and endSize is what ends an archive.
	blockSize = 512
	endSize   = 2 * blockSize
	// chunkSize is that of age, and tagSize is what each chunk has in addition.
	chunkSize = 64 << 10
	tagSize   = 16
)

// object is a snapshot as it is uploaded. It is made while it is read.
type object struct {
	io.Reader
	// size is how many bytes there are to read.
	size int64
}

// newObject returns the object of a snapshot for the recipients. database has the snapshot.
func newObject(facts protocol.EtcdSnapshotFacts, database io.Reader, recipients []string) (object, error) {
	keys, err := parse(recipients)
	if err != nil {
		return object{}, err
	}
	head, err := head(facts)
	if err != nil {
		return object{}, err
	}
	padding := (blockSize - facts.SizeBytes%blockSize) % blockSize
	tail := make([]byte, padding+endSize)
	archive := int64(len(head)) + facts.SizeBytes + int64(len(tail))
	encrypted, err := age.EncryptReader(io.MultiReader(bytes.NewReader(head), io.LimitReader(database, facts.SizeBytes), bytes.NewReader(tail)), keys...)
	if err != nil {
		return object{}, fmt.Errorf("encrypting: %w", err)
	}
	overhead, err := overhead(keys)
	if err != nil {
		return object{}, err
	}
	chunks := (archive + chunkSize - 1) / chunkSize
	return object{encrypted, overhead + archive + chunks*tagSize}, nil
}

func parse(recipients []string) ([]age.Recipient, error) {
	if len(recipients) == 0 || len(recipients) > protocol.MaxRecipients {
		return nil, fmt.Errorf("there are %d recipients, not 1 to %d: a snapshot leaves the host encrypted only", len(recipients), protocol.MaxRecipients)
	}
	var keys []age.Recipient
	for i, recipient := range recipients {
		key, err := age.ParseX25519Recipient(recipient)
		if err != nil {
			// age's error has the text, which may be an identity by mistake.
			return nil, fmt.Errorf("recipient %d is no public key of age, which begins with age1", i+1)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// head returns what is before the snapshot in the archive.
func head(facts protocol.EtcdSnapshotFacts) ([]byte, error) {
	about, err := json.MarshalIndent(facts, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding what the snapshot is: %w", err)
	}
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	header := func(suffix string, size int64) error {
		return archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: facts.ID + suffix, Size: size, Mode: 0o600, ModTime: facts.CompletedAt.Truncate(time.Second),
		})
	}
	if err := header(".json", int64(len(about))); err != nil {
		return nil, fmt.Errorf("writing the archive: %w", err)
	}
	if _, err := archive.Write(about); err != nil {
		return nil, fmt.Errorf("writing the archive: %w", err)
	}
	if err := header(".db", facts.SizeBytes); err != nil {
		return nil, fmt.Errorf("writing the archive: %w", err)
	}
	return out.Bytes(), nil
}

// overhead returns how many bytes are before the first chunk. It depends on the recipients
// alone.
func overhead(keys []age.Recipient) (int64, error) {
	empty, err := age.EncryptReader(bytes.NewReader(nil), keys...)
	if err != nil {
		return 0, fmt.Errorf("encrypting: %w", err)
	}
	n, err := io.Copy(io.Discard, empty)
	if err != nil {
		return 0, fmt.Errorf("encrypting: %w", err)
	}
	// An empty archive is one chunk.
	return n - tagSize, nil
}
