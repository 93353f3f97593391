package tunnel

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// A relay has a small buffer while it waits, so that idle streams cost little, and a
// large one while there is more data than the small one holds.
const (
	smallBuffer = 2 << 10
	largeBuffer = 32 << 10
)

// buffers are the large ones that no relay uses.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[]byte {
	if buffer, ok := b.pool.Get().(*[]byte); ok {
		return buffer
	}
	buffer := make([]byte, largeBuffer)
	return &buffer
}

// errSink says that a relay ended because its data could not be written.
var errSink = errors.New("writing failed")

// relay copies until the source ends. It returns nil at its orderly end.
func (b *buffers) relay(to io.Writer, from io.Reader) error {
	small := make([]byte, smallBuffer)
	var large *[]byte
	defer func() {
		if large != nil {
			b.pool.Put(large)
		}
	}()
	for {
		buffer := small
		if large != nil {
			buffer = *large
		}
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return fmt.Errorf("%w: %w", errSink, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case large == nil && n == smallBuffer:
			large = b.get()
		case large != nil && n < smallBuffer:
			b.pool.Put(large)
			large = nil
		}
	}
}
