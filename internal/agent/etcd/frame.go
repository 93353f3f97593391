package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// frameHeader is the size of what precedes a message of gRPC: one byte that says whether
	// it is compressed, and its length in four bytes, big-endian.
	frameHeader = 5
	// maxMessage bounds a message, in bytes. etcd sends parts of 32 KiB.
	maxMessage = 1 << 20
)

// readMessages calls handle with each message of a stream. The message is valid during the
// call only.
func readMessages(stream io.Reader, handle func([]byte) error) error {
	var header [frameHeader]byte
	var buffer []byte
	for {
		if _, err := io.ReadFull(stream, header[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a message: %w", err)
		}
		size := binary.BigEndian.Uint32(header[1:])
		switch {
		case header[0] != 0:
			return errors.New("the member sends compressed messages, which nobody asked for")
		case size > maxMessage:
			return fmt.Errorf("the member sends a message of %d bytes", size)
		}
		if int64(cap(buffer)) < int64(size) {
			buffer = make([]byte, size)
		}
		if _, err := io.ReadFull(stream, buffer[:size]); err != nil {
			return fmt.Errorf("reading a message: %w", err)
		}
		if err := handle(buffer[:size]); err != nil {
			return err
		}
	}
}

// part is a message SnapshotResponse. blob refers to the decoded message.
type part struct {
	remaining uint64
	blob      []byte
	version   string
}

// Fields of SnapshotResponse, and the wire types of protobuf.
const (
	fieldRemaining = 2
	fieldBlob      = 3
	fieldVersion   = 4

	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

var errNoMessage = errors.New("the member sends a message that is not a part of a snapshot")

// decode decodes a SnapshotResponse. It skips fields that it does not know.
func decode(data []byte) (part, error) {
	var p part
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		if n <= 0 {
			return part{}, errNoMessage
		}
		data = data[n:]
		var number uint64
		var value []byte
		switch key & 7 {
		case wireVarint:
			if number, n = binary.Uvarint(data); n <= 0 {
				return part{}, errNoMessage
			}
		case wireBytes:
			size, m := binary.Uvarint(data)
			if m <= 0 || size > maxMessage || int(size) > len(data)-m {
				return part{}, errNoMessage
			}
			n = m + int(size)
			value = data[m:n]
		case wireFixed64:
			n = 8
		case wireFixed32:
			n = 4
		default:
			return part{}, errNoMessage
		}
		if n > len(data) {
			return part{}, errNoMessage
		}
		data = data[n:]
		switch key {
		case fieldRemaining<<3 | wireVarint:
			p.remaining = number
		case fieldBlob<<3 | wireBytes:
			p.blob = value
		case fieldVersion<<3 | wireBytes:
			p.version = string(value)
		}
	}
	return p, nil
}
