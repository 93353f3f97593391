package fleet_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/fleet"
)

// now has no part below a second, as the API has none.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// handlers are Informers whose events the test makes, so that it decides when they come.
type handlers map[string]toolscache.ResourceEventHandler

func (h handlers) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	kind := "machine"
	if _, ok := o.(*infrav1.ElementalHost); ok {
		kind = "host"
	}
	return informer{add: func(handler toolscache.ResourceEventHandler) { h[kind] = handler }}, nil
}

type informer struct {
	cache.Informer

	add func(toolscache.ResourceEventHandler)
}

func (i informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.add(h)
	return nil, nil
}

type fixture struct {
	*WithT

	clock    *clocktesting.FakePassiveClock
	memory   *controllertest.Memory
	events   handlers
	registry *prometheus.Registry
	elected  chan struct{}
	versions int
}

func scheme(tb testing.TB) *runtime.Scheme {
	tb.Helper()
	s := runtime.NewScheme()
	if err := infrav1.AddToScheme(s); err != nil {
		tb.Fatal(err)
	}
	return s
}

// newFixture returns the metrics of a replica that is not the leader yet.
func newFixture(t *testing.T, watchFilter string) *fixture {
	t.Helper()
	f := &fixture{
		WithT: NewWithT(t), clock: clocktesting.NewFakePassiveClock(now), memory: controllertest.NewMemory(t, scheme(t), nil),
		events: handlers{}, registry: prometheus.NewPedanticRegistry(), elected: make(chan struct{}),
	}
	f.Expect(fleet.Register(t.Context(), f.options(watchFilter))).To(Succeed())
	return f
}

func (f *fixture) options(watchFilter string) fleet.Options {
	return fleet.Options{
		Reader: f.memory, Informers: f.events, Elected: f.elected, Clock: f.clock, WatchFilter: watchFilter, Metrics: f.registry,
	}
}

// pass lets time pass.
func (f *fixture) pass(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }

// series returns the series of a metric by the values of their labels, those of histograms with their sum.
func (f *fixture) series(name string) map[string]float64 {
	gathered, err := f.registry.Gather()
	f.Expect(err).NotTo(HaveOccurred())
	values := map[string]float64{}
	for _, family := range gathered {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			values[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return values
}

// host returns a host in a state.
func (f *fixture) host(uid, state string, changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	h := &infrav1.ElementalHost{ObjectMeta: f.meta(uid)}
	if state != "" {
		h.Status.Conditions = []metav1.Condition{{Type: infrav1.ReadyCondition, Reason: state}}
	}
	for _, change := range changes {
		change(h)
	}
	return h
}

// machine returns a machine whose conditions Ready and HostClaimed have that reason.
func (f *fixture) machine(uid, state string) *infrav1.ElementalMachine {
	return &infrav1.ElementalMachine{ObjectMeta: f.meta(uid), Status: infrav1.ElementalMachineStatus{Conditions: []metav1.Condition{
		{Type: infrav1.ReadyCondition, Reason: state}, {Type: infrav1.HostClaimedCondition, Reason: state},
	}}}
}

func (f *fixture) meta(uid string) metav1.ObjectMeta {
	f.versions++
	return metav1.ObjectMeta{Namespace: "n", Name: uid, UID: types.UID(uid), ResourceVersion: string(rune('a' + f.versions))}
}
