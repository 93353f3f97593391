package bare

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Each calls do with all numbers from 0 to n-1, several at a time, and returns when all calls have returned. After the
// first error, which it returns, or after the end of ctx it makes no further calls.
func Each(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		if groupCtx.Err() != nil {
			break
		}
		group.Go(func() error {
			if err := groupCtx.Err(); err != nil {
				return context.Cause(groupCtx)
			}
			return do(groupCtx, i)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
