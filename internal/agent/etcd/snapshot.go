package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"
)

const (
	// snapshotPath is the method Snapshot of etcd's service Maintenance.
	snapshotPath = "/etcdserverpb.Maintenance/Snapshot"
	// pageSize divides the size of every database.
	pageSize = 512
)

// ErrDamaged is wrapped by the error of a snapshot whose content is not what the member
// sent.
var ErrDamaged = errors.New("the snapshot is damaged")

// Info describes a snapshot.
type Info struct {
	// Bytes is the size of the snapshot with the digest at its end.
	Bytes int64
	// SHA256 is the digest of the database in it, in lower-case hex.
	SHA256 string
	// FileSHA256 is the digest of the whole snapshot, in lower-case hex.
	FileSHA256 string
	// Version is the storage version of the database, such as 3.6.0; blank before etcd 3.6.
	Version string
}

// Save writes a snapshot of the member's database to w, as `etcdctl snapshot save` does:
// the database, then its SHA-256 as 32 bytes. It verifies the digest, and that the member
// has sent all. What was written before an error is useless. Save needs little memory,
// however large the database is, and as much time as w does; end it by ctx.
func Save(ctx context.Context, o Options, w io.Writer) (Info, error) {
	info, err := save(ctx, o, w)
	if err != nil {
		return Info{}, fmt.Errorf("saving a snapshot of etcd: %w", errors.Join(context.Cause(ctx), err))
	}
	return info, nil
}

func save(ctx context.Context, o Options, w io.Writer) (Info, error) {
	target, err := url.Parse(o.Endpoint)
	if err != nil {
		return Info{}, err
	}
	transport := o.transport()
	defer transport.CloseIdleConnections()
	// The request is one empty message.
	body := bytes.NewReader(make([]byte, frameHeader))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.JoinPath(snapshotPath).String(), body)
	if err != nil {
		return Info{}, err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Info{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "application/grpc") {
		return Info{}, fmt.Errorf("the member answers with HTTP %d, not with gRPC", response.StatusCode)
	}
	received := &receiver{out: w, sum: sha256.New()}
	if err := readMessages(response.Body, received.message); err != nil {
		return Info{}, err
	}
	// A stream that ends early has no status, or one other than 0.
	if status := status(response); status != "0" {
		return Info{}, fmt.Errorf("the member ends with gRPC status %q: %.256q", status, message(response))
	}
	return received.finish()
}

// status is in the trailer, or in the header of an answer without messages.
func status(r *http.Response) string {
	if status := r.Trailer.Get("Grpc-Status"); status != "" {
		return status
	}
	return r.Header.Get("Grpc-Status")
}

func message(r *http.Response) string {
	if text := r.Trailer.Get("Grpc-Message"); text != "" {
		return text
	}
	return r.Header.Get("Grpc-Message")
}

// receiver writes the parts of a snapshot and computes the digest of all but its end,
// which is the digest that the member computed.
type receiver struct {
	out  io.Writer
	sum  hash.Hash
	info Info
	// end are the last bytes that were received, at most sha256.Size.
	end []byte
	// remaining is how much is to come, as the member says.
	remaining uint64
}

func (r *receiver) message(data []byte) error {
	part, err := decode(data)
	if err != nil {
		return err
	}
	if part.version != "" {
		r.info.Version = part.version
	}
	r.remaining = part.remaining
	if _, err := r.out.Write(part.blob); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	r.info.Bytes += int64(len(part.blob))
	r.end = append(r.end, part.blob...)
	if excess := len(r.end) - sha256.Size; excess > 0 {
		r.sum.Write(r.end[:excess])
		r.end = append(r.end[:0], r.end[excess:]...)
	}
	return nil
}

// finish returns an error unless the snapshot is complete and has the member's digest.
func (r *receiver) finish() (Info, error) {
	if r.remaining != 0 {
		return Info{}, fmt.Errorf("%w: it ends %d bytes too early", ErrDamaged, r.remaining)
	}
	if r.info.Bytes <= sha256.Size || r.info.Bytes%pageSize != sha256.Size {
		return Info{}, fmt.Errorf("%w: it has %d bytes, which is no database and its SHA-256", ErrDamaged, r.info.Bytes)
	}
	if sum := r.sum.Sum(nil); !bytes.Equal(sum, r.end) {
		return Info{}, fmt.Errorf("%w: its SHA-256 is %x, and the member computed %x", ErrDamaged, sum, r.end)
	}
	r.info.SHA256 = hex.EncodeToString(r.end)
	r.sum.Write(r.end)
	r.info.FileSHA256 = hex.EncodeToString(r.sum.Sum(nil))
	return r.info, nil
}
