package fleet_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	hostDurations      = "elemental_host_state_duration_seconds"
	operations         = "elemental_host_operations_total"
	failures           = "elemental_host_operation_failures_total"
	operationDurations = "elemental_host_operation_duration_seconds"
	updates            = "elemental_host_agent_updates_total"
	placements         = "elemental_machine_placements_total"
)

// A state is observed once, when it ends, with the time since the change that began it.
func TestStateDurations(t *testing.T) {
	f := newFixture(t, "")
	hosts := f.events["host"]
	found := f.host("found", "Available")
	hosts.OnAdd(found, true)
	fresh := f.host("fresh", "")
	hosts.OnAdd(fresh, false)
	f.pass(time.Minute)
	named := f.host("fresh", "PendingApproval")
	hosts.OnUpdate(fresh, named)

	// Other replicas observe nothing, but remember when states began.
	f.pass(time.Minute)
	approved := f.host("fresh", "Available")
	hosts.OnUpdate(named, approved)
	f.Expect(f.series(hostDurations)).To(BeEmpty())
	close(f.elected)

	f.pass(time.Minute)
	bootstrapping, claimed := f.host("fresh", "Bootstrapping"), f.host("found", "Bootstrapping")
	hosts.OnUpdate(approved, bootstrapping)
	hosts.OnUpdate(found, claimed)
	f.Expect(f.series(hostDurations)).To(Equal(map[string]float64{"Available": 60}), "the other host was available before the manager saw it")

	// Neither a change without another state nor a resync ends a state.
	f.pass(time.Minute)
	progress := f.host("fresh", "Bootstrapping")
	hosts.OnUpdate(bootstrapping, progress)
	hosts.OnUpdate(progress, progress)
	f.Expect(f.series(hostDurations)).NotTo(HaveKey("Bootstrapping"))

	f.pass(time.Minute)
	provisioned := f.host("fresh", "Provisioned")
	hosts.OnUpdate(progress, provisioned)
	f.Expect(f.series(hostDurations)).To(HaveKeyWithValue("Bootstrapping", 120.0))

	// A deletion ends the state, also one that the watch missed.
	f.pass(time.Minute)
	hosts.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: provisioned})
	f.Expect(f.series(hostDurations)).To(HaveKeyWithValue("Provisioned", 60.0))
	hosts.OnUpdate(claimed, f.host("again", "Available"))
	f.Expect(f.series(hostDurations)).To(HaveKeyWithValue("Bootstrapping", 300.0))
}

// Objects that another manager reconciles are not observed.
func TestWatchFilter(t *testing.T) {
	f := newFixture(t, "ours")
	close(f.elected)
	ours := func(h *infrav1.ElementalHost) { h.Labels = map[string]string{clusterv1.WatchLabel: "ours"} }
	hosts := f.events["host"]
	strange, kept, lost := f.host("strange", "Available"), f.host("kept", "Available", ours), f.host("lost", "Available", ours)
	for _, h := range []*infrav1.ElementalHost{strange, kept, lost} {
		hosts.OnAdd(h, false)
	}
	f.pass(time.Minute)
	hosts.OnUpdate(strange, f.host("strange", "Provisioned"))
	hosts.OnUpdate(kept, f.host("kept", "Provisioned", ours))
	hosts.OnUpdate(lost, f.host("lost", "Provisioned"))
	hosts.OnDelete(f.host("lost", "Provisioned"))
	f.Expect(f.series(hostDurations)).To(Equal(map[string]float64{"Available": 60}))
}

// operation returns a change that gives a host an operation which took 90 seconds.
func operation(kind infrav1.OperationType, id string, state infrav1.OperationState, step string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		op := infrav1.HostOperation{Type: kind, ID: id, State: state, Step: step, StartedAt: metav1.NewTime(now)}
		if state != infrav1.OperationRunning {
			op.FinishedAt = metav1.NewTime(now.Add(90 * time.Second))
		}
		h.Status.Operations = append(h.Status.Operations, op)
	}
}

