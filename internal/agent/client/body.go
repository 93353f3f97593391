package client

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

func decode(response *http.Response, into any) error {
	return decodeUpTo(response, into, maxResponseBytes)
}

// decodeUpTo decodes an answer of at most limit bytes.
func decodeUpTo(response *http.Response, into any, limit int64) error {
	body, err := readAll(response, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decoding the server's answer: %w", err)
	}
	return nil
}

func readAll(response *http.Response, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading the server's answer: %w", err)
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("the server's answer has more than %d bytes", limit)
	}
	return body, nil
}

// withAdvice adds to err what a person can do about it.
func withAdvice(server *url.URL, err error) error {
	// The URL in a url.Error repeats what the caller knows.
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("connecting to %s: its certificate chains to none of the roots in the trust bundle: %w", server.Host, err)
	case errors.As(err, &name):
		return fmt.Errorf("connecting to %s: its certificate is for another name; use the URL that the manager publishes: %w", server.Host, err)
	case isExpired(err):
		return fmt.Errorf("connecting to %s: its certificate is not valid at this time; check the host's clock: %w", server.Host, err)
	}
	return fmt.Errorf("connecting to %s: %w", server.Host, err)
}
