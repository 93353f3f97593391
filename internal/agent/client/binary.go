package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// binaryTimeout is for the slowest lines; a server that has fallen silent is given up
	// long before.
	binaryTimeout = 2 * time.Hour
	// bundleTimeout is how long a change of the host's key may have to wait. The next
	// request for the bundle continues.
	bundleTimeout = 5 * time.Minute
)

// file is a file that the manager has.
type file struct {
	// name is a gerund, for errors.
	name, path, digest string
	offset, limit      int64
	timeout            time.Duration
}

// AgentBinary downloads the agent's binary with the given SHA-256 digest, in hex, from
// offset on. It calls save once for each server that it tries: from is the position of
// the body in the binary, 0 or offset, and size is the binary's size, -1 if unknown. The
// body is limited to protocol.MaxAgentBytes. AgentBinary does not verify the digest; the
// caller must.
func (c *Client) AgentBinary(ctx context.Context, digest string, offset int64, save func(from, size int64, body io.Reader) error) error {
	return c.download(ctx, file{
		name: "fetching the agent's binary", path: protocol.PathAgent, digest: digest, offset: offset, limit: protocol.MaxAgentBytes,
		timeout: binaryTimeout,
	}, save)
}

// Bundle is like AgentBinary for a bundle of Kubernetes with the given size. The body ends
// there. It also ends after some minutes, and the next call continues.
func (c *Client) Bundle(ctx context.Context, digest string, offset, size int64, save func(from int64, body io.Reader) error) error {
	return c.download(ctx, file{
		name: "fetching the bundle", path: protocol.PathBundle, digest: digest, offset: offset, limit: size, timeout: bundleTimeout,
	}, func(from, said int64, body io.Reader) error {
		if said >= 0 && said != size {
			return fmt.Errorf("the manager has a file of %d bytes, and the pinned bundle has %d: correct the pinned size", said, size)
		}
		return save(from, body)
	})
}

func (c *Client) download(ctx context.Context, f file, save func(from, size int64, body io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request := call{
		name: f.name, method: http.MethodGet, path: f.path, query: url.Values{"sha256": {f.digest}}, timeout: f.timeout,
		header: download.Range(f.offset, ""), accept: download.Statuses(),
	}
	err := c.call(ctx, request, func(r *http.Response) error {
		from, size, err := download.Part(r, f.offset, f.limit)
		if err != nil {
			return err
		}
		// The manager's other hosts may slow it down, so any byte counts.
		body := download.NewBody(r.Body, f.limit-from, 1, func() { cancel(download.ErrStalled) })
		defer body.Stop()
		return save(from, size, body)
	})
	if err != nil && errors.Is(context.Cause(ctx), download.ErrStalled) {
		return fmt.Errorf("%s: %w", f.name, download.ErrStalled)
	}
	return err
}
