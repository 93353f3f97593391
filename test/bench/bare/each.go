package bare

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Each calls do with all numbers from 0 to below n, for several at a time, and returns when all calls have. After the
// first error, which it returns, and after the end of ctx no further call is made.
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
