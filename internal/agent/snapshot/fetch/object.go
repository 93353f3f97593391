package fetch

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// maxAboutBytes bounds what an object says of itself.
	maxAboutBytes = 16 << 10
	// maxTailBytes bounds what follows the snapshot in an archive.
	maxTailBytes = 64 << 10
)

// content is an object whose snapshot comes next.
type content struct {
	facts   protocol.EtcdSnapshotFacts
	archive *tar.Reader
	// plain is the decrypted object.
	plain io.Reader
}

// open reads an object up to the snapshot. It returns an error for one that does not say of
// itself that it has the snapshot that is wanted.
func open(object io.Reader, fileKey []byte, want protocol.EtcdRestore) (*content, error) {
	plain, err := age.Decrypt(object, age.NewInjectedFileKeyIdentity(fileKey))
	if err != nil {
		return nil, fmt.Errorf("decrypting: %w", err)
	}
	c := &content{archive: tar.NewReader(plain), plain: plain}
	if err := c.next(want.SnapshotID+".json", maxAboutBytes); err != nil {
		return nil, err
	}
	if err := json.NewDecoder(io.LimitReader(c.archive, maxAboutBytes)).Decode(&c.facts); err != nil {
		return nil, fmt.Errorf("reading what the snapshot is: %w", err)
	}
	if c.facts.ID != want.SnapshotID || c.facts.SHA256 != want.SHA256 {
		return nil, fmt.Errorf("the object has another snapshot, with the SHA-256 %.64q, and the restore was confirmed for %s", c.facts.SHA256, want.SHA256)
	}
	if c.facts.Cluster.Namespace != want.Cluster.Namespace || c.facts.Cluster.Name != want.Cluster.Name {
		return nil, fmt.Errorf("the object has a snapshot of the cluster %.253s/%.63s", c.facts.Cluster.Namespace, c.facts.Cluster.Name)
	}
	if c.facts.SizeBytes < 1 || c.facts.SizeBytes > protocol.MaxUploadBytes {
		return nil, fmt.Errorf("the object says that its snapshot has %d bytes", c.facts.SizeBytes)
	}
	if err := c.next(want.SnapshotID+".db", c.facts.SizeBytes); err != nil {
		return nil, err
	}
	return c, nil
}

// next goes to the next file of the archive, which must have this name.
func (c *content) next(name string, maxBytes int64) error {
	entry, err := c.archive.Next()
	if err != nil {
		return fmt.Errorf("looking for %s in the object: %w", name, err)
	}
	if entry.Name != name || entry.Typeflag != tar.TypeReg || entry.Size > maxBytes {
		return fmt.Errorf("the object has the file %.64q of %d bytes, not %s of at most %d", entry.Name, entry.Size, name, maxBytes)
	}
	return nil
}

// write writes the snapshot, and returns nil only if the object ends with it: the last bytes
// of an object authenticate that nothing is missing.
func (c *content) write(to io.Writer) error {
	if _, err := io.Copy(to, c.archive); err != nil {
		return fmt.Errorf("reading the snapshot: %w", err)
	}
	if _, err := c.archive.Next(); !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("the object has more than a snapshot"), err)
	}
	n, err := io.Copy(io.Discard, io.LimitReader(c.plain, maxTailBytes+1))
	if err != nil {
		return fmt.Errorf("reading the end of the object: %w", err)
	}
	if n > maxTailBytes {
		return errors.New("the object has more than a snapshot")
	}
	return nil
}
