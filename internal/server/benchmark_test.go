package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// BenchmarkPoll measures a poll that is answered at once, and one that has to wait, with
// 10,000 hosts.
func BenchmarkPoll(b *testing.B) {
	m := startBench(b, benchFleet)
	b.Run("changed", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if got := m.get(b.Context(), m.states[i%benchFleet], ""); got.status != http.StatusOK {
				b.Fatalf("%d %s", got.status, got.body.String())
			}
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		revision := m.revision(b, 0)
		// With an ended context, the poll returns when it would wait.
		ended, cancel := context.WithCancel(b.Context())
		cancel()
		b.ReportAllocs()
		for b.Loop() {
			if got := m.get(ended, m.states[0], revision); got.status != 0 {
				b.Fatalf("%d %s", got.status, got.body.String())
			}
		}
	})
}

// BenchmarkReport measures reports of unchanged and changed facts.
func BenchmarkReport(b *testing.B) {
	m := startBench(b, benchFleet)
	clean := []byte(`{"cleanliness":{"clean":true}}`)
	send := func(b *testing.B, i int, body []byte) {
		b.Helper()
		if got := m.serve(b.Context(), m.states[i%benchFleet], http.MethodPost, protocol.PathReport, body, ""); got.status != http.StatusNoContent {
			b.Fatalf("%d %s", got.status, got.body.String())
		}
	}
	b.Run("unchanged", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			send(b, i, clean)
		}
	})
	b.Run("changed", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			send(b, i, fmt.Appendf(nil, `{"addresses":[{"type":"InternalIP","address":"10.9.%d.%d"}]}`, i>>8&0xff, i&0xff))
		}
	})
}

// BenchmarkEnrol measures enrolments by a token with 10,000 hosts, without the time of the
// API server.
func BenchmarkEnrol(b *testing.B) {
	m := startBench(b, benchFleet)
	body, err := json.Marshal(enrolRequest())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		state := newState()
		if got := m.serve(b.Context(), state, http.MethodPost, protocol.PathEnrol, body, m.token); got.status != http.StatusOK {
			b.Fatalf("%d %s", got.status, got.body.String())
		}
	}
}

// pollAll makes all hosts poll. answered receives the host of each answer; poll makes a
// host poll again.
func (m *bench) pollAll(b *testing.B) (answered <-chan int, poll func(i int)) {
	b.Helper()
	answers := make(chan int, benchFleet)
	var polls sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(func() {
		cancel()
		polls.Wait()
	})
	poll = func(i int) {
		revision := m.revision(b, i) //nolint:contextcheck // the benchmark's own
		polls.Go(func() {
			for {
				got := m.get(ctx, m.states[i], revision)
				if ctx.Err() != nil {
					return
				}
				if got.status == http.StatusOK {
					answers <- i
					return
				}
			}
		})
	}
	for i := range m.states {
		poll(i)
	}
	return answers, poll
}

// BenchmarkFanOut measures the time from a change to the answers of the affected polls,
// with 10,000 open polls.
func BenchmarkFanOut(b *testing.B) {
	m := startBench(b, benchFleet)
	answered, poll := m.pollAll(b)
	i := 0 // not reset between runs of the benchmark, so that each change is new
	b.Run("host", func(b *testing.B) {
		for ; b.Loop(); i++ {
			n := i % benchFleet
			host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: fleetSpace, Name: fmt.Sprintf("host-%06d", n)}}
			m.change(b, host, func() { host.Spec.Hostname = fmt.Sprintf("name-%d", i) })
			if got := <-answered; got != n {
				b.Fatalf("host %d was answered, not %d", got, n)
			}
			b.StopTimer()
			poll(n)
			b.StartTimer()
		}
	})
	b.Run("cluster", func(b *testing.B) {
		for ; b.Loop(); i++ {
			c := i % (benchFleet / clusterSize)
			infra := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: fleetSpace, Name: clusterName(c)}}
			m.change(b, infra, func() {
				infra.Spec.ControlPlaneEndpoint.Host = fmt.Sprintf("10.1.%d.%d", i>>8&0xff, i&0xff)
			})
			b.StopTimer()
			affected := make([]int, clusterSize)
			b.StartTimer()
			for j := range affected {
				if affected[j] = <-answered; affected[j]/clusterSize != c {
					b.Fatalf("host %d was answered, but is not in cluster %d", affected[j], c)
				}
			}
			b.StopTimer()
			for _, n := range affected {
				poll(n)
			}
			b.StartTimer()
		}
	})
}
