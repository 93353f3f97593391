package connection

import (
	"fmt"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
)

// RecordServerTime stores the time that the manager reported last, and the host's
// clock skew.
func (m *Manager) RecordServerTime() error {
	c := m.Client()
	serverTime, local := c.ServerTime()
	if serverTime.IsZero() {
		return nil
	}
	if recorded := m.o.Store.Clock().ServerTime; serverTime.Before(recorded) {
		m.o.Log.Warn("The manager's clock is behind an earlier answer; the host's clock confirms that the certificate is valid",
			"earlier", recorded, "now", serverTime, "host", local)
	}
	next := state.Clock{ServerTime: serverTime.UTC(), Skew: local.Sub(serverTime).Round(time.Second), Agreed: c.Agreed().UTC()}
	if err := m.o.Store.SetClock(next); err != nil {
		return fmt.Errorf("recording the server's time: %w", err)
	}
	return nil
}
