package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/storage"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// attemptTimeout bounds an attempt in all. It is for the slowest lines; a storage that has
	// fallen silent is given up long before.
	attemptTimeout = 6 * time.Hour
	// progressBytes must arrive within a minute.
	progressBytes = 1 << 10
)

var errStalled = errors.New("the storage sent nothing for a minute")

// Store has the host's snapshots; see snapshot.Store.
type Store interface {
	// Verify returns what a snapshot is, or an error unless it is complete and undamaged.
	Verify(ctx context.Context, id string) (path string, facts protocol.EtcdSnapshotFacts, err error)
	// Add keeps a snapshot if write returns nil and has written what the facts say.
	Add(ctx context.Context, facts protocol.EtcdSnapshotFacts, write func(io.Writer) error) error
}

// Manager permits downloads.
type Manager interface {
	EtcdSnapshotFetch(ctx context.Context, request protocol.EtcdSnapshotFetchRequest) (protocol.EtcdSnapshotFetchGrant, error)
}

// Fetcher downloads snapshots.
type Fetcher struct {
	Store Store
	// Manager returns the manager in use.
	Manager func() Manager
	// Dial connects; nil means the system's dialler.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Relay connects to the storage through the manager, for the restore with that ID.
	Relay func(ctx context.Context, operation string) (net.Conn, error)
	Log   *slog.Logger
}

// Fetch makes one attempt to download the snapshot of a restore, unless the host has it. An
// attempt that was interrupted leaves nothing that counts; the next one begins anew. It uses
// little memory, whatever the size of the snapshot.
func (f *Fetcher) Fetch(ctx context.Context, operation string, want protocol.EtcdRestore) error {
	if _, facts, err := f.Store.Verify(ctx, want.SnapshotID); err == nil && facts.SHA256 == want.SHA256 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTimeout, fmt.Errorf("it was not complete within %s", attemptTimeout))
	defer cancel()
	grant, err := f.Manager().EtcdSnapshotFetch(ctx, protocol.EtcdSnapshotFetchRequest{ID: operation})
	if err != nil {
		return err
	}
	if grant.SizeBytes < 1 || grant.SizeBytes > protocol.MaxUploadBytes || len(grant.FileKey) != protocol.FileKeyBytes {
		return fmt.Errorf("the manager has sent no key, or an object of %d bytes", grant.SizeBytes)
	}
	f.Log.Info("Downloading a snapshot of etcd", "snapshot", want.SnapshotID, "object", grant.Object, "bytes", grant.SizeBytes)
	err = f.get(ctx, operation, grant, func(object io.Reader) error {
		content, err := open(object, grant.FileKey, want)
		if err != nil {
			return err
		}
		return f.Store.Add(ctx, content.facts, content.write)
	})
	if err != nil {
		return err
	}
	f.Log.Info("Downloaded a snapshot of etcd", "snapshot", want.SnapshotID, "sha256", want.SHA256)
	return nil
}

// get reads the object. Its errors have no URL, which contains the permission.
func (f *Fetcher) get(ctx context.Context, operation string, grant protocol.EtcdSnapshotFetchGrant, read func(io.Reader) error) error {
	client, err := f.client(operation, grant)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, grant.URL, http.NoBody)
	if err != nil {
		return errors.New("the manager has sent no valid URL")
	}
	if request.URL.Scheme != "https" {
		return errors.New("the manager has sent a URL that is not https")
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking %s for the snapshot: %w", request.URL.Host, plain(ctx, err))
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s refuses the snapshot: %s", request.URL.Host, storage.Reason(response))
	}
	body := download.NewBody(response.Body, grant.SizeBytes, progressBytes, func() { cancel(errStalled) })
	defer body.Stop()
	if err := read(body); err != nil {
		return fmt.Errorf("downloading the snapshot from %s: %w", request.URL.Host, plain(ctx, err))
	}
	return nil
}

// client returns a client of the storage for one request.
func (f *Fetcher) client(operation string, grant protocol.EtcdSnapshotFetchGrant) (*http.Client, error) {
	if !grant.Relay {
		return storage.NewClient(f.Dial, grant.TrustBundle)
	}
	return storage.NewRelayedClient(func(ctx context.Context) (net.Conn, error) { return f.Relay(ctx, operation) }, grant.TrustBundle)
}

// plain returns an error without the URL, and the reason for an end of the context.
func plain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
