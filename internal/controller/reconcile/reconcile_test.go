package reconcile_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

func TestIsPaused(t *testing.T) {
	pausedObject := metav1.ObjectMeta{Annotations: map[string]string{clusterv1.PausedAnnotation: ""}}
	deletedObject := metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}
	running := &clusterv1.Cluster{}
	pausedCluster := &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Paused: new(true)}}
	for name, tc := range map[string]struct {
		cluster *clusterv1.Cluster
		object  metav1.ObjectMeta
		belongs bool
		want    bool
	}{
		"running Cluster":                         {running, metav1.ObjectMeta{}, true, false},
		"paused Cluster":                          {pausedCluster, metav1.ObjectMeta{}, true, true},
		"paused Cluster, object being deleted":    {pausedCluster, deletedObject, true, true},
		"paused object":                           {running, pausedObject, true, true},
		"paused object without a Cluster":         {nil, pausedObject, false, true},
		"object without a Cluster":                {nil, metav1.ObjectMeta{}, false, false},
		"missing Cluster":                         {nil, metav1.ObjectMeta{}, true, true},
		"missing Cluster, object being deleted":   {nil, deletedObject, true, false},
		"object that became part of a Cluster":    {running, metav1.ObjectMeta{}, false, false},
		"paused Cluster, object not labelled yet": {pausedCluster, metav1.ObjectMeta{}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(reconcile.IsPaused(tc.cluster, &tc.object, tc.belongs)).To(Equal(tc.want))
		})
	}
}

func TestPausedConditions(t *testing.T) {
	g := NewWithT(t)
	missing, paused := reconcile.PausedMessage(nil), reconcile.PausedMessage(&clusterv1.Cluster{})
	g.Expect(missing).To(ContainSubstring("does not exist"))
	g.Expect(paused).NotTo(Equal(missing))
	g.Expect(reconcile.Paused("why")).To(Equal(metav1.Condition{Type: "Paused", Status: "True", Reason: "Paused", Message: "why"}))
	g.Expect(reconcile.NotPaused()).To(Equal(metav1.Condition{Type: "Paused", Status: "False", Reason: "NotPaused"}))
}

func TestIsWatched(t *testing.T) {
	for name, tc := range map[string]struct {
		label, filter string
		want          bool
	}{
		"no filter, no label":  {"", "", true},
		"no filter, a label":   {"edge", "", true},
		"filter, same label":   {"edge", "edge", true},
		"filter, other label":  {"lab", "edge", false},
		"filter without label": {"", "edge", false},
	} {
		t.Run(name, func(t *testing.T) {
			host := &infrav1.ElementalHost{}
			if tc.label != "" {
				host.Labels = map[string]string{clusterv1.WatchLabel: tc.label}
			}
			NewWithT(t).Expect(reconcile.IsWatched(host, tc.filter)).To(Equal(tc.want))
		})
	}
}

func TestRequeueConflict(t *testing.T) {
	before := ctrl.Result{RequeueAfter: time.Minute}
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "elementalhosts"}, "h", errors.New("changed"))
	other := errors.New("other")
	for name, tc := range map[string]struct {
		err     error
		want    ctrl.Result
		wantErr error
	}{
		"no error":         {nil, before, nil},
		"conflict":         {conflict, ctrl.Result{RequeueAfter: reconcile.ConflictDelay}, nil},
		"wrapped conflict": {errors.Join(conflict), ctrl.Result{RequeueAfter: reconcile.ConflictDelay}, nil},
		"other error":      {other, before, other},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			result, err := reconcile.RequeueConflict(before, tc.err)
			g.Expect(result).To(Equal(tc.want))
			if tc.wantErr == nil {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(tc.wantErr))
			}
		})
	}
}

func TestLater(t *testing.T) {
	g := NewWithT(t)
	early := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	late := early.Add(time.Second)
	g.Expect(reconcile.Later(early, late)).To(Equal(late))
	g.Expect(reconcile.Later(late, early)).To(Equal(late))
	g.Expect(reconcile.Later(time.Time{}, early)).To(Equal(early))
}

func TestConnectedSince(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	host := func(state infrav1.ConnectionState, ago time.Duration) *infrav1.ElementalHost {
		h := &infrav1.ElementalHost{}
		h.Status.Connection = &infrav1.HostConnection{State: state, Since: metav1.NewTime(now.Add(-ago))}
		return h
	}
	const connected, disconnected = infrav1.ConnectionConnected, infrav1.ConnectionDisconnected
	for name, tc := range map[string]struct {
		hosts []*infrav1.ElementalHost
		want  time.Time // zero if no host is connected
	}{
		"no hosts":                        {nil, time.Time{}},
		"never connected":                 {[]*infrav1.ElementalHost{{}}, time.Time{}},
		"all disconnected":                {[]*infrav1.ElementalHost{host(disconnected, time.Hour)}, time.Time{}},
		"one connected":                   {[]*infrav1.ElementalHost{host(connected, time.Minute)}, now.Add(-time.Minute)},
		"the earliest counts, when first": {[]*infrav1.ElementalHost{host(connected, time.Hour), host(connected, time.Minute)}, now.Add(-time.Hour)},
		"the earliest counts, when last":  {[]*infrav1.ElementalHost{host(connected, time.Minute), host(connected, time.Hour)}, now.Add(-time.Hour)},
		"disconnected hosts do not count": {[]*infrav1.ElementalHost{host(disconnected, time.Hour), host(connected, time.Minute)}, now.Add(-time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			since, found := reconcile.ConnectedSince(tc.hosts)
			g.Expect(found).To(Equal(!tc.want.IsZero()))
			g.Expect(since.Equal(tc.want)).To(BeTrue(), "%s", since)
		})
	}
}
