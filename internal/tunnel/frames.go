package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// HTTP/2 frames, RFC 9113, sections 4.1 and 6.
const (
	frameHeaderLength = 9
	typePriority      = 2
	typeSettings      = 4
	typePushPromise   = 5
	typeContinuation  = 9
	settingLength     = 6
	settingFrameSize  = 5
)

var (
	errFirstFrame = errors.New("agent did not begin with its settings")
	errFrameType  = errors.New("agent sent a frame that the tunnel has no use for")
	errFrameSize  = errors.New("agent asked for larger frames than agreed")
)

// frames inspects what an agent sends, for what net/http does not bound: it logs every
// frame of an unknown type and a first frame of a wrong one, and allocates a buffer of the
// largest frame that the agent wishes for each stream.
type frames struct {
	// begun says that the first frame has begun.
	begun bool
	// head is the frame's header as far as it was read.
	head [frameHeaderLength]byte
	have int
	// remaining is how much of the frame's payload is to come.
	remaining int
	// setting is the entry of a SETTINGS frame as far as it was read.
	setting  [settingLength]byte
	partial  int
	settings bool
}

// inspect takes the next bytes of the connection.
func (f *frames) inspect(p []byte) error {
	for len(p) > 0 {
		if f.remaining > 0 {
			n := min(f.remaining, len(p))
			if err := f.payload(p[:n]); err != nil {
				return err
			}
			f.remaining -= n
			p = p[n:]
			continue
		}
		n := copy(f.head[f.have:], p)
		f.have += n
		p = p[n:]
		if f.have < frameHeaderLength {
			return nil
		}
		f.have, f.partial = 0, 0
		f.remaining = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
		kind := f.head[3]
		if kind > typeContinuation || kind == typePriority || kind == typePushPromise {
			return fmt.Errorf("%w: type %d", errFrameType, kind)
		}
		f.settings = kind == typeSettings
		if !f.begun && !f.settings {
			return fmt.Errorf("%w: type %d", errFirstFrame, kind)
		}
		f.begun = true
	}
	return nil
}

func (f *frames) payload(p []byte) error {
	for f.settings && len(p) > 0 {
		n := copy(f.setting[f.partial:], p)
		f.partial += n
		p = p[n:]
		if f.partial < settingLength {
			return nil
		}
		f.partial = 0
		value := binary.BigEndian.Uint32(f.setting[2:])
		if binary.BigEndian.Uint16(f.setting[:]) == settingFrameSize && value > frameSize {
			return fmt.Errorf("%w: %d bytes", errFrameSize, value)
		}
	}
	return nil
}
