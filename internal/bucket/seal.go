package bucket

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

const (
	// sealKey is the key of the seal in the metadata of an object.
	sealKey = "seal"
	// sealPurpose separates the key of seals from other uses of the same secret.
	sealPurpose = "elemental seal of etcd snapshots, version 1"
)

// sealer makes the seals of one cluster's objects. A seal proves that the manager has permitted
// the upload of a snapshot with this metadata: whoever can write into the bucket can't make
// one. It covers the name below the prefix, so that a bucket may be copied.
type sealer struct{ key []byte }

// newSealer derives the key of seals from the key of the cluster's authority of etcd, which
// exists as long as the cluster and moves with it. Without that key there are no seals.
func newSealer(authorityKey []byte) (*sealer, error) {
	if len(authorityKey) == 0 {
		return nil, nil
	}
	key, err := hkdf.Key(sha256.New, authorityKey, nil, sealPurpose, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of seals: %w", err)
	}
	return &sealer{key}, nil
}

// seal returns the seal of an object, in hex.
func (s *sealer) seal(object string, facts map[string]string) (string, error) {
	facts = maps.Clone(facts)
	delete(facts, sealKey)
	// Keys of a map are sorted.
	text, err := json.Marshal(struct {
		Object string
		Facts  map[string]string
	}{object, facts})
	if err != nil {
		return "", fmt.Errorf("sealing %s: %w", object, err)
	}
	mac := hmac.New(sha256.New, s.key)
	_, _ = mac.Write(text) // it never fails
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// sealed returns the metadata with its seal.
func (b *Bucket) sealed(name string, facts map[string]string) (map[string]string, error) {
	if b.sealer == nil {
		return facts, nil
	}
	seal, err := b.sealer.seal(b.withoutPrefix(name), facts)
	if err != nil {
		return nil, err
	}
	facts = maps.Clone(facts)
	if facts == nil {
		facts = map[string]string{}
	}
	facts[sealKey] = seal
	return facts, nil
}

// checkSeal returns an error unless the manager has sealed the metadata for this object.
func (b *Bucket) checkSeal(name string, facts map[string]string) error {
	if b.sealer == nil {
		return fmt.Errorf("the Secret of the cluster's authority of etcd has no tls.key, so it is unknown whether %s is genuine: restore by hand", name)
	}
	if facts[sealKey] == "" {
		return fmt.Errorf("object %s has no seal: an older version of the manager, or somebody else, has put it there; restore by hand if you trust it", name)
	}
	want, err := b.sealer.seal(b.withoutPrefix(name), facts)
	if err != nil {
		return err
	}
	if !hmac.Equal([]byte(want), []byte(facts[sealKey])) {
		return fmt.Errorf("the seal of object %s is wrong: somebody has changed or copied it, or it is of another cluster", name)
	}
	return nil
}

// withoutPrefix returns the part of a name that begins with the cluster's folder.
func (b *Bucket) withoutPrefix(name string) string { return strings.TrimPrefix(name, b.prefix) }
