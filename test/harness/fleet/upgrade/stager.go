package upgrade

import (
	"context"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Stager is an agent.Stager whose bundles are staged at once.
type Stager struct {
	mu     sync.Mutex
	report func(protocol.BundleReport)
}

// Watch is agent.Stager's.
func (s *Stager) Watch(report func(protocol.BundleReport)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report = report
}

// Stage is agent.Stager's.
func (s *Stager) Stage(_ context.Context, want protocol.Bundle, _ func(string)) (string, bundle.Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report(protocol.BundleReport{SHA256: want.SHA256, Version: want.Version, State: protocol.BundleStaged})
	return "", bundle.Manifest{Format: bundle.Format, KubernetesVersion: want.Version}, nil
}

// Clear is agent.Stager's.
func (*Stager) Clear(context.Context) error { return nil }
