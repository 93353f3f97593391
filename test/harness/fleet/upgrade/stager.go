package upgrade

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Delays of a Stager after a download that failed, as those of the real agent.
const (
	retryBase = 5 * time.Second
	retryMax  = 5 * time.Minute
)

// chunk is how many bytes are downloaded between two pauses.
const chunk = 256 << 10

// Stager is an agent.Stager. Its bundles are staged at once, or after a download.
type Stager struct {
	// Rate is how many bytes a second the Stager downloads from the manager. It verifies
	// bundles and keeps nothing. 0: bundles are staged at once.
	Rate int
	// Client returns the client of the manager.
	Client func() *client.Client

	// turn is held by the one who stages, backoff and wait belong to it.
	turn    sync.Mutex
	backoff retry.Backoff
	wait    time.Duration

	mu     sync.Mutex
	report func(protocol.BundleReport)
	// staged is the digest of the staged bundle.
	staged string
}

// Watch is agent.Stager's.
func (s *Stager) Watch(report func(protocol.BundleReport)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report = report
}

// Stage is agent.Stager's.
func (s *Stager) Stage(ctx context.Context, want protocol.Bundle, _ func(string)) (string, bundle.Manifest, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := s.obtain(ctx, want); err != nil {
		return "", bundle.Manifest{}, err
	}
	s.tell(want, protocol.BundleStaged, "")
	return "", bundle.Manifest{Format: bundle.Format, KubernetesVersion: want.Version}, nil
}

// obtain makes one attempt to download the bundle, if it has to be. After a failed attempt it
// waits first.
func (s *Stager) obtain(ctx context.Context, want protocol.Bundle) error {
	if s.Rate == 0 || s.isStaged(want) {
		return nil
	}
	if err := (retry.System{}).Wait(ctx, s.wait); err != nil {
		return fmt.Errorf("waiting for the next attempt: %w", err)
	}
	if s.wait == 0 {
		s.backoff = retry.Backoff{Base: retryBase, Max: retryMax}
		s.tell(want, protocol.BundleStaging, "")
	}
	if err := s.download(ctx, want); err != nil {
		s.wait = s.backoff.Next() + client.RetryAfter(err)
		s.tell(want, protocol.BundleStaging, err.Error())
		return err
	}
	s.wait = 0
	return nil
}

// download downloads the bundle and verifies its digest.
func (s *Stager) download(ctx context.Context, want protocol.Bundle) error {
	sum := sha256.New()
	err := s.Client().Bundle(ctx, want.SHA256, 0, want.SizeBytes, func(_ int64, body io.Reader) error {
		sum.Reset()
		return s.receive(ctx, sum, body)
	})
	if err != nil {
		return fmt.Errorf("downloading a bundle: %w", err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.SHA256 {
		return fmt.Errorf("the bundle has the digest %s", got)
	}
	return nil
}

// receive copies a body at the rate of the Stager.
func (s *Stager) receive(ctx context.Context, to io.Writer, from io.Reader) error {
	for {
		due := time.Now().Add(chunk * time.Second / time.Duration(s.Rate))
		_, err := io.CopyN(to, from, chunk)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = (retry.System{}).Wait(ctx, time.Until(due))
		}
		if err != nil {
			return fmt.Errorf("copying a bundle: %w", err)
		}
	}
}

func (s *Stager) isStaged(want protocol.Bundle) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.staged == want.SHA256
}

func (s *Stager) tell(want protocol.Bundle, state protocol.BundleState, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == protocol.BundleStaged {
		s.staged = want.SHA256
	}
	s.report(protocol.BundleReport{SHA256: want.SHA256, Version: want.Version, State: state, Message: message})
}

// Retry is agent.Stager's. No attempt waits for an earlier one.
func (s *Stager) Retry(context.Context) error { return nil }

// Clear is agent.Stager's.
func (s *Stager) Clear(context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.staged = ""
	return nil
}
