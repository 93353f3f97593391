package server_test

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

func TestLeaderLabelsItsPod(t *testing.T) {
	g := NewWithT(t)
	var pod *corev1.Pod
	h := start(t, func(o *server.Options) {
		pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: "manager", Labels: map[string]string{"app": "x", server.LeaderLabel: "stale"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "manager"}}},
		}
		g.Expect(env.Client(t).Create(t.Context(), pod)).To(Succeed())
		o.Pod = types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	})
	g.Eventually(func() map[string]string {
		h.must(h.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		return pod.Labels
	}, eventually, often).Should(Equal(map[string]string{"app": "x", server.LeaderLabel: "leader"}))
	g.Expect(h.writes.take()).To(Equal([]string{"patch Pod", "patch Pod"}), "a stale label is removed first")
}

func TestThreat29_SourceThatGuesses(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.EnrolRate, o.EnrolBurst = 1, 3 })
	a := h.agent()
	for range 3 {
		g.Expect(a.enrol("x").problem().Type).To(Equal(protocol.ProblemTokenRefused))
	}
	got := a.enrol("x")
	g.Expect(got.status).To(Equal(http.StatusTooManyRequests))
	g.Expect(got.header.Get("Retry-After")).To(Equal("1"))
	g.Expect(a.call(http.MethodGet, protocol.PathPlan, nil).status).To(Equal(http.StatusTooManyRequests), "requests with unknown keys count too")
}
