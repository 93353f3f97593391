package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// rogue is the program's state.
type rogue struct {
	assignment

	server   *url.URL
	roots    *x509.CertPool
	document *document

	mu sync.Mutex
	// leaked has the secrets that answers had.
	leaked map[string]bool
	// main is a host that has enrolled with the token.
	main *caller
}

// mainBoot is the boot ID of the main host in its polls.
const mainBoot = "rogue-boot"

func newRogue(ctx context.Context, a assignment) (*rogue, error) {
	r := &rogue{assignment: a, roots: x509.NewCertPool(), leaked: map[string]bool{}}
	var err error
	if r.server, err = url.Parse(a.Server); err != nil {
		return nil, fmt.Errorf("reading the server's URL: %w", err)
	}
	if !r.roots.AppendCertsFromPEM([]byte(a.TrustBundle)) {
		return nil, errors.New("the trust bundle has no certificate")
	}
	c, err := r.newCaller(nil)
	if err != nil {
		return nil, err
	}
	defer c.hangUp()
	got := c.call(ctx, request{method: http.MethodGet, path: documentPath})
	if err := got.failure(); err != nil {
		return nil, fmt.Errorf("fetching the OpenAPI document: %w", err)
	}
	r.document, err = parseDocument(got.body)
	return r, err
}

// source returns an address of the loopback network by its number.
func source(number int) net.IP {
	return net.IPv4(127, 251, byte(number/250), byte(1+number%250))
}

// search remembers the secrets that an answer has.
func (r *rogue) search(header http.Header, body []byte) {
	text := fmt.Sprint(header)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, secret := range r.Secrets {
		if strings.Contains(text, secret) || bytes.Contains(body, []byte(secret)) {
			r.leaked[secret] = true
		}
	}
}

// result is what the program prints of an attempt.
type result struct {
	Attempt string `json:"attempt"`
	// Answers counts the answers: a status, a status with the type of a problem, "closed".
	Answers map[string]int `json:"answers"`
	// Hosts are the hosts that the rogue became, NAMESPACE/NAME.
	Hosts []string `json:"hosts,omitempty"`
	// Leaked are the secrets that any answer had so far.
	Leaked []string `json:"leaked,omitempty"`
	// Seconds is the time that the attempt took.
	Seconds float64 `json:"seconds"`
}

// tally collects the answers of one attempt.
type tally struct {
	mu      sync.Mutex
	answers map[string]int
	hosts   map[string]bool
}

func (t *tally) count(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers[what]++
}

// add counts an answer and returns it.
func (t *tally) add(a answer) answer {
	t.count(a.String())
	return a
}

// enrolled counts the answer of an enrolment. It returns the host; blank if none enrolled.
func (t *tally) enrolled(a answer) string {
	t.add(a)
	var host struct{ Namespace, Name string }
	if a.status != http.StatusOK || json.Unmarshal(a.body, &host) != nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	name := host.Namespace + "/" + host.Name
	t.hosts[name] = true
	return name
}

// opened counts an attempt to open a connection, and returns the connection.
func (t *tally) opened(conn net.Conn, err error) (net.Conn, bool) {
	if err != nil {
		t.count("closed")
		return nil, false
	}
	t.count("open")
	return conn, true
}

// attempt is one attack.
type attempt struct {
	name string
	run  func(ctx context.Context, t *tally) error
}

// attempts tries all attacks in order and prints their results. An error means that the program could not try an attack.
func (r *rogue) attempts(ctx context.Context, out io.Writer) error {
	lines := json.NewEncoder(out)
	for _, a := range slices.Concat(r.enrolmentAttempts(), guest{r}.attempts(), identities{r}.attempts(), requests{r}.attempts(), r.endpointAttempts(),
		r.storageAttempts(), r.connectionAttempts(), (&tunnels{rogue: r}).attempts()) {
		t := &tally{answers: map[string]int{}, hosts: map[string]bool{}}
		start := time.Now()
		if err := a.run(ctx, t); err != nil {
			return fmt.Errorf("attempt %q: %w", a.name, err)
		}
		r.mu.Lock()
		leaked := slices.Sorted(maps.Keys(r.leaked))
		r.mu.Unlock()
		err := lines.Encode(result{
			Attempt: a.name, Answers: t.answers, Hosts: slices.Sorted(maps.Keys(t.hosts)), Leaked: leaked, Seconds: time.Since(start).Seconds(),
		})
		if err != nil {
			return fmt.Errorf("printing a result: %w", err)
		}
	}
	return nil
}

// each calls do for the numbers below count, some at a time, and returns the first error.
func each(ctx context.Context, count, atOnce int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	next := make(chan int)
	for range atOnce {
		group.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range count {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	group.Wait()
	return context.Cause(ctx)
}

// pause waits. It returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
