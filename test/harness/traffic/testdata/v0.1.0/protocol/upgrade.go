package protocol

import "strings"

// UpgradeOutcome says what a NodeUpgrade that failed has left behind. It is how
// OperationReport.Message begins; the rest of the message is for people: what failed, and
// which version the Node serves.
type UpgradeOutcome string

// Outcomes of NodeUpgrades that failed.
const (
	// UpgradeChangedNothing: the Node runs as before, because the upgrade ended before it
	// changed anything.
	UpgradeChangedNothing UpgradeOutcome = "nothing was changed"
	// UpgradeRolledBack: the Node has its former version or image again.
	UpgradeRolledBack UpgradeOutcome = "rolled back"
	// UpgradePartlyDone: some components have the new version. The control plane stays at
	// the new version, because its API server has served. Another NodeUpgrade continues. Or the
	// host has the new image, and the Node serves, but not as it should.
	UpgradePartlyDone UpgradeOutcome = "partly upgraded"
	// UpgradeLeftBroken: the way back failed too. A person has to look at the host.
	UpgradeLeftBroken UpgradeOutcome = "not serving"
)

// UpgradeStepStage is the step of a NodeUpgrade in which the host only fetches and unpacks the
// bundle. A host whose request is withdrawn then ends the upgrade.
const UpgradeStepStage = "stage"

// Message returns the message of a NodeUpgrade with this outcome.
func (o UpgradeOutcome) Message(text string) string { return string(o) + ": " + text }

// UpgradeOutcomeOf returns the outcome that a message begins with; blank if it has none, as
// the message of an upgrade that was ended for a reset.
func UpgradeOutcomeOf(message string) UpgradeOutcome {
	for _, o := range []UpgradeOutcome{UpgradeChangedNothing, UpgradeRolledBack, UpgradePartlyDone, UpgradeLeftBroken} {
		if strings.HasPrefix(message, string(o)+": ") {
			return o
		}
	}
	return ""
}
