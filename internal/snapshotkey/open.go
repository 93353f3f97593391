package snapshotkey

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bucket"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

const (
	// secretKey is the key of the Secret with the identity.
	secretKey = "identity"
	// maxIdentityBytes bounds the file of an identity.
	maxIdentityBytes = 16 << 10
	// headBytes is what is read of an object: the header, and the first chunk of 64 KiB.
	headBytes = 96 << 10
	// maxAboutBytes bounds what an object says of itself.
	maxAboutBytes = 16 << 10
)

// Key is the key of one object.
type Key struct {
	Object bucket.Sealed
	// File is the file key of age. It must not be logged or stored.
	File []byte
}

// Open returns the key of an uploaded snapshot of the cluster. It reads the Secret of the
// identity from live. An error says what a person has to correct, and has nothing secret.
func Open(ctx context.Context, live client.Reader, b *bucket.Bucket, cluster client.ObjectKey, source infrav1.EtcdRestoreUpload) (Key, error) {
	identities, err := read(ctx, live, client.ObjectKey{Namespace: cluster.Namespace, Name: source.IdentityRef.Name})
	if err != nil {
		return Key{}, err
	}
	object, err := b.Sealed(ctx, source.ID, source.HostName)
	if err != nil {
		return Key{}, err
	}
	if object.SizeBytes > protocol.MaxUploadBytes || object.Snapshot.SHA256 == "" {
		return Key{}, fmt.Errorf("object %s has %d bytes and the SHA-256 %q: no host has uploaded that", object.Name, object.SizeBytes, object.Snapshot.SHA256)
	}
	head, err := b.Head(ctx, object.Name, headBytes)
	if err != nil {
		return Key{}, err
	}
	file, err := unwrap(head, identities)
	if err != nil {
		return Key{}, fmt.Errorf("opening object %s with Secret %s: %w", object.Name, source.IdentityRef.Name, err)
	}
	facts, err := about(head, file, source.ID)
	if err != nil {
		return Key{}, fmt.Errorf("reading what object %s is: %w", object.Name, err)
	}
	if facts.Cluster.Namespace != cluster.Namespace || facts.Cluster.Name != cluster.Name {
		return Key{}, fmt.Errorf("object %s has a snapshot of another cluster: somebody has replaced it", object.Name)
	}
	if facts.ID != source.ID || facts.SHA256 != object.Snapshot.SHA256 {
		return Key{}, fmt.Errorf("object %s has another snapshot than its seal says: somebody has replaced it", object.Name)
	}
	object.Snapshot.SizeBytes = facts.SizeBytes
	return Key{object, file}, nil
}

// read returns the identities in a Secret.
func read(ctx context.Context, live client.Reader, key client.ObjectKey) ([]age.Identity, error) {
	s := &corev1.Secret{}
	err := live.Get(ctx, key, s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading the identity: there is no Secret %s", key.Name)
	case err != nil:
		return nil, fmt.Errorf("reading the identity: getting Secret %s: %w", key.Name, err)
	}
	identities, err := age.ParseIdentities(io.LimitReader(bytes.NewReader(s.Data[secretKey]), maxIdentityBytes))
	if err != nil {
		// age's errors quote what they can't read.
		return nil, fmt.Errorf("reading the identity: the key %s of Secret %s is no file of age-keygen, with a line that begins with AGE-SECRET-KEY-1", secretKey, key.Name)
	}
	return identities, nil
}

// unwrap returns the file key of an object, of which head is the beginning.
func unwrap(head []byte, identities []age.Identity) ([]byte, error) {
	header, err := age.ExtractHeader(bytes.NewReader(head))
	if err != nil {
		return nil, errors.New("it is no file of age")
	}
	file, err := age.DecryptHeader(header, identities...)
	if _, isOther := errors.AsType[*age.NoIdentityMatchError](err); isOther {
		return nil, errors.New("the identity does not open it: the snapshot was encrypted for other recipients")
	}
	if err != nil || len(file) != protocol.FileKeyBytes {
		return nil, errors.New("its header is damaged")
	}
	return file, nil
}

// about returns what an object says of itself, in the first chunk, which is authenticated with
// the file key.
func about(head, file []byte, id string) (protocol.EtcdSnapshotFacts, error) {
	var facts protocol.EtcdSnapshotFacts
	plain, err := age.Decrypt(bytes.NewReader(head), age.NewInjectedFileKeyIdentity(file))
	if err != nil {
		return facts, errors.New("its beginning is damaged")
	}
	archive := tar.NewReader(plain)
	entry, err := archive.Next()
	if err != nil {
		return facts, errors.New("its beginning is damaged, or it is no archive")
	}
	if entry.Name != id+".json" || entry.Size > maxAboutBytes {
		return facts, fmt.Errorf("the archive does not begin with %s.json", id)
	}
	if err := json.NewDecoder(io.LimitReader(archive, maxAboutBytes)).Decode(&facts); err != nil {
		return facts, fmt.Errorf("%s.json is not of a snapshot", id)
	}
	return facts, nil
}
