package server

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// bodyTimeout bounds how long a body may take; the largest has 256 KiB.
	bodyTimeout = 30 * time.Second
	// maxParameter bounds parameters of the query.
	maxParameter = 128
)

// decode reads a JSON body. Unknown fields are ignored, as both sides of the
// protocol do, so that either may be the newer one.
func decode[T any](w http.ResponseWriter, r *http.Request) (T, error) {
	var value T
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return value, problem(http.StatusUnsupportedMediaType, blank, "The body must be application/json")
	}
	// Not every connection has deadlines; the size is bounded in any case.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, protocol.MaxRequestBytes))
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
		return problem(http.StatusRequestEntityTooLarge, blank, "The body is too large")
	}
	return errBadRequest("The body is not one JSON value of the expected kind")
}

// parameter returns a parameter of the query.
func parameter(r *http.Request, name string) (string, error) {
	value := r.URL.Query().Get(name)
	if len(value) > maxParameter {
		return "", errBadRequest("A parameter is too long")
	}
	// The value would keep the whole of the request's line.
	return strings.Clone(value), nil
}
