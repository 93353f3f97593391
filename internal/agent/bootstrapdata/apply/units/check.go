package units

import (
	"context"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
)

// Check returns an error for a unit that is to be started and does not exist
// on the host or in the document.
func Check(ctx context.Context, h *host.Host, c *bootstrapdata.Config) error {
	for _, u := range c.Units {
		if !u.Starts() || u.Given {
			continue
		}
		state, err := property(ctx, h, u.Name, "LoadState")
		if err != nil {
			return err
		}
		if state == "not-found" || state == "masked" {
			return fmt.Errorf("unit %s is to be started and is %s on this host; install it in the image, or give its contents", u.Name, state)
		}
	}
	return nil
}
