package problem_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

func TestWrite(t *testing.T) {
	for name, test := range map[string]struct {
		problem    *problem.Error
		status     int
		kind       string
		retryAfter string
	}{
		"without a delay":           {problem.TokenRefused(), http.StatusForbidden, protocol.ProblemTokenRefused, ""},
		"whole seconds":             {problem.TooManyRequests(5 * time.Minute), http.StatusTooManyRequests, problem.Blank, "300"},
		"a delay that is rounded":   {problem.Busy(1001 * time.Millisecond), http.StatusServiceUnavailable, problem.Blank, "2"},
		"a delay below one second":  {problem.Busy(time.Nanosecond), http.StatusServiceUnavailable, problem.Blank, "1"},
		"a status of the caller":    {problem.NoOperation(http.StatusConflict), http.StatusConflict, protocol.ProblemNoOperation, ""},
		"a reason that is revealed": {problem.BadRequest("too long"), http.StatusBadRequest, problem.Blank, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			answer := httptest.NewRecorder()
			test.problem.Write(answer)
			g.Expect(answer.Code).To(Equal(test.status))
			g.Expect(answer.Header().Get("Content-Type")).To(Equal("application/problem+json"))
			g.Expect(answer.Header().Get("Retry-After")).To(Equal(test.retryAfter))
			var body map[string]any
			g.Expect(json.Unmarshal(answer.Body.Bytes(), &body)).To(Succeed())
			g.Expect(body).To(Equal(map[string]any{"type": test.kind, "title": test.problem.Error(), "status": float64(test.status)}))
		})
	}
}

func TestDrainingSpreadsReconnections(t *testing.T) {
	g := NewWithT(t)
	delays := map[time.Duration]bool{}
	for range 100 {
		delay := problem.Draining().RetryAfter
		g.Expect(delay).To(And(BeNumerically(">=", time.Second), BeNumerically("<", 6*time.Second)))
		delays[delay] = true
	}
	g.Expect(len(delays)).To(BeNumerically(">", 50))
}
