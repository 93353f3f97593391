package api

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

const (
	// bodyTimeout bounds how long a body may take; a body has at most 256 KiB.
	bodyTimeout = 30 * time.Second
	// maxParameter bounds query parameters, in bytes.
	maxParameter = 128
)

// decode reads a JSON body of the usual size.
func decode[T any](w http.ResponseWriter, r *http.Request) (T, error) {
	return decodeUpTo[T](w, r, protocol.MaxRequestBytes, bodyTimeout)
}

// decodeUpTo reads a JSON body of at most limit bytes within a time. Unknown fields are ignored, as an agent may be newer than the
// manager.
func decodeUpTo[T any](w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) (T, error) {
	var value T
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return value, problem.New(http.StatusUnsupportedMediaType, problem.Blank, "The body must be application/json")
	}
	// A connection without deadlines returns an error; the size is bounded in any case.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within))
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	if err := body.Decode(&value); err != nil {
		return value, badBody(err)
	}
	if _, err := body.Token(); !errors.Is(err, io.EOF) {
		return value, badBody(err)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return value, nil
}

func badBody(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problem.New(http.StatusRequestEntityTooLarge, problem.Blank, "The body is too large")
	}
	return problem.BadRequest("The body is not one JSON value of the expected kind")
}

// parameter returns a query parameter.
func parameter(r *http.Request, name string) (string, error) {
	value := r.URL.Query().Get(name)
	if len(value) > maxParameter {
		return "", problem.BadRequest("A parameter is too long")
	}
	// Without a copy, the value would keep the whole request line in memory.
	return strings.Clone(value), nil
}

// writeJSON answers with a value.
func writeJSON(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	// An error here means that the caller has disconnected.
	_ = json.NewEncoder(w).Encode(value)
	return nil
}
