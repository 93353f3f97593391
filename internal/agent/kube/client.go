package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	requestTimeout   = 10 * time.Second
	maxResponseBytes = 4 << 20
)

// StatusError is returned if the API server does not answer with success.
type StatusError struct {
	Code    int
	Message string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the API server answers %d: %s", e.Code, e.Message)
}

// Get decodes an object into into. path contains the unescaped segments of its
// URL path.
func (a Access) Get(ctx context.Context, into any, path ...string) error {
	return a.List(ctx, nil, into, path...)
}

// List is Get with a query, such as a selector and a limit.
func (a Access) List(ctx context.Context, query url.Values, into any, path ...string) error {
	return a.request(ctx, http.MethodGet, query, nil, into, path)
}

// Create sends an object, and decodes the answer into into, which may be nil.
func (a Access) Create(ctx context.Context, object, into any, path ...string) error {
	return a.request(ctx, http.MethodPost, nil, object, into, path)
}

// Patch sends a JSON merge patch (RFC 7396) and decodes the result into into,
// which may be nil. If the patch contains a resourceVersion, the API server
// answers 409 for an object that changed since.
func (a Access) Patch(ctx context.Context, patch, into any, path ...string) error {
	return a.request(ctx, http.MethodPatch, nil, patch, into, path)
}

// Delete deletes an object if it still is the one that options, a metav1.DeleteOptions with
// preconditions, names: otherwise the API server answers 409.
func (a Access) Delete(ctx context.Context, options any, path ...string) error {
	return a.request(ctx, http.MethodDelete, nil, options, nil, path)
}

// request uses a new connection each time: kubelets renew their certificates, and
// requests are rare.
func (a Access) request(ctx context.Context, method string, query url.Values, object, into any, path []string) error {
	transport := &http.Transport{DialContext: a.Dial, TLSClientConfig: a.TLS, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: requestTimeout}
	var body io.Reader = http.NoBody
	if object != nil {
		data, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	parts := make([]string, len(path))
	for i, part := range path {
		parts[i] = url.PathEscape(part)
	}
	target := a.Server.JoinPath(parts...)
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	switch method {
	case http.MethodPatch:
		request.Header.Set("Content-Type", "application/merge-patch+json")
	case http.MethodPost, http.MethodDelete:
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes))
	if err != nil {
		return fmt.Errorf("reading the API server's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated {
		return newStatusError(response.StatusCode, data)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decoding the API server's answer: %w", err)
	}
	return nil
}

// newStatusError decodes a metav1.Status.
func newStatusError(code int, body []byte) error {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &status) != nil || status.Message == "" {
		status.Message = http.StatusText(code)
	}
	return &StatusError{Code: code, Message: status.Message}
}
