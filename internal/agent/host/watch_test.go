package host_test

import (
	"context"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
)

func TestWatchingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- host.New(host.Options{}).WatchAddresses(ctx, func() {}) }()
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
