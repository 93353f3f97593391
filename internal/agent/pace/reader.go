package pace

import (
	"context"
	"io"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// rate is how many bytes a second a Reader returns at most: half a gigabit.
const rate = 64 << 20

// Reader limits the rate at which a file is read.
type Reader struct {
	ctx   context.Context
	from  io.Reader
	since time.Time
	read  int
}

// NewReader returns a Reader. A Read ends with ctx.
func NewReader(ctx context.Context, from io.Reader) *Reader {
	return &Reader{ctx: ctx, from: from, since: time.Now()}
}

// Read implements io.Reader.
func (r *Reader) Read(data []byte) (int, error) {
	n, err := r.from.Read(data)
	if r.read += n; err != nil || r.read < part {
		return n, err
	}
	least := time.Duration(r.read) * time.Second / rate
	err = retry.System{}.Wait(r.ctx, least-time.Since(r.since))
	r.read, r.since = 0, time.Now()
	return n, err
}
