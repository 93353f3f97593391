package upload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/pace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/storage"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// attemptTimeout bounds an attempt in all. It is for the slowest lines; a storage that has fallen
// silent is given up long before.
const attemptTimeout = 6 * time.Hour

// Source has snapshots.
type Source interface {
	// Open opens an undamaged snapshot; the caller must close the file.
	Open(ctx context.Context, id string) (protocol.EtcdSnapshotFacts, *os.File, error)
}

// Manager permits uploads.
type Manager interface {
	EtcdSnapshotGrant(ctx context.Context, request protocol.EtcdSnapshotGrantRequest) (protocol.EtcdSnapshotGrant, error)
}

// Uploader uploads snapshots. It shows the storage no certificate of the host, and honours the
// environment's proxies.
type Uploader struct {
	Source Source
	// Manager returns the manager in use.
	Manager func() Manager
	// Dial connects; nil means the system's dialler.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Relay connects to the storage through the manager, for the upload of that snapshot.
	Relay func(ctx context.Context, snapshot string) (net.Conn, error)
	// Copier copies to folders.
	Copier *Copier
	Log    *slog.Logger
}

// Upload makes one attempt to upload a snapshot that the host has. It uses little memory,
// whatever the size of the snapshot.
func (u *Uploader) Upload(ctx context.Context, want protocol.EtcdSnapshotUpload) (protocol.EtcdSnapshotObject, error) {
	done := protocol.EtcdSnapshotObject{ID: want.ID}
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTimeout, fmt.Errorf("it was not complete within %s", attemptTimeout))
	defer cancel()
	facts, file, err := u.Source.Open(ctx, want.ID)
	if err != nil {
		return done, err
	}
	defer func() { _ = file.Close() }() // it was only read
	o, err := newObject(facts, pace.NewReader(ctx, file), want.Recipients)
	if err != nil {
		return done, err
	}
	if want.Folder != nil {
		return u.copy(ctx, want, filepath.Base(filepath.Dir(file.Name())), o)
	}
	grant, err := u.Manager().EtcdSnapshotGrant(ctx, protocol.EtcdSnapshotGrantRequest{ID: want.ID, SizeBytes: o.size})
	if err != nil {
		return done, err
	}
	u.Log.Info("Uploading a snapshot of etcd", "snapshot", want.ID, "object", grant.Object, "bytes", o.size)
	hash := sha256.New()
	body := &progress{Reader: io.TeeReader(o, hash), size: o.size, log: u.Log.With("snapshot", want.ID)}
	if err := u.put(ctx, want.ID, grant, body, o.size); err != nil {
		return done, err
	}
	done.Object, done.SizeBytes, done.SHA256 = grant.Object, o.size, hex.EncodeToString(hash.Sum(nil))
	u.Log.Info("Uploaded a snapshot of etcd", "snapshot", want.ID, "object", done.Object, "bytes", done.SizeBytes, "sha256", done.SHA256)
	return done, nil
}

// copy makes one attempt to have the object in the folder of its cluster, which is named as on the
// host.
func (u *Uploader) copy(ctx context.Context, want protocol.EtcdSnapshotUpload, cluster string, o object) (protocol.EtcdSnapshotObject, error) {
	u.Log.Info("Copying a snapshot of etcd", "snapshot", want.ID, "folder", want.Folder.Path, "bytes", o.size)
	o.Reader = &progress{Reader: o.Reader, size: o.size, log: u.Log.With("snapshot", want.ID)}
	file := u.Copier.copy(ctx, *want.Folder, cluster, want.ID, o)
	done := protocol.EtcdSnapshotObject{ID: want.ID, Object: file.path, SizeBytes: o.size, SHA256: file.sha256}
	if file.err != nil {
		return done, file.err
	}
	u.Log.Info("Copied a snapshot of etcd", "snapshot", want.ID, "object", done.Object, "bytes", done.SizeBytes, "sha256", done.SHA256)
	return done, nil
}

// put sends the object. Its errors have no URL, which contains the permission.
func (u *Uploader) put(ctx context.Context, id string, grant protocol.EtcdSnapshotGrant, body io.Reader, size int64) error {
	client, err := u.client(id, grant)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := download.NewBody(body, size, 1, func() { cancel(errStalled) })
	defer watched.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, grant.URL, watched)
	if err != nil {
		return errors.New("the manager has sent no valid URL")
	}
	if request.URL.Scheme != "https" {
		return errors.New("the manager has sent a URL that is not https")
	}
	request.ContentLength = size
	for key, value := range grant.Headers {
		request.Header.Set(key, value)
	}
	// A storage that refuses the snapshot says so before it is sent, instead of closing the connection
	// in the midst of it (RFC 9110, section 10.1.1).
	request.Header.Set("Expect", "100-continue")
	response, err := client.Do(request)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return fmt.Errorf("sending the snapshot to %s: %w", request.URL.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s refuses the snapshot: %s", request.URL.Host, storage.Reason(response))
	}
	return nil
}

// client returns a client of the storage for one request.
func (u *Uploader) client(id string, grant protocol.EtcdSnapshotGrant) (*http.Client, error) {
	if !grant.Relay {
		return storage.NewClient(u.Dial, grant.TrustBundle)
	}
	return storage.NewRelayedClient(func(ctx context.Context) (net.Conn, error) { return u.Relay(ctx, id) }, grant.TrustBundle)
}

var errStalled = errors.New("the storage took nothing for a minute")

// progress logs each tenth of a large upload.
type progress struct {
	io.Reader
	size, read int64
	log        *slog.Logger
}

// logged is the size from which on the progress of an upload is logged.
const logged = 32 << 20

func (p *progress) Read(buffer []byte) (int, error) {
	n, err := p.Reader.Read(buffer)
	before := p.read * 10 / p.size
	p.read += int64(n)
	if after := p.read * 10 / p.size; after != before && p.size >= logged {
		p.log.Info("Uploading a snapshot of etcd", "percent", after*10)
	}
	return n, err
}
