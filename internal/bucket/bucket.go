package bucket

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// requestTimeout bounds each request.
	requestTimeout = 20 * time.Second
	// maxPages bounds a list: a page has a thousand objects.
	maxPages = 10
)

// Bucket is the folder of a cluster in a bucket. Its methods may be called by several
// goroutines. The caller must call Close.
type Bucket struct {
	client *s3.Client
	http   *http.Client
	bucket string
	// folder begins with prefix; both end with "/", unless prefix is blank.
	prefix, folder string
	// sealer is nil if the key of the cluster's authority of etcd is unknown.
	sealer *sealer
	// trustBundle has the CA certificates of the storage, PEM; blank for public ones.
	trustBundle string
}

// Grant permits the upload of one object of one size, or its download.
type Grant struct {
	URL string
	// Header belongs to the permission: a request with other values is refused.
	Header map[string]string
	// TrustBundle has the CA certificates of the storage, PEM; blank for public ones.
	TrustBundle string
}

// Object is an object in the folder.
type Object struct {
	// Name begins with the folder.
	Name       string
	ID, Host   string
	SizeBytes  int64
	ModifiedAt time.Time
}

// Grant permits one PUT of the object with exactly that size, with the facts and their seal as
// its metadata, that begins before the time is over. The size and the metadata are part of the
// signature.
func (b *Bucket) Grant(ctx context.Context, name string, size int64, facts map[string]string, lasts time.Duration) (Grant, error) {
	if err := b.check(name); err != nil {
		return Grant{}, err
	}
	facts, err := b.sealed(name, facts)
	if err != nil {
		return Grant{}, err
	}
	signed, err := s3.NewPresignClient(b.client).PresignPutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: &name, ContentLength: &size, Metadata: facts,
	}, s3.WithPresignExpires(lasts))
	if err != nil {
		return Grant{}, fmt.Errorf("signing the upload of %s: %w", name, err)
	}
	header := map[string]string{}
	for key, values := range signed.SignedHeader {
		// The client of the upload sets both from the URL and the body.
		if !strings.EqualFold(key, "Host") && !strings.EqualFold(key, "Content-Length") {
			header[key] = strings.Join(values, ",")
		}
	}
	return Grant{URL: signed.URL, Header: header, TrustBundle: b.trustBundle}, nil
}

// List returns the snapshots in the folder. Objects with other names are left out.
func (b *Bucket) List(ctx context.Context) ([]Object, error) {
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.bucket, Prefix: &b.folder})
	var list []Object
	for range maxPages {
		if !pages.HasMorePages() {
			return list, nil
		}
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing %s in bucket %s: %w", b.folder, b.bucket, plain(err))
		}
		for _, o := range page.Contents {
			id, host, ok := protocol.ParseEtcdSnapshotObjectName(strings.TrimPrefix(aws.ToString(o.Key), b.folder))
			if ok {
				list = append(list, Object{
					Name: aws.ToString(o.Key), ID: id, Host: host, SizeBytes: aws.ToInt64(o.Size), ModifiedAt: aws.ToTime(o.LastModified),
				})
			}
		}
	}
	if pages.HasMorePages() {
		return nil, fmt.Errorf("listing %s in bucket %s: it has more than %d objects: remove what does not belong there", b.folder, b.bucket, maxPages*1000)
	}
	return list, nil
}

// Facts returns the metadata of an object that Grant was given. Keys are in lower case.
func (b *Bucket) Facts(ctx context.Context, name string) (map[string]string, error) {
	if err := b.check(name); err != nil {
		return nil, err
	}
	head, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.bucket, Key: &name})
	if err != nil {
		return nil, fmt.Errorf("reading the metadata of %s: %w", name, plain(err))
	}
	return lowerKeys(head.Metadata), nil
}

// Remove removes an object. One that does not exist is no error.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	if err := b.check(name); err != nil {
		return err
	}
	if _, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.bucket, Key: &name}); err != nil {
		return fmt.Errorf("removing %s: %w", name, plain(err))
	}
	return nil
}

// Close closes idle connections.
func (b *Bucket) Close() { b.http.CloseIdleConnections() }

// Name returns the name of the object of a host's snapshot.
func (b *Bucket) Name(id, host string) string {
	return b.folder + protocol.EtcdSnapshotObjectName(id, host)
}

// check refuses names outside of the folder.
func (b *Bucket) check(name string) error {
	if _, _, ok := protocol.ParseEtcdSnapshotObjectName(strings.TrimPrefix(name, b.folder)); !ok || !strings.HasPrefix(name, b.folder) {
		return fmt.Errorf("%.128q is no snapshot in %s", name, b.folder)
	}
	return nil
}

// plain returns an error without the addresses and the identifiers of requests, which differ
// each time: such a text in a condition would be written again and again.
func plain(err error) error {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return fmt.Errorf("the storage answers %s: %s", api.ErrorCode(), api.ErrorMessage())
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// newHTTPClient returns a client that trusts these CA certificates, or the system's. It
// follows no redirects: a signature is for one server.
func newHTTPClient(trustBundle string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if trustBundle != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(trustBundle)) {
			return nil, fmt.Errorf("%s has no certificate in PEM", authorityKey)
		}
	}
	return &http.Client{
		Timeout: requestTimeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, TLSHandshakeTimeout: requestTimeout / 2,
			ResponseHeaderTimeout: requestTimeout, IdleConnTimeout: requestTimeout, MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}
