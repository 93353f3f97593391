//go:build embedded

package move

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/machines"
)

// The management cluster is restored from a snapshot of its etcd. Since then hosts were enrolled, approved, claimed,
// released, fenced, rebooted and given new keys, and a maintenance has ended by its time. No host is reset, rebooted or bootstrapped, and what differs is named.
func TestRestoreFromAnOlderSnapshot(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	m := startManagement(t, "restored", "--agent-disconnect-grace=5s")
	soonUnknown := func(s *fleet.Settings) { s.ReadoptAfter = time.Second }
	token := m.register("edge", infrav1.ApprovalAutomatic)
	edge := m.fleet("edge", token, 9, soonUnknown)
	manual := m.fleet("manual", m.register("manual", infrav1.ApprovalManual), 1, soonUnknown)
	kept, gone, fenced, again := edge.Hosts()[0], edge.Hosts()[1], edge.Hosts()[2], edge.Hosts()[3]
	leaving, rebooted, fresh, raced := edge.Hosts()[4], edge.Hosts()[5], edge.Hosts()[6], edge.Hosts()[7]
	rotates, approved := edge.Hosts()[8], manual.Hosts()[0]
	c := &machines.Client{Admin: m.admin, Namespace: sites, Cluster: m.embedded, Progress: shell.NewProgress(os.Stderr)}
	m.Expect(c.CreateCluster(t.Context(), cluster)).To(Succeed())
	m.Expect(c.Release(t.Context(), cluster)).To(Succeed())
	m.change(raced, func(s *infrav1.ElementalHostSpec) { s.Cordon = &infrav1.HostCordon{Reason: "soon"} })
	m.machine("raced", raced)
	for name, h := range map[string]*fleet.Host{"kept": kept, "gone": gone, "fenced": fenced, "again": again, "leaving": leaving, "rotates": rotates} {
		m.bootstrapped(name, h)
	}
	leaving.SetNetwork(false)
	rebooted.SetNetwork(false)
	m.remove("leaving")
	m.awaitClaim(leaving, infrav1.ClaimReleasing)
	m.change(rebooted, func(s *infrav1.ElementalHostSpec) { s.Reboot = &infrav1.HostReboot{ID: "once"} })
	// The snapshot has the key before a rotation.
	key := m.host(rotates).Spec.Identity.KeyFingerprint
	rotates.SetNetwork(false)
	m.change(rotates, func(s *infrav1.ElementalHostSpec) { s.Identity.KeyFingerprint = "sha256:" + strings.Repeat("0", 64) })
	until := metav1.NewTime(time.Now().Add(10 * time.Second).Truncate(time.Second))
	m.change(kept, func(s *infrav1.ElementalHostSpec) {
		s.Maintenance = &infrav1.HostMaintenance{Reason: "a new disk", Until: until}
	})
	inMaintenance := func() bool { return m.host(kept).InMaintenance() }

	snapshot := filepath.Join(t.TempDir(), "snapshot.db")
	m.Expect(m.embedded.Store.Snapshot(t.Context(), snapshot)).To(Succeed())
	t.Log("the snapshot is taken")

	m.change(rotates, func(s *infrav1.ElementalHostSpec) { s.Identity.KeyFingerprint = key })
	rotates.SetNetwork(true)
	late := m.fleet("late", token, 1, soonUnknown)
	enrolled := late.Hosts()[0]
	m.bootstrapped("enrolled", enrolled)
	m.change(approved, func(s *infrav1.ElementalHostSpec) { s.Approval = infrav1.ApprovalApproved })
	m.bootstrapped("approved", approved)
	m.bootstrapped("fresh", fresh)
	m.remove("raced")
	m.change(raced, func(s *infrav1.ElementalHostSpec) { s.Cordon = nil })
	m.bootstrapped("newer", raced)
	m.remove("gone")
	m.awaitFree(gone)
	m.change(fenced, func(s *infrav1.ElementalHostSpec) { s.Fence = &infrav1.HostFence{Reason: "lost"} })
	m.remove("fenced")
	m.awaitClaim(fenced, infrav1.ClaimReleasing)
	m.change(fenced, func(s *infrav1.ElementalHostSpec) { s.Fence = nil })
	m.awaitFree(fenced)
	m.remove("again")
	m.awaitFree(again)
	m.bootstrapped("again-2", again)
	leaving.SetNetwork(true)
	m.awaitFree(leaving)
	m.bootstrapped("leaving-2", leaving)
	rebooted.SetNetwork(true)
	m.awaitCondition(rebooted, infrav1.AvailableCondition, Equal(infrav1.AvailableReason), "")
	m.awaitReboot(rebooted, "once")
	m.Eventually(inMaintenance).Should(BeFalse())

	all := hostsOf(edge, manual, late)
	before := deedsOf(all)
	setNetwork(all, false)
	began := time.Now()
	m.Expect(m.embedded.Restore(t.Context(), snapshot)).To(Succeed())
	t.Logf("the management cluster was restored in %s", time.Since(began).Round(time.Millisecond))
	// The manager has the status from the time of the snapshot. It claims a host that it believes to be free and clean.
	m.change(raced, func(s *infrav1.ElementalHostSpec) { s.Cordon = nil })
	m.awaitClaim(raced, infrav1.ClaimBound)
	setNetwork(all, true)
	began = time.Now()

	m.awaitCondition(raced, infrav1.ReadyCondition, Equal(infrav1.BootstrapFailedReason), "the host is not clean")
	m.awaitCondition(kept, infrav1.ReadyCondition, Equal(infrav1.ProvisionedReason), "")
	m.Eventually(inMaintenance).Should(BeFalse(), "its time is over in the restored management cluster too")
	m.awaitCondition(fresh, infrav1.ReadyCondition, Equal(infrav1.LeftoversReason), "installed")
	m.awaitOperation(leaving, infrav1.OperationReset, infrav1.OperationSucceeded, "")
	m.awaitCondition(leaving, infrav1.ReadyCondition, Equal(infrav1.LeftoversReason), "installed")
	m.awaitCondition(approved, infrav1.ReadyCondition, Equal(infrav1.PendingApprovalReason), "")
	m.awaitCondition(rebooted, infrav1.ReadyCondition, Equal(infrav1.AvailableReason), "")
	m.awaitReboot(rebooted, "once")
	m.awaitCondition(rotates, infrav1.ReadyCondition, Equal(infrav1.DisconnectedReason), "")
	m.Expect(m.exists(enrolled)).To(BeFalse())
	for _, h := range []*fleet.Host{gone, fenced, again} {
		m.awaitCondition(h, infrav1.ReadyCondition, Equal(infrav1.AlreadyResetReason), "has no Node on it")
	}
	m.Expect(deedsOf(all)).To(Equal(before), "nothing is touched")

	// Machines from the time of the snapshot are deleted. What is clean is free at once, and Nodes of today stay.
	for _, name := range []string{"gone", "fenced", "again", "raced"} {
		m.remove(name)
	}
	m.awaitFree(gone)
	m.awaitFree(fenced)
	m.awaitOperation(again, infrav1.OperationReset, infrav1.OperationSucceeded, "")
	m.awaitCondition(again, infrav1.ReadyCondition, Equal(infrav1.LeftoversReason), "installed")
	m.awaitCondition(raced, infrav1.CleanCondition, Equal(infrav1.ResetFailedReason), "the Node of Machine newer of Cluster edge, and never one of Machine raced")

	m.letBackIn(rotates, key, enrolled)
	m.Expect(deedsOf(all)).To(Equal(before), "nothing is touched")
	t.Logf("%d hosts were looked through in %s", len(all), time.Since(began).Round(time.Millisecond))
}

