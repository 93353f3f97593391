package server_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// startHeld starts an API that lets so many hosts enrol at once, whose creation waits
// for release; creating counts it.
func startHeld(t *testing.T, atOnce int) (h *harness, creating *atomic.Int32, release func()) {
	t.Helper()
	creating = &atomic.Int32{}
	goOn := make(chan struct{})
	h = start(t, func(o *server.Options) {
		o.MaxEnrolments = atOnce
		o.Client = interceptor.NewClient(o.Client.(client.WithWatch), interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if _, isHost := obj.(*infrav1.ElementalHost); isHost {
					creating.Add(1)
					<-goOn
				}
				return c.Create(ctx, obj, opts...)
			},
		})
	})
	release = sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	return h, creating, release
}

// A storm of enrolments does not all reach the API server at once: some do, others
// wait, and who waits long is sent away for a while.
func TestThreat15_EnrolmentsTakeTurns(t *testing.T) {
	const atOnce, more = 2, 3
	g := NewWithT(t)
	h, creating, release := startHeld(t, atOnce)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = atOnce + more })
	answers := make(chan answer, atOnce+more)
	enrol := func() {
		a := h.agent()
		go func() {
			got, err := a.do(context.Background(), http.MethodPost, protocol.PathEnrol, token, enrolRequest())
			if err == nil {
				answers <- got
			}
		}()
	}
	for range atOnce {
		enrol()
	}
	g.Eventually(creating.Load, eventually, often).Should(BeEquivalentTo(atOnce))
	enrol()
	var got answer
	g.Eventually(func() bool {
		h.clock.Step(time.Second)
		select {
		case got = <-answers:
			return true
		default:
			return false
		}
	}, eventually, often).Should(BeTrue())
	g.Expect(got.status).To(Equal(http.StatusServiceUnavailable))
	g.Expect(got.header.Get("Retry-After")).To(Equal("5"))

	// Who waits is let in when others have left.
	for range more - 1 {
		enrol()
	}
	g.Consistently(creating.Load, 200*time.Millisecond).Should(BeEquivalentTo(atOnce))
	release()
	for range atOnce + more - 1 {
		g.Eventually(answers, eventually).Should(Receive(&got))
		g.Expect(got.status).To(Equal(http.StatusOK))
	}
}

// One key that asks many times at once has one turn, and the end of the process has
// nobody wait.
func TestThreat15_OneKeyOneTurn(t *testing.T) {
	g := NewWithT(t)
	h, creating, release := startHeld(t, 2)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 10 })
	answers := make(chan answer, 10)
	enrol := func(a *agent) {
		go func() {
			got, err := a.do(context.Background(), http.MethodPost, protocol.PathEnrol, token, enrolRequest())
			if err == nil {
				answers <- got
			}
		}()
	}
	greedy := h.agent()
	for range 5 {
		enrol(greedy)
	}
	g.Eventually(creating.Load, eventually, often).Should(BeEquivalentTo(1))
	enrol(h.agent())
	g.Eventually(creating.Load, eventually, often).Should(BeEquivalentTo(2))

	enrol(h.agent()) // it has no turn yet
	g.Consistently(answers, 100*time.Millisecond).ShouldNot(Receive())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		h.stop()
	}()
	var got answer
	g.Eventually(answers, eventually).Should(Receive(&got))
	g.Expect(got.status).To(Equal(http.StatusServiceUnavailable))
	release()
	g.Eventually(stopped, eventually).Should(BeClosed())
}
