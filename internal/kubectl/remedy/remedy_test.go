package remedy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/remedy"
)

// good are reasons of conditions that are as desired, and of Events.
const good = `SetByUser SetFromHost HostReserved EndpointMoved Followed SetFromVIP SetFromTunnel TunnelReady BindingsApplied
BindingRestored BindingsDeleted HostClaimed MachineReplaced BootstrapSucceeded Provisioned HostReleased DeletionResumed
AgentConnected Approved VerifiedClean InUse Prepared PreparedByBundle Available Adoptable Adopted NotClaimed MachineFound MaintenanceEnded
TunnelOpened TunnelLost BundleStaged BundleFailed QuarantineEnded ClockSynchronized AgentCurrent UpToDate ReplacementRefused
BundlesServed BundlesMissing BundlesHashing Rebooted Remediated EndpointUnknown Published Usable Expired UsedUp
CertificatesValid BinariesServed BinariesMissing SnapshotTaken SnapshotUploaded Restored
LogReceived LogRequestEnded Received Returned
Fulfilled WaitingForHosts WaitingForReturn HostsMissing NamespaceUnusable
HostsReached HostsNotReached SameManagementCluster`

// Every reason of a problem has a remedy of its own, and remedies name the objects.
func TestEveryReasonHasARemedy(t *testing.T) {
	g := NewWithT(t)
	file, err := parser.ParseFile(token.NewFileSet(), "../../../api/v1beta2/conditions.go", nil, 0)
	g.Expect(err).NotTo(HaveOccurred())
	fallback := remedy.For("Unheard", remedy.Subject{})
	problems := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || strings.HasSuffix(spec.Names[0].Name, "Condition") {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		g.Expect(ok).To(BeTrue())
		reason, err := strconv.Unquote(literal.Value)
		g.Expect(err).NotTo(HaveOccurred())
		isGood := false
		for word := range strings.FieldsSeq(good) {
			isGood = isGood || word == reason
		}
		if isGood {
			return true
		}
		problems++
		text := remedy.For(reason, remedy.Subject{})
		g.Expect(text).NotTo(Equal(fallback), "reason %s has no remedy, or is missing in the list of the others", reason)
		g.Expect(text).NotTo(MatchRegexp(`\{[a-z]+\}`), "reason %s", reason)
		return true
	})
	g.Expect(problems).To(BeNumerically(">", 60))
}

func TestRemediesNameTheObjects(t *testing.T) {
	g := NewWithT(t)
	subject := remedy.Subject{Namespace: "sites", Host: "h1", Machine: "m1"}
	g.Expect(remedy.For("Cordoned", subject)).To(Equal(
		"Remove the cordon: kubectl elemental uncordon h1 -n sites"))
	for output, want := range map[remedy.Output]string{
		remedy.OutputUnknown: "Look at the output: `kubectl elemental logs h1 -n sites`, or `journalctl -u elemental-agent` on the host if it is not connected",
		remedy.OutputByLogs:  "Look at the output: `kubectl elemental logs h1 -n sites`",
		remedy.OutputOnHost:  "Look at the output: `journalctl -u elemental-agent` on the host",
	} {
		subject := remedy.Subject{Namespace: "sites", Host: "h1", Output: output}
		g.Expect(remedy.For("Bootstrapping", subject)).To(HaveSuffix(want))
	}
	g.Expect(remedy.For("Claimed", remedy.Subject{})).To(ContainSubstring("delete the Machine MACHINE:"))
}
