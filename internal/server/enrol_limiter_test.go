package server_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
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

// creations are the keys of the hosts that are being created.
type creations struct {
	mu   sync.Mutex
	keys []string
}

func (c *creations) add(host *infrav1.ElementalHost) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys = append(c.keys, host.Spec.Identity.KeyFingerprint)
}

// all returns the keys in the order of their creations.
func (c *creations) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.keys)
}

// startBlocked starts an API with a limit of concurrent enrolments, where the creation of
// each host blocks until release is called. creating has blocked creations.
func startBlocked(t *testing.T, atOnce int) (h *harness, creating *creations, release func()) {
	t.Helper()
	creating = &creations{}
	unblock := make(chan struct{})
	h = start(t, func(o *server.Options) {
		o.MaxEnrolments = atOnce
		o.Client = interceptor.NewClient(o.Client.(client.WithWatch), interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if host, isHost := obj.(*infrav1.ElementalHost); isHost {
					creating.add(host)
					<-unblock
				}
				return c.Create(ctx, obj, opts...)
			},
		})
	})
	release = sync.OnceFunc(func() { close(unblock) })
	t.Cleanup(release)
	return h, creating, release
}

// limiterTimeout is how long an enrolment waits for a slot.
const limiterTimeout = 15 * time.Second

// waiting waits until that many enrolments wait for a slot. Each has a timer, like the server's
// queue of timed calls.
func (h *harness) waiting(enrolments int) {
	h.tb.Helper()
	NewWithT(h.tb).Eventually(h.clock.Waiters, eventually, often).Should(Equal(1 + enrolments))
}

// Concurrent enrolments are bounded. Further ones wait, and have to retry later if that
// takes long.
func TestThreat15_EnrolmentsAreBounded(t *testing.T) {
	const atOnce, more = 2, 3
	g := NewWithT(t)
	h, creating, release := startBlocked(t, atOnce)
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
	g.Eventually(creating.all, eventually, often).Should(HaveLen(atOnce))
	enrol()
	h.waiting(1)
	h.step(limiterTimeout)
	var got answer
	g.Eventually(answers, eventually).Should(Receive(&got))
	g.Expect(got.status).To(Equal(http.StatusServiceUnavailable))
	g.Expect(got.header.Get("Retry-After")).To(Equal("5"))

	// Waiting callers enrol when others are done.
	for range more - 1 {
		enrol()
	}
	h.waiting(more - 1)
	g.Expect(creating.all()).To(HaveLen(atOnce))
	release()
	for range atOnce + more - 1 {
		g.Eventually(answers, eventually).Should(Receive(&got))
		g.Expect(got.status).To(Equal(http.StatusOK))
	}
}

// One key takes only one slot of the limiter, and no caller waits when the server stops.
func TestThreat15_OneKeyOneEnrolment(t *testing.T) {
	g := NewWithT(t)
	h, creating, release := startBlocked(t, 2)
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
	repeating := h.agent()
	for range 5 {
		enrol(repeating)
	}
	g.Eventually(creating.all, eventually, often).ShouldNot(BeEmpty())
	other := h.agent()
	enrol(other)
	g.Eventually(creating.all, eventually, often).Should(HaveLen(2))
	g.Expect(creating.all()).To(Equal([]string{repeating.fingerprint, other.fingerprint}))

	enrol(h.agent())
	h.waiting(1)
	g.Expect(answers).NotTo(Receive())
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
