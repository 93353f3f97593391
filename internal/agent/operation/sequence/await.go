package sequence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// maxCause bounds an error in a message, in bytes.
const maxCause = 600

// Final is an error that waiting does not change.
type Final struct{ Err error }

func (f Final) Error() string { return f.Err.Error() }

// Unwrap returns the error.
func (f Final) Unwrap() error { return f.Err }

// Wait says how long to wait for something to be well.
type Wait struct {
	Clock retry.Clock
	// Limit is how long it may take to be well.
	Limit time.Duration
	// Hold is for how long it has to be well without a break.
	Hold time.Duration
	// Interval is the time between two questions.
	Interval time.Duration
}

// Await asks again and again until the answer has been no error for the time of Hold. It returns
// the last error after Limit, a Final one at once, and the cause of ctx's end.
func (w Wait) Await(ctx context.Context, ask func(context.Context) error) error {
	deadline := w.Clock.Now().Add(w.Limit)
	var since time.Time
	for {
		began := w.Clock.Now()
		err := ask(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && since.IsZero():
			since = began
		case err != nil:
			since = time.Time{}
		}
		if final, ok := errors.AsType[Final](err); ok {
			return final.Err
		}
		now := w.Clock.Now()
		switch {
		case err == nil && now.Sub(since) >= w.Hold:
			return nil
		case err != nil && !now.Before(deadline):
			return fmt.Errorf("it was not well within %s: %w", w.Limit, err)
		case err == nil && !now.Before(deadline.Add(w.Hold)):
			return fmt.Errorf("it was not well for %s within %s", w.Hold, w.Limit+w.Hold)
		}
		if err := w.Clock.Wait(ctx, w.Interval); err != nil {
			return err
		}
	}
}

// Short returns an error in one line of limited length.
func Short(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "…"
	}
	return text
}
