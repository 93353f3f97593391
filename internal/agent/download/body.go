package download

import (
	"fmt"
	"io"
	"time"
)

// stallTimeout is how long a body may take for its next step.
const stallTimeout = time.Minute

// ErrStalled ends a download that is too slow.
var ErrStalled = fmt.Errorf("too little came within %s", stallTimeout)

// Body bounds a body: its size, and the time that it takes.
type Body struct {
	reader      io.Reader
	left        int64
	step, since int64
	watchdog    *time.Timer
}

// NewBody returns a Body of at most limit bytes. It calls stalled if step bytes take longer
// than a minute, until the end of the body: what follows it may take longer, such as the answer
// to an upload. The caller must call Stop.
func NewBody(reader io.Reader, limit, step int64, stalled func()) *Body {
	return &Body{reader: reader, left: max(limit, 0), step: step, watchdog: time.AfterFunc(stallTimeout, stalled)}
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	n, err := b.reader.Read(p[:min(int64(len(p)), b.left+1)])
	if int64(n) > b.left {
		return 0, ErrTooBig
	}
	b.left -= int64(n)
	if b.since += int64(n); b.since >= b.step {
		b.since = 0
		b.watchdog.Reset(stallTimeout)
	}
	if err != nil {
		b.Stop()
	}
	return n, err
}

// Stop ends the supervision.
func (b *Body) Stop() { b.watchdog.Stop() }
