package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

func TestBackoffDoublesUpToMaxWithFullJitter(t *testing.T) {
	highest := &retry.Backoff{Base: time.Second, Max: 10 * time.Second, Rand: func() float64 { return 0.999999 }}
	for i, want := range []int{1, 2, 4, 8, 10, 10} {
		want := time.Duration(want) * time.Second
		if got := highest.Next().Round(time.Millisecond); got != want {
			t.Errorf("wait %d is %s, want %s", i, got, want)
		}
	}
	for range 100 {
		if got := highest.Next(); got > 10*time.Second {
			t.Fatalf("waits %s, more than Max", got)
		}
	}
	highest.Reset()
	if got := highest.Next().Round(time.Millisecond); got != time.Second {
		t.Errorf("after Reset waits %s, want 1s", got)
	}
	if got := highest.Within(time.Minute).Round(time.Millisecond); got != time.Minute {
		t.Errorf("spreads over %s, want a minute", got)
	}
	if got := highest.Next().Round(time.Millisecond); got != 2*time.Second {
		t.Errorf("the wait after a time within is %s, want 2s", got)
	}
	lowest := &retry.Backoff{Base: time.Second, Max: 10 * time.Second, Rand: func() float64 { return 0 }}
	if got := lowest.Next(); got != 0 {
		t.Errorf("the jitter reaches down to %s, want 0", got)
	}
}

func TestSystemWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := (retry.System{}).Wait(t.Context(), time.Minute); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("waited %s: %v", time.Since(begin), err)
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		go cancel(cause)
		if err := (retry.System{}).Wait(ctx, time.Hour); !errors.Is(err, cause) {
			t.Errorf("a cancelled wait returns %v, want its cause", err)
		}
	})
}
