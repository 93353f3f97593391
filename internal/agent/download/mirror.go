package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

// Limits of a request to a mirror.
const (
	connectTimeout   = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	headerTimeout    = 30 * time.Second
	// requestTimeout bounds a request in all. The next one continues.
	requestTimeout = 2 * time.Hour
	maxHeaderBytes = 32 << 10
	maxRedirects   = 5
	// mirrorStep is what a mirror must send each minute: a slower one has no chance
	// against the next source.
	mirrorStep = 64 << 10
)

// Mirror downloads files from http and https URLs. It shows servers no certificate of the
// host, and trusts the certificate authorities of the operating system. It honours the
// environment's proxies. It is safe for concurrent use.
type Mirror struct{ client *http.Client }

// NewMirror returns a Mirror. dial connects; nil means the system's dialler.
func NewMirror(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Mirror {
	if dial == nil {
		dial = tcp.Dialer(connectTimeout).DialContext
	}
	return &Mirror{client: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dial, TLSHandshakeTimeout: handshakeTimeout,
			ResponseHeaderTimeout: headerTimeout, MaxResponseHeaderBytes: maxHeaderBytes,
			// The bytes are pinned as they are.
			DisableCompression: true,
			// One request fetches everything.
			DisableKeepAlives: true,
		},
		CheckRedirect: checkRedirect,
	}}
}

// checkRedirect refuses to leave https: a request over http could be redirected anywhere.
func checkRedirect(next *http.Request, former []*http.Request) error {
	if len(former) > maxRedirects {
		return fmt.Errorf("it redirected more than %d times", maxRedirects)
	}
	if last := former[len(former)-1]; last.URL.Scheme == "https" && next.URL.Scheme != "https" {
		return fmt.Errorf("it redirected from https to %s", next.URL.Scheme)
	}
	return nil
}

// Wanted is what is to be downloaded.
type Wanted struct {
	// URL of the file.
	URL string
	// Size of the file. A server that says or sends another one is refused.
	Size int64
	// Offset is where the download continues; 0 means at the beginning.
	Offset int64
	// ETag is the entity tag of the file that the first part is of; blank if unknown.
	ETag string
}

// Get downloads a file, and calls save if the server has it: from is the position of the
// body in the file, 0 or Offset, and etag is the file's entity tag, blank if it has none
// to continue by. Get does not verify the content.
func (m *Mirror) Get(ctx context.Context, want Wanted, save func(from int64, etag string, body io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limited, end := context.WithTimeout(ctx, requestTimeout)
	defer end()
	err := m.get(limited, want, save, func() { cancel(ErrStalled) })
	if err != nil && errors.Is(context.Cause(ctx), ErrStalled) {
		return ErrStalled
	}
	return err
}

func (m *Mirror) get(ctx context.Context, want Wanted, save func(int64, string, io.Reader) error, stalled func()) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, want.URL, http.NoBody)
	if err != nil {
		return errors.New("it is no URL: correct the source")
	}
	request.Header = Range(want.Offset, want.ETag)
	response, err := m.client.Do(request)
	if err != nil {
		return plain(err)
	}
	defer func() { _ = response.Body.Close() }()
	if !slices.Contains(Statuses(), response.StatusCode) {
		return fmt.Errorf("it answers with HTTP %d: put the bundle there", response.StatusCode)
	}
	if response.Header.Get("Content-Encoding") != "" {
		return errors.New("it answers with an encoded bundle: have it send the file as it is")
	}
	from, size, err := Part(response, want.Offset, want.Size)
	if err != nil {
		return err
	}
	if size >= 0 && size != want.Size {
		return fmt.Errorf("it has a file of %d bytes, and the pinned bundle has %d: put the pinned bundle there", size, want.Size)
	}
	body := NewBody(response.Body, want.Size-from, mirrorStep, stalled)
	defer body.Stop()
	return plain(save(from, strongETag(response), body))
}

// strongETag returns the entity tag of an answer, or "" for one that stands for other
// bytes too (RFC 9110, section 8.8.3).
func strongETag(r *http.Response) string {
	if etag := r.Header.Get("ETag"); len(etag) > 1 && len(etag) <= maxQuoted && etag[0] == '"' {
		return etag
	}
	return ""
}

// plain leaves out of an error what changes with each attempt, and the URL, which may have
// a secret in it.
func plain(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", operation.Op, operation.Err)
	}
	return err
}
