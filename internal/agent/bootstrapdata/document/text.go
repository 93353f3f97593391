package document

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
)

// MaxDocument limits a document after decompression, in bytes. A Secret holds at
// most 1 MiB, but gzip data in it may grow.
const MaxDocument = 16 << 20

// Text decompresses a document if needed, and returns an error unless it is UTF-8.
func Text(data []byte) (string, error) {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		unpacked, err := Gunzip(data, MaxDocument)
		if err != nil {
			return "", bootstrapdata.ErrorAt(0, "decompressing the document: %v", err)
		}
		data = unpacked
	}
	switch {
	case len(data) > MaxDocument:
		return "", bootstrapdata.ErrorAt(0, "the document has %d bytes, more than the %d allowed", len(data), MaxDocument)
	case len(bytes.TrimSpace(data)) == 0:
		return "", bootstrapdata.ErrorAt(0, "the document is empty")
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return "", bootstrapdata.ErrorAt(1, "the document starts with a byte-order mark, which hides its header; save it as UTF-8 without one")
	}
	if !utf8.Valid(data) {
		line := 1
		for rest := data; len(rest) > 0; {
			r, n := utf8.DecodeRune(rest)
			if r == utf8.RuneError && n == 1 {
				break
			}
			if r == '\n' {
				line++
			}
			rest = rest[n:]
		}
		return "", bootstrapdata.ErrorAt(line, "the document is not UTF-8")
	}
	return string(data), nil
}

var errTooLarge = errors.New("it grows beyond the size allowed")

// Gunzip decompresses data. More than limit bytes are an error.
func Gunzip(data []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("reading the gzip header: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("gzip data is truncated or damaged: %w", err)
	}
	if int64(len(out)) > limit {
		return nil, errTooLarge
	}
	return out, r.Close()
}
