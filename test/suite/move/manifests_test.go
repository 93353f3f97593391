//go:build embedded

package move

import (
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/machines"
)

// The management cluster is lost. The CA of the agent API and the objects of a backup, without status, are created in a
// new one, whose agents have been told meanwhile that it does not know them. No host is reset, rebooted or bootstrapped,
// every host from the time of the backup is connected and has its claim, and what differs since the backup is named.
func TestRestoreFromABackupOfManifests(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	m := startManagement(t, "restored", "--agent-disconnect-grace=5s")
	soonUnknown := func(s *fleet.Settings) { s.ReadoptAfter = time.Second }
	token := m.register("edge", infrav1.ApprovalAutomatic)
	edge := m.fleet("edge", token, 7, soonUnknown)
	manual := m.fleet("manual", m.register("manual", infrav1.ApprovalManual), 1, soonUnknown)
	kept, gone, again, leaving := edge.Hosts()[0], edge.Hosts()[1], edge.Hosts()[2], edge.Hosts()[3]
	stays, fresh, cordoned, approved := edge.Hosts()[4], edge.Hosts()[5], edge.Hosts()[6], manual.Hosts()[0]
	c := &machines.Client{Admin: m.admin, Namespace: sites, Cluster: m.embedded, Progress: shell.NewProgress(os.Stderr)}
	m.Expect(c.CreateCluster(t.Context(), cluster)).To(Succeed())
	m.Expect(c.Release(t.Context(), cluster)).To(Succeed())
	bound := map[string]*fleet.Host{"kept": kept, "gone": gone, "again": again, "leaving": leaving, "stays": stays}
	for name, h := range bound {
		m.machine(name, h)
	}
	for name := range bound {
		m.awaitProvisioned(name)
	}
	m.change(cordoned, func(s *infrav1.ElementalHostSpec) { s.Cordon = &infrav1.HostCordon{Reason: "a fan is broken"} })
	// Two hosts are off the network while their Machines are deleted. Cluster API still waits for one of them.
	leaving.SetNetwork(false)
	stays.SetNetwork(false)
	patch(m, &clusterv1.Machine{ObjectMeta: meta("stays")}, func(o *clusterv1.Machine) { o.Finalizers = []string{clusterv1.MachineFinalizer} })
	m.remove("leaving")
	m.remove("stays")
	m.awaitClaim(leaving, infrav1.ClaimReleasing)
	m.awaitClaim(stays, infrav1.ClaimReleasing)
	then := m.backup()
	claims := m.claims()

	late := m.fleet("late", token, 1, soonUnknown)
	enrolled := late.Hosts()[0]
	m.change(approved, func(s *infrav1.ElementalHostSpec) { s.Approval = infrav1.ApprovalApproved })
	since := map[string]*fleet.Host{"enrolled": enrolled, "fresh": fresh, "approved": approved}
	m.remove("gone")
	m.remove("again")
	m.awaitFree(gone)
	m.awaitFree(again)
	since["again-2"] = again
	leaving.SetNetwork(true)
	m.awaitFree(leaving)
	for name, h := range since {
		m.machine(name, h)
	}
	for name := range since {
		m.awaitProvisioned(name)
	}

	all := hostsOf(edge, manual, late)
	before := deedsOf(all)
	began := time.Now()
	m.reinstall(then)
	m.apply(then)
	t.Logf("%d objects were restored in %s", len(then.objects), time.Since(began).Round(time.Millisecond))
	took := m.connected(map[string]bool{stays.Status().ElementalHost: true})
	last, lastAt := m.lastConnected()
	t.Logf("%s was the last host to connect, %s after the restore began", last, lastAt.Sub(began).Round(time.Second))
	m.Expect(took).To(BeNumerically("<", time.Minute), "hosts must be connected within a minute; %s was the last", last)

	m.awaitCondition(kept, infrav1.ReadyCondition, Equal(infrav1.ProvisionedReason), "")
	m.awaitProvisioned("kept")
	m.awaitCondition(fresh, infrav1.ReadyCondition, Equal(infrav1.LeftoversReason), "installed")
	m.awaitCondition(approved, infrav1.ReadyCondition, Equal(infrav1.PendingApprovalReason), "")
	m.awaitCondition(cordoned, infrav1.AvailableCondition, Equal(infrav1.CordonedReason), "a fan is broken")
	m.Expect(m.exists(enrolled)).To(BeFalse())
	for _, h := range []*fleet.Host{gone, again} {
		m.awaitCondition(h, infrav1.ReadyCondition, Equal(infrav1.AlreadyResetReason), "has no Node on it")
	}
	m.awaitFree(leaving)
	m.awaitDeletion("stays")
	m.awaitRegistered("edge", token)
	delete(claims, leaving.Status().ElementalHost)
	for name, claim := range claims {
		host := &infrav1.ElementalHost{ObjectMeta: meta(name)}
		m.Expect(m.admin.Get(t.Context(), client.ObjectKeyFromObject(host), host)).To(Succeed())
		m.Expect(host.Spec.Claim).To(Equal(claim), name)
	}
	m.Expect(deedsOf(all)).To(Equal(before), "nothing is touched")

	// Machines from the time of the backup are deleted. What is clean is free at once, and Nodes of today stay.
	m.remove("gone")
	m.remove("again")
	m.awaitFree(gone)
	m.awaitCondition(again, infrav1.ReadyCondition, Equal(infrav1.LeftoversReason), "installed")
	m.awaitReadopted(enrolled)
	m.Expect(deedsOf(all)).To(Equal(before), "nothing is touched")
	t.Logf("%d hosts were connected %s after the restore, and looked through after %s",
		len(all), took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}
