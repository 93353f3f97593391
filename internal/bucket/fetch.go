package bucket

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Sealed is an object whose metadata the manager has sealed.
type Sealed struct {
	// Name begins with the folder.
	Name      string
	SizeBytes int64
	// Snapshot is what the object has to contain. Its own SizeBytes is unknown.
	Snapshot infrav1.HostEtcdSnapshot
}

// Sealed returns the object of a host's snapshot. It returns an error unless the seal is right.
func (b *Bucket) Sealed(ctx context.Context, id, host string) (Sealed, error) {
	name := b.Name(id, host)
	if err := b.check(name); err != nil {
		return Sealed{}, err
	}
	head, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.bucket, Key: &name})
	if err != nil {
		return Sealed{}, fmt.Errorf("reading the metadata of %s: %w", name, plain(err))
	}
	facts := lowerKeys(head.Metadata)
	if err := b.checkSeal(name, facts); err != nil {
		return Sealed{}, err
	}
	return Sealed{Name: name, SizeBytes: aws.ToInt64(head.ContentLength), Snapshot: snapshotOf(id, facts)}, nil
}

// Head returns the first bytes of an object, at most n.
func (b *Bucket) Head(ctx context.Context, name string, n int64) ([]byte, error) {
	if err := b.check(name); err != nil {
		return nil, err
	}
	part, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.bucket, Key: &name, Range: aws.String(fmt.Sprintf("bytes=0-%d", n-1))})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, plain(err))
	}
	defer func() { _ = part.Body.Close() }() // it was only read
	// A storage that ignores the range sends everything.
	data, err := io.ReadAll(io.LimitReader(part.Body, n))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, plain(err))
	}
	return data, nil
}

// GrantDownload permits one GET of the object that begins before the time is over.
func (b *Bucket) GrantDownload(ctx context.Context, name string, lasts time.Duration) (Grant, error) {
	if err := b.check(name); err != nil {
		return Grant{}, err
	}
	signed, err := s3.NewPresignClient(b.client).PresignGetObject(ctx, &s3.GetObjectInput{Bucket: &b.bucket, Key: &name}, s3.WithPresignExpires(lasts))
	if err != nil {
		return Grant{}, fmt.Errorf("signing the download of %s: %w", name, err)
	}
	return Grant{URL: signed.URL, TrustBundle: b.trustBundle}, nil
}

// lowerKeys returns metadata with keys in lower case, which storages may change.
func lowerKeys(metadata map[string]string) map[string]string {
	facts := map[string]string{}
	for key, value := range metadata {
		facts[strings.ToLower(key)] = value
	}
	return facts
}
