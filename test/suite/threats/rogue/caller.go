package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// patience is the timeout of a request.
	patience = 40 * time.Second
	// maxAnswer bounds how much of an answer is read.
	maxAnswer = 1 << 20
)

// caller is a key with connections of its own.
type caller struct {
	rogue *rogue
	key   *ecdsa.PrivateKey
	tls   *tls.Config
	http  *http.Client
	// from is the address of its connections; nil for any.
	from net.IP
	// further are capabilities that it enrols with besides those of operations.
	further []string
	// greeting is what its connections begin with, before TLS.
	greeting string
}

// newCaller returns a caller with a new key that calls from an address. change may change its certificate.
func (r *rogue) newCaller(from net.IP, change ...func(*x509.Certificate)) (*caller, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return r.callerWith(key, from, change...)
}

// callerWith returns a caller with a key.
func (r *rogue) callerWith(key *ecdsa.PrivateKey, from net.IP, change ...func(*x509.Certificate)) (*caller, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rogue"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	for _, f := range change {
		f(template)
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	c := &caller{rogue: r, key: key, from: from, tls: &tls.Config{
		RootCAs: r.roots, MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
	}}
	c.http = &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: c.tls, ForceAttemptHTTP2: true, DialContext: c.dial, DisableCompression: true,
	}}
	return c, nil
}

func (c *caller) dialer() *net.Dialer {
	d := &net.Dialer{Timeout: patience}
	if c.from != nil {
		d.LocalAddr = &net.TCPAddr{IP: c.from}
	}
	return d
}

// dial connects, and sends the greeting.
func (c *caller) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dialer().DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	if c.greeting == "" {
		return conn, nil
	}
	if _, err := io.WriteString(conn, c.greeting); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("sending the greeting: %w", err)
	}
	return conn, nil
}

// hangUp closes idle connections.
func (c *caller) hangUp() { c.http.CloseIdleConnections() }

// handshake opens a connection for HTTP/1.1, or for another server name than the URL's.
func (c *caller) handshake(ctx context.Context, name string) (*tls.Conn, error) {
	config := c.tls.Clone()
	config.NextProtos, config.ServerName = []string{"http/1.1"}, c.rogue.server.Hostname()
	if name != "" {
		// The certificate is valid for other names than this one.
		config.ServerName, config.InsecureSkipVerify = name, true
	}
	inner, err := c.dial(ctx, "tcp", c.rogue.server.Host)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(inner, config)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = inner.Close()
		return nil, fmt.Errorf("making a TLS handshake: %w", err)
	}
	return conn, nil
}

// request is a call of an operation.
type request struct {
	operation string
	// path replaces that of the operation; method as well, if path is set.
	method, path string
	query        url.Values
	header       http.Header
	token        string
	body         any
}

// answer is what the manager answered. status is 0 if it closed the connection.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// String returns the status with the type of the problem, if it is one that a program can tell from others.
func (a answer) String() string {
	if a.status == 0 {
		return "closed"
	}
	var problem struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(a.body, &problem) == nil && problem.Type != "" && problem.Type != "about:blank" {
		return fmt.Sprintf("%d %s", a.status, problem.Type)
	}
	return strconv.Itoa(a.status)
}

// failure returns an error unless the request succeeded.
func (a answer) failure() error {
	switch {
	case a.err != nil:
		return fmt.Errorf("calling the manager: %w", a.err)
	case a.status != http.StatusOK:
		return errors.New("the manager answered " + a.String())
	default:
		return nil
	}
}

// decode reads the body of a successful answer.
func decode(a answer, into any) error {
	if err := a.failure(); err != nil {
		return err
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	return nil
}

// retryAfter returns when the manager wants the next request.
func (a answer) retryAfter() time.Duration {
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		return time.Second
	}
	return time.Duration(seconds) * time.Second
}

// call sends a request and reads the answer.
func (c *caller) call(ctx context.Context, q request) answer {
	r, err := c.newRequest(ctx, q)
	if err != nil {
		return answer{err: err}
	}
	response, err := c.http.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	c.rogue.search(response.Header, body)
	return answer{status: response.StatusCode, header: response.Header, body: body, err: err}
}

// insist is call that repeats a request while its rate is refused, so that the answer is one to the request itself.
func (c *caller) insist(ctx context.Context, q request) answer {
	return c.repeat(ctx, q, http.StatusTooManyRequests)
}

// repeat is call that repeats a request while it is answered with a status, when the manager wants it.
func (c *caller) repeat(ctx context.Context, q request, while int) answer {
	const times = 10
	for range times {
		got := c.call(ctx, q)
		if got.status != while || !pause(ctx, got.retryAfter()) {
			return got
		}
	}
	return c.call(ctx, q)
}

func (c *caller) newRequest(ctx context.Context, q request) (*http.Request, error) {
	method, path := q.method, q.path
	if path == "" {
		o, err := c.rogue.document.operation(q.operation)
		if err != nil {
			return nil, err
		}
		method, path = o.method, o.path
	}
	var body io.Reader
	switch b := q.body.(type) {
	case nil:
	case io.Reader:
		body = b
	case []byte:
		body = bytes.NewReader(b)
	default:
		var raw bytes.Buffer
		// So that a text takes as few bytes in a request as possible, and many where it is stored.
		encoder := json.NewEncoder(&raw)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(b); err != nil {
			return nil, fmt.Errorf("encoding a body: %w", err)
		}
		body = &raw
	}
	to := c.rogue.server.Scheme + "://" + c.rogue.server.Host + path
	if len(q.query) > 0 {
		to += "?" + q.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	maps.Copy(r.Header, q.header)
	if q.token != "" {
		r.Header.Set("Authorization", "Bearer "+q.token)
	}
	return r, nil
}
