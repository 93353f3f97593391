package bench

import (
	"context"
	"errors"
)

func measureClusters(context.Context, *run) error { return errors.New("later") }