// letBackIn re-adopts the hosts whose keys are not known: one that enrolled since, and a host from the snapshot whose key is
// another one since, which is declared for it.
func (m *management) letBackIn(rotates *fleet.Host, key string, enrolled *fleet.Host) {
	former := m.host(rotates)
	registration := &infrav1.ElementalRegistration{ObjectMeta: meta("edge")}
	patch(m, registration, func(r *infrav1.ElementalRegistration) { r.Spec.Readoption = infrav1.ReadoptionPending })
	m.Eventually(func() string { return rotates.Status().ElementalHost }).ShouldNot(Equal(former.Name))
	second := m.host(rotates)
	m.awaitCondition(rotates, infrav1.ReadyCondition, Equal(infrav1.ReadoptedReason), "")
	patch(m, former, func(h *infrav1.ElementalHost) {
		h.Spec.Identity = &infrav1.HostIdentity{Match: &infrav1.IdentityMatch{KeyFingerprint: key}, Generation: h.Spec.Identity.Generation}
	})
	m.Expect(m.admin.Delete(m.t.Context(), second)).To(Succeed())
	m.Eventually(func() string { return rotates.Status().ElementalHost }).Should(Equal(former.Name))
	m.awaitCondition(rotates, infrav1.ReadyCondition, Equal(infrav1.ProvisionedReason), "")
	m.Eventually(func() bool { return m.exists(enrolled) }).Should(BeTrue())
	m.awaitCondition(enrolled, infrav1.ReadyCondition, Equal(infrav1.ReadoptedReason), "")
	m.change(enrolled, func(s *infrav1.ElementalHostSpec) { s.Approval = infrav1.ApprovalApproved })
	m.awaitCondition(enrolled, infrav1.ReadyCondition, Equal(infrav1.LeftoversReason), "installed")
}