// Each operation counts once, when its end is seen.
func TestOperations(t *testing.T) {
	f := newFixture(t, "")
	hosts := f.events["host"]
	running := f.host("h", "Bootstrapping", operation(infrav1.OperationBootstrap, "1", infrav1.OperationRunning, "fetch"))
	failed := f.host("h", "BootstrapFailed", operation(infrav1.OperationBootstrap, "1", infrav1.OperationFailed, "write_files[3] /etc/secret"))
	hosts.OnAdd(running, true)
	f.Expect(f.series(operations)).To(HaveKeyWithValue("Failed Bootstrap", 0.0), "so that the first failure is an increase")
	hosts.OnUpdate(running, failed)
	f.Expect(f.series(operations)).To(HaveKeyWithValue("Failed Bootstrap", 0.0), "it is not the leader")
	close(f.elected)
	hosts.OnUpdate(running, failed)
	again := f.host("h", "BootstrapFailed", operation(infrav1.OperationBootstrap, "1", infrav1.OperationFailed, "write_files[3] /etc/secret"))
	hosts.OnUpdate(failed, again)
	f.Expect(f.series(operations)).To(HaveKeyWithValue("Failed Bootstrap", 1.0))
	f.Expect(f.series(failures)).To(Equal(map[string]float64{"write_files Bootstrap": 1}))
	f.Expect(f.series(operationDurations)).To(Equal(map[string]float64{"Failed Bootstrap": 90}))
}

// A host can neither add values of a label nor spoil the sum of durations.
func TestThreat74_HostsAddNoLabels(t *testing.T) {
	f := newFixture(t, "")
	close(f.elected)
	before := f.host("h", "Bootstrapping")
	for name, change := range map[string]func(*infrav1.HostOperation){
		"step of its own": func(op *infrav1.HostOperation) { op.Step = "junk1 of the host" },
		"finished early":  func(op *infrav1.HostOperation) { op.FinishedAt = metav1.NewTime(now.Add(-time.Hour)) },
		"took years":      func(op *infrav1.HostOperation) { op.FinishedAt = metav1.NewTime(now.AddDate(5, 0, 0)) },
		"never started":   func(op *infrav1.HostOperation) { op.StartedAt = metav1.Time{} },
	} {
		f.events["host"].OnUpdate(before, f.host("h", "Bootstrapping", operation(infrav1.OperationReset, name, infrav1.OperationFailed, ""),
			func(h *infrav1.ElementalHost) { change(&h.Status.Operations[0]) }))
	}
	f.Expect(f.series(failures)).To(Equal(map[string]float64{"none Reset": 3, "other Reset": 1}))
	f.Expect(f.series(operationDurations)).To(Equal(map[string]float64{"Failed Reset": 90}))
}

func TestAgentUpdates(t *testing.T) {
	f := newFixture(t, "")
	close(f.elected)
	update := func(version string, state infrav1.OperationState, message string) *infrav1.ElementalHost {
		return f.host("h", "Available", func(h *infrav1.ElementalHost) {
			h.Status.Agent = &infrav1.HostAgent{Update: &infrav1.AgentUpdate{Version: version, State: state, Message: message}}
		})
	}
	history := []*infrav1.ElementalHost{
		f.host("h", "Available"),
		update("v2", infrav1.OperationRunning, ""), update("v2", infrav1.OperationFailed, "one"), update("v2", infrav1.OperationFailed, "other words"),
		update("v3", infrav1.OperationSucceeded, ""),
	}
	for i, h := range history[1:] {
		f.events["host"].OnUpdate(history[i], h)
	}
	f.Expect(f.series(updates)).To(Equal(map[string]float64{"Failed": 1, "Succeeded": 1, "Unsupported": 0}))
}

// An outcome counts when it is another one than before.
func TestPlacements(t *testing.T) {
	f := newFixture(t, "")
	close(f.elected)
	history := []*infrav1.ElementalMachine{
		f.machine("m", "WaitingForBootstrapData"), f.machine("m", "NoSuitableHost"), f.machine("m", "NoSuitableHost"),
		f.machine("m", "NoHostInFailureDomain"), f.machine("m", "HostClaimed"), f.machine("m", "Fenced"),
	}
	for i, m := range history[1:] {
		f.events["machine"].OnUpdate(history[i], m)
	}
	f.Expect(f.series(placements)).To(Equal(map[string]float64{"HostClaimed": 1, "NoSuitableHost": 1, "NoHostInFailureDomain": 1}))
}

// The steps that the agent names are values of the label.
func TestStepsOfTheAgent(t *testing.T) {
	f := newFixture(t, "")
	close(f.elected)
	for _, step := range agentSteps(t) {
		f.events["host"].OnUpdate(f.host("h", "X"), f.host("h", "X", operation(infrav1.OperationUpgrade, step, infrav1.OperationFailed, step)))
		f.Expect(f.series(failures)).To(HaveKey(step+" Upgrade"), "add the step to stepWords")
	}
}
