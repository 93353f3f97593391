package update

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// probeTimeout limits the start of a new program.
const probeTimeout = 30 * time.Second

// ProbeVersion runs "PATH version" with an empty environment and returns the
// version that it prints.
func ProbeVersion(ctx context.Context, clock retry.Clock, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, _, err := oscommand.Probe(ctx, clock, path, "version")
	if err != nil {
		return "", fmt.Errorf("asking for the version: %w", err)
	}
	fields := strings.Fields(out)
	if len(fields) < 2 || fields[0] != "elemental-agent" {
		return "", fmt.Errorf("running %s version: it printed %.100q and is no agent", path, out)
	}
	return fields[1], nil
}
