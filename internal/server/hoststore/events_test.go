package hoststore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// countingSink counts the writes of Events.
type countingSink struct {
	events.EventSink

	created, patched int
}

func (s *countingSink) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	s.created++
	return event, nil
}

func (s *countingSink) Patch(_ context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	s.patched++
	return event, nil
}

// A host that changes all the time causes few writes of Events: those beyond a burst become
// series.
func TestThreat44_EventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		scheme := runtime.NewScheme()
		g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
		sink := &countingSink{}
		broadcaster := events.NewBroadcaster(sink)
		defer broadcaster.Shutdown()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		g.Expect(broadcaster.StartRecordingToSinkWithContext(ctx)).To(Succeed())
		clock := clocktesting.NewFakeClock(time.Unix(0, 0))
		s := &Store{recorder: broadcaster.NewRecorder(scheme, "test"), events: newEventLimiter(clock), own: newOwnWrites()}
		changed := func(name string, i int) {
			before, after := hostAt("1"), hostAt("2")
			before.Name, after.Name = name, name
			after.ResourceVersion = time.Duration(i).String()
			before.Status.Connection = &infrav1.HostConnection{}
			after.Status.Conditions = []metav1.Condition{{
				Type: infrav1.CleanCondition, Status: metav1.ConditionFalse, Reason: infrav1.LeftoversReason, Message: "something",
			}}
			s.recordEvents(before, after)
			synctest.Wait()
		}
		for i := range 1000 {
			changed("rogue", i)
		}
		g.Expect(sink.created).To(Equal(eventBurst+1), "the burst and one series")
		g.Expect(sink.patched).To(BeNumerically("<=", 1), "the begin of the series")
		changed("honest", 0)
		g.Expect(sink.created).To(Equal(eventBurst + 2))
		clock.Step(time.Minute)
		for i := range 1000 {
			changed("rogue", 1000+i)
		}
		g.Expect(sink.created).To(Equal(eventBurst+2+3), "three more in a minute")
		clock.Step(time.Hour)
		changed("honest", 1)
		g.Expect(s.events.full).To(HaveLen(1), "hosts that are quiet are forgotten")
	})
}

// A series refers to the host.
func TestSeriesRefersToTheHost(t *testing.T) {
	g := NewWithT(t)
	host := hostAt("7")
	host.UID = "u"
	g.Expect(seriesOf(host)).To(Equal(&corev1.ObjectReference{
		APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "ElementalHost", Namespace: "edge", Name: host.Name, UID: "u",
	}))
}
