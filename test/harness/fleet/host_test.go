package fleet_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

func with(s *software) func(*fleet.Settings) {
	return func(settings *fleet.Settings) { settings.Software = s }
}

func TestEnrols(t *testing.T) {
	r := newRig(t)
	h := r.host()
	o := r.object(h)
	r.Expect(o.Status.Inventory.CPU.Cores).To(BeNumerically(">", 0))
	r.Expect(o.Status.Addresses[0].Address).To(Equal(h.Address.String()))
	r.Expect(meta.IsStatusConditionTrue(o.Status.Conditions, infrav1.PreparedCondition)).To(BeTrue())
	r.Expect(h.Status().PlanAt).To(BeTemporally("~", time.Now(), time.Minute))
	entries, err := os.ReadDir(r.settings.Folder)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(entries).To(BeEmpty(), "a host at rest has no files")
}

// A host becomes a Node, loses power, and is reset.
func TestLife(t *testing.T) {
	r := newRig(t)
	s := &software{}
	h := r.host(with(s))
	r.claim(h, "m1", "data")
	r.Expect(r.ended(h, infrav1.OperationBootstrap, "m1").State).To(Equal(infrav1.OperationSucceeded))
	r.Eventually(func() string { return string(r.object(h).Status.Cleanliness.State) }, soon, often).Should(Equal("Dirty"))

	h.PowerOff()
	r.Expect(h.Status().State).To(Equal("Off"))
	h.PowerOn()
	r.connected(h)
	r.Expect(h.Status().Hostname).To(Equal(r.object(h).Name), "the disk survives")

	r.change(h, func(o *infrav1.ElementalHost) { o.Spec.Reboot = &infrav1.HostReboot{ID: "r1"} })
	r.Expect(r.ended(h, infrav1.OperationReboot, "r1").State).To(Equal(infrav1.OperationSucceeded))
	r.Expect(h.Status().Done.Boots).To(Equal(3))
	r.Eventually(s.log, soon, often).Should(HaveLen(6))

	r.change(h, func(o *infrav1.ElementalHost) { o.Spec.Claim.Phase = infrav1.ClaimReleasing })
	r.Expect(r.ended(h, infrav1.OperationReset, "m1").State).To(Equal(infrav1.OperationSucceeded))
	r.Expect(r.object(h).Status.Cleanliness.State).To(Equal(infrav1.CleanlinessClean))
	r.Expect(s.log()).To(Equal([]string{
		"bootstrap data cloud-config as " + h.Status().Hostname, "bootstrapped", "halt", "boot", "halt", "boot", "halt", "halt", "remove",
	}))
	r.Expect(filepath.Join(r.settings.Folder, h.Name)).NotTo(BeAnExistingFile())
	r.Expect(h.Status().Done).To(Equal(fleet.Done{Boots: 4, Bootstraps: 1, Resets: 1}))
}

func TestBootstrapThatFails(t *testing.T) {
	r := newRig(t)
	s := &software{errs: map[string]error{"bootstrapped": errors.New("no kubeadm here")}}
	f := r.fleet(with(s), func(s *fleet.Settings) { s.Count = 2 })
	r.Expect(f.PowerOn(t.Context(), 0)).To(Succeed())
	for i, data := range []string{"data", "nonsense"} {
		h := f.Hosts()[i]
		r.connected(h)
		r.claim(h, data, data)
		op := r.ended(h, infrav1.OperationBootstrap, data)
		r.Expect(op.State).To(Equal(infrav1.OperationFailed))
		r.Expect(op.Message).To(ContainSubstring([]string{"no kubeadm here", "this is nonsense"}[i]))
	}
}

// What was executing data when the power went is not executed again.
func TestPowerCutDuringABootstrap(t *testing.T) {
	r := newRig(t)
	s := &software{hold: make(chan struct{})}
	h := r.host(with(s))
	r.claim(h, "m1", "data")
	r.Eventually(s.log, soon, often).Should(HaveLen(1))
	h.PowerOff()
	r.Expect(s.log()[1:]).To(Equal([]string{"halt"}))
	h.PowerOn()
	op := r.ended(h, infrav1.OperationBootstrap, "m1")
	r.Expect(op.State).To(Equal(infrav1.OperationFailed))
	r.Expect(op.Message).To(ContainSubstring("cut off"))
	r.Expect(h.Status().Done.Bootstraps).To(BeZero())
}

// What executes data goes on without the agent, and the next one finds it.
func TestCrashDuringABootstrap(t *testing.T) {
	r := newRig(t)
	s := &software{hold: make(chan struct{})}
	h := r.host(with(s))
	r.claim(h, "m1", "data")
	r.Eventually(s.log, soon, often).Should(HaveLen(1))
	h.Crash()
	r.Expect(h.Status().Done.Crashes).To(Equal(1))
	r.connected(h)
	close(s.hold)
	r.Expect(r.ended(h, infrav1.OperationBootstrap, "m1").State).To(Equal(infrav1.OperationSucceeded))
	r.Expect(s.log()).To(HaveLen(2))
}

// A Machine that is deleted meanwhile ends the bootstrap.
func TestResetEndsABootstrap(t *testing.T) {
	r := newRig(t)
	s := &software{hold: make(chan struct{})}
	h := r.host(with(s))
	r.claim(h, "m1", "data")
	r.Eventually(s.log, soon, often).Should(HaveLen(1))
	r.change(h, func(o *infrav1.ElementalHost) { o.Spec.Claim.Phase = infrav1.ClaimReleasing })
	r.Expect(r.ended(h, infrav1.OperationReset, "m1").State).To(Equal(infrav1.OperationSucceeded))
	r.Expect(s.log()).To(ContainElement("remove"))
	r.Expect(s.log()).NotTo(ContainElement("bootstrapped"))
}

// A host that lost its network or its power tells nobody, and a manager has to find
// out; one whose agent crashed is back before that.
func TestSilence(t *testing.T) {
	// A manager that is told waits for the grace period; one that is not told asks first.
	const grace, answer = 2 * time.Second, 4 * time.Second
	r := newRig(t, func(o *server.Options) { o.DisconnectGrace, o.PingAfter, o.PingTimeout = grace, time.Second, answer })
	s := &software{}
	h := r.host(with(s))
	r.claim(h, "m1", "data")
	r.ended(h, infrav1.OperationBootstrap, "m1")
	state := func() infrav1.ConnectionState { return r.object(h).Status.Connection.State }
	r.Eventually(state, soon, often).Should(Equal(infrav1.ConnectionConnected))

	h.SetNetwork(false)
	cut := time.Now()
	r.Eventually(h.Status, soon, often).Should(And(HaveField("State", "Disconnected"), HaveField("Error", ContainSubstring("network is "))))
	r.Eventually(state, soon, often).Should(Equal(infrav1.ConnectionDisconnected))
	r.Expect(time.Since(cut)).To(BeNumerically(">", grace+answer/4), "nobody told the manager")
	r.Expect(s.log()[2:]).To(Equal([]string{"network false"}))
	h.SetNetwork(true)
	r.connected(h)
	r.Eventually(state, soon, often).Should(Equal(infrav1.ConnectionConnected))

	// A boot keeps the cut.
	h.SetNetwork(false)
	h.Reboot()
	r.Eventually(func() string { return h.Status().State }, soon, often).Should(Equal("Disconnected"))
	h.SetNetwork(true)
	r.connected(h)
}
