package download

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

var (
	// ErrTooBig is the error of a file with more bytes than the caller allows.
	ErrTooBig = errors.New("it has more than the allowed number of bytes")
	// ErrNoSuchPart means that the server has no content from the offset on.
	ErrNoSuchPart = errors.New("it is shorter than what was fetched of it")
)

// maxQuoted bounds what an error quotes of a server, in bytes.
const maxQuoted = 80

// Part returns the position of an answer's body in the file, which is 0 or offset, and the
// file's size, -1 if unknown. The answer must have one of the statuses of Statuses. A file
// of more than limit bytes is refused.
func Part(r *http.Response, offset, limit int64) (from, size int64, err error) {
	size = r.ContentLength
	switch r.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable:
		// The first part does not belong to this file.
		return 0, 0, ErrNoSuchPart
	case http.StatusPartialContent:
		// RFC 9110 section 14.4: "bytes FIRST-LAST/SIZE".
		said := r.Header.Get("Content-Range")
		first, _, _ := strings.Cut(strings.TrimPrefix(said, "bytes "), "-")
		if begins, err := strconv.ParseInt(first, 10, 64); err != nil || begins != offset {
			return 0, 0, fmt.Errorf("the server sent the range %.*q, not the one from %d on", maxQuoted, said, offset)
		}
		from = offset
		if size >= 0 {
			size += offset
		}
	}
	if size > limit {
		return 0, 0, ErrTooBig
	}
	return from, size, nil
}

// Statuses are those that Part understands.
func Statuses() []int {
	return []int{http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable}
}

// Range returns the header that asks for a file from an offset on. With an entity tag, a
// server whose file has changed sends all of it.
func Range(offset int64, etag string) http.Header {
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		if etag != "" {
			header.Set("If-Range", etag)
		}
	}
	return header
}
