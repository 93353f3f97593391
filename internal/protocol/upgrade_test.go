package protocol_test

import (
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestUpgradeOutcomeOf(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]protocol.UpgradeOutcome{
		protocol.UpgradeRolledBack.Message("kubelet: it does not start"): protocol.UpgradeRolledBack,
		protocol.UpgradeChangedNothing.Message("check: no space"):        protocol.UpgradeChangedNothing,
		protocol.UpgradePartlyDone.Message(""):                           protocol.UpgradePartlyDone,
		"rolled back":                                                    "",
		"ended: the manager wants a reset":                               "",
		"":                                                               "",
	} {
		if got := protocol.UpgradeOutcomeOf(message); got != want {
			t.Errorf("%q: got %q, not %q", message, got, want)
		}
	}
}
