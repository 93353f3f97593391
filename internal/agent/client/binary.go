package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Limits of a download. The first is for the slowest lines; a server that has
// fallen silent is given up long before.
const (
	downloadTimeout = 2 * time.Hour
	stallTimeout    = time.Minute
)

// errStalled ends a download without progress.
var errStalled = fmt.Errorf("nothing came for %s", stallTimeout)

// AgentBinary downloads the agent's binary with the given SHA-256 digest, in hex, from
// offset on. It calls save once for each server that it tries: from is the position of
// the body in the binary, 0 or offset, and size is the binary's size, -1 if unknown. The
// body is limited to protocol.MaxAgentBytes. AgentBinary does not verify the digest; the
// caller must.
func (c *Client) AgentBinary(ctx context.Context, digest string, offset int64, save func(from, size int64, body io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request := call{
		name: "fetching the agent's binary", method: http.MethodGet, path: protocol.PathAgent,
		query: url.Values{"sha256": {digest}}, timeout: downloadTimeout,
		accept: []int{http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable},
	}
	if offset > 0 {
		request.header = http.Header{"Range": {fmt.Sprintf("bytes=%d-", offset)}}
	}
	err := c.call(ctx, request, func(r *http.Response) error {
		from, size, err := part(r, offset)
		if err != nil {
			return err
		}
		content := newBody(r.Body, protocol.MaxAgentBytes-from, func() { cancel(errStalled) })
		defer content.watchdog.Stop()
		return save(from, size, content)
	})
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return fmt.Errorf("fetching the agent's binary: %w", errStalled)
	}
	return err
}

// part returns the position of an answer's body in the binary, and the binary's size.
func part(r *http.Response, offset int64) (from, size int64, err error) {
	size = r.ContentLength
	switch r.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable:
		// The first part does not belong to this binary.
		return 0, 0, ErrNoSuchPart
	case http.StatusPartialContent:
		// RFC 9110 section 14.4: "bytes FIRST-LAST/SIZE".
		said := r.Header.Get("Content-Range")
		first, _, _ := strings.Cut(strings.TrimPrefix(said, "bytes "), "-")
		if begins, err := strconv.ParseInt(first, 10, 64); err != nil || begins != offset {
			return 0, 0, fmt.Errorf("the server sent the range %q of the agent's binary, not the one from %d on", printable(said), offset)
		}
		from = offset
		if size >= 0 {
			size += offset
		}
	}
	if size > protocol.MaxAgentBytes {
		return 0, 0, ErrTooBig
	}
	return from, size, nil
}

// ErrTooBig is a binary of more than protocol.MaxAgentBytes.
var ErrTooBig = fmt.Errorf("the agent's binary has more than %d bytes", protocol.MaxAgentBytes)

// ErrNoSuchPart means that the server has no content from the offset on.
var ErrNoSuchPart = errors.New("the agent's binary is shorter than what was fetched of it")

// body limits the size of a body and the time without progress.
type body struct {
	reader   io.Reader
	left     int64
	watchdog *time.Timer
}

// newBody returns a body, which calls stalled after stallTimeout without progress.
func newBody(reader io.Reader, most int64, stalled func()) *body {
	return &body{reader: reader, left: most, watchdog: time.AfterFunc(stallTimeout, stalled)}
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.reader.Read(p[:min(int64(len(p)), b.left+1)])
	if int64(n) > b.left {
		return 0, ErrTooBig
	}
	if n > 0 {
		b.left -= int64(n)
		b.watchdog.Reset(stallTimeout)
	}
	return n, err
}
