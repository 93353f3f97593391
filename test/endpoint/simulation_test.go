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
	"github.com/capi-elemental/cluster-api-provider-elemental/test/envtest"
)

const (
	fleet = 12
	// storyLines are shown of a simulation that failed.
	storyLines = 250
	// beat is how often agents probe.
	beat = 5 * time.Second
	// turnsToSettle bound how long it takes until all is well again.
	turnsToSettle = 400
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

func TestEndpointFollowsItsCluster(t *testing.T) {
	for _, run := range []struct {
		seed  uint64
		moves int64
	}{{1, 50}, {2, 10}, {3, 10}} {
		t.Run(fmt.Sprintf("seed %d, %d moves", run.seed, run.moves), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			w := newWorld(t, run.seed)
			start := w.clock.Now()
			w.settle()
			events := 0
			for limit := 20 * int(run.moves); w.referee.moves < run.moves; events++ {
				w.Expect(events).To(BeNumerically("<", limit), "%d moves", w.referee.moves)
				w.Expect(t.Failed()).To(BeFalse())
				w.happen()
			}
			w.heal()
			w.settle()
			w.note("all is well")
			t.Logf("%d moves, %d of them by evidence, after %d events, %s of the simulation, in %s", w.referee.moves, w.referee.byEvidence, events,
				w.clock.Since(start).Round(time.Second), time.Since(began).Round(time.Second))
		})
	}
}

// settle waits until everything names one endpoint.
func (w *world) settle() {
	w.T.Helper()
	var missing []string
	for range turnsToSettle {
		if missing = w.referee.missing(); len(missing) == 0 {
			return
		}
		w.turn(beat)
	}
	w.T.Fatalf("it does not settle: %q", missing)
}

func isTrue(infra *infrav1.ElementalCluster, condition string) bool {
	return meta.IsStatusConditionTrue(infra.Status.Conditions, condition)
}

// explained is a condition in words.
func explained(infra *infrav1.ElementalCluster, condition string) string {
	c := meta.FindStatusCondition(infra.Status.Conditions, condition)
	if c == nil {
		c = &metav1.Condition{Status: "absent"}
	}
	return fmt.Sprintf("%s: %s: %s", c.Status, c.Reason, c.Message)
}
