package endpoint

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	hostCount = 12
	// historyLines is the number of lines that a failed simulation logs.
	historyLines = 250
	// probeInterval is the agents' interval between two probes.
	probeInterval = 5 * time.Second
	// stepsToConverge is the maximum number of steps until the final state is reached.
	stepsToConverge = 400
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

// TestEndpointFollowsItsCluster runs random histories; with -short, a single short one.
func TestEndpointFollowsItsCluster(t *testing.T) {
	type history struct {
		seed  uint64
		moves int64
	}
	histories := []history{{2, 10}, {1, 50}, {3, 10}}
	if testing.Short() {
		histories = histories[:1]
	}
	for _, run := range histories {
		t.Run(fmt.Sprintf("seed %d, %d moves", run.seed, run.moves), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			s := newSimulation(t, realAPIServer(t), run.seed)
			start := s.clock.Now()
			s.converge()
			events := 0
			for limit := 20 * int(run.moves); s.checker.moves < run.moves; events++ {
				s.Expect(events).To(BeNumerically("<", limit), "%d moves", s.checker.moves)
				s.Expect(t.Failed()).To(BeFalse())
				s.randomEvent()
			}
			s.heal()
			s.converge()
			s.record("converged")
			t.Logf("%d moves, %d of them by evidence, after %d events, %s of the simulation, in %s", s.checker.moves, s.checker.byEvidence, events,
				s.clock.Since(start).Round(time.Second), time.Since(began).Round(time.Second))
		})
	}
}

// converge runs the simulation until everything names one endpoint.
func (s *simulation) converge() {
	s.T.Helper()
	var missing []string
	for range stepsToConverge {
		if missing = s.checker.unmet(); len(missing) == 0 {
			return
		}
		s.step(probeInterval)
	}
	s.T.Fatalf("the simulation does not converge: %q", missing)
}

func isTrue(infra *infrav1.ElementalCluster, condition string) bool {
	return meta.IsStatusConditionTrue(infra.Status.Conditions, condition)
}

// explained returns status, reason and message of a condition.
func explained(infra *infrav1.ElementalCluster, condition string) string {
	c := meta.FindStatusCondition(infra.Status.Conditions, condition)
	if c == nil {
		c = &metav1.Condition{Status: "absent"}
	}
	return fmt.Sprintf("%s: %s: %s", c.Status, c.Reason, c.Message)
}
