package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
)

const (
	// benchFleet is the fleet that benchmarks are run with.
	benchFleet = 10_000
	// clusterSize is how many hosts a cluster of the fleet has.
	clusterSize = 5
	fleetSpace  = "fleet"
)

// bench is the agent API over a fleet in memory.
type bench struct {
	b         *testing.B
	memory    *controllertest.Memory
	authority *authority.Authority
	metrics   *prometheus.Registry
	server    *server.Server
	url       string
	// token lets any number of hosts in.
	token string
	// states are what TLS knows of the hosts' connections.
	states []*tls.ConnectionState
}

// newBench makes a fleet that has no hosts yet, and an API that does not run.
func newBench(b *testing.B) *bench {
	b.Helper()
	m := &bench{
		b: b, token: identity.NewToken(), metrics: prometheus.NewRegistry(),
		memory: controllertest.NewMemory(b, env.Scheme, cache.TransformStripManagedFields(), index.Register),
	}
	m.create(&infrav1.ElementalRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetSpace, Name: "fleet"},
		Spec:       infrav1.ElementalRegistrationSpec{Approval: infrav1.ApprovalAutomatic},
	})
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetSpace, Name: "token", Labels: map[string]string{infrav1.RegistrationLabel: "fleet"}},
		Type:       infrav1.TokenSecretType,
	}
	enrolment.Token{Hash: identity.HashToken(m.token), ExpiresAt: time.Now().Add(time.Hour), MaxUses: 1 << 30}.WriteTo(secret)
	m.create(secret)
	m.memory.Await(b, secret)
	m.authority = authority.New(m.memory.Live(), m.memory, fleetSpace, clock.RealClock{})
	return m
}

func (m *bench) create(o client.Object) {
	m.b.Helper()
	if err := m.memory.Create(m.b.Context(), o); err != nil {
		m.b.Fatal(err)
	}
}

// startBench starts the API with n hosts, of which each clusterSize are a cluster.
func startBench(b *testing.B, n int) *bench {
	b.Helper()
	m := newBench(b)
	for i := range n / clusterSize {
		infra := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: fleetSpace, Name: clusterName(i), Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName(i)},
		}}
		infra.Spec.ControlPlaneEndpoint.Host = "10.0.0.1"
		infra.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "x"}
		m.create(infra)
	}
	fingerprints := make([]string, n)
	for i := range n {
		state := newState()
		m.states = append(m.states, state)
		var err error
		if fingerprints[i], err = identity.PeerFingerprint(state); err != nil {
			b.Fatal(err)
		}
	}
	m.memory.AddFleet(b, fleetSpace, n, func(i int, host *infrav1.ElementalHost) {
		host.Spec.Identity.KeyFingerprint = fingerprints[i]
		id := fmt.Sprintf("claim-%d", i)
		host.Spec.Claim = &infrav1.HostClaim{ID: id, ClusterName: clusterName(i / clusterSize), MachineName: host.Name, Phase: infrav1.ClaimBound, Role: infrav1.RoleWorker}
		host.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: id, State: infrav1.OperationSucceeded}}
	})
	m.start()
	NewWithT(b).Eventually(func() int { return m.get(b.Context(), m.states[0], "").status }).WithTimeout(time.Minute).Should(Equal(http.StatusOK))
	return m
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%05d", i) }

// newState returns what TLS knows of a connection with a key of its own.
func newState() *tls.ConnectionState {
	spki := make([]byte, 91)
	_, _ = rand.Read(spki)
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{
		PublicKey: &ecdsa.PublicKey{Curve: elliptic.P256()}, RawSubjectPublicKeyInfo: spki,
	}}}
}

// start has the API serve until the benchmark ends.
func (m *bench) start() {
	m.b.Helper()
	listener, err := (&net.ListenConfig{}).Listen(m.b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		m.b.Fatal(err)
	}
	m.url = "https://" + listener.Addr().String()
	m.server, err = server.New(server.Options{
		Client: m.memory, APIReader: m.memory.Live(), Informers: m.memory.Cache, Authority: m.authority,
		Recorder: &events.FakeRecorder{}, Metrics: m.metrics, Clock: clock.RealClock{},
		Listener: listener, URL: m.url, Namespace: fleetSpace, EnrolRate: 1e9, EnrolBurst: 1 << 30,
	})
	if err != nil {
		m.b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.server.Start(ctx) }()
	m.b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			m.b.Error(err)
		}
	})
}

// sink is an answer that is thrown away but for its status and size.
type sink struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (s *sink) Header() http.Header {
	if s.header == nil {
		s.header = http.Header{}
	}
	return s.header
}
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return s.body.Write(p) }

// ask has the API serve one request, as net/http would.
func (m *bench) ask(ctx context.Context, state *tls.ConnectionState, method, target string, body []byte, token string) *sink {
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return &sink{}
	}
	r.TLS, r.RemoteAddr = state, "10.0.0.1:1234"
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	out := &sink{}
	m.server.ServeHTTP(out, r)
	return out
}

func (m *bench) get(ctx context.Context, state *tls.ConnectionState, after string) *sink {
	return m.ask(ctx, state, http.MethodGet, protocol.PathPlan+"?boot=b&after="+after, nil, "")
}

// revision of a host's plan.
func (m *bench) revision(b *testing.B, i int) string {
	b.Helper()
	return revisionOf(b, m.get(b.Context(), m.states[i], ""))
}

func revisionOf(b *testing.B, answer *sink) string {
	b.Helper()
	var p protocol.Plan
	if err := json.Unmarshal(answer.body.Bytes(), &p); err != nil || p.Revision == "" {
		b.Fatalf("no plan: %d %s: %v", answer.status, answer.body.String(), err)
	}
	return p.Revision
}

// BenchmarkPoll measures a poll that is answered at once, and one that begins to
// wait, among 10,000 hosts.
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
		// It does everything that a poll does before it waits.
		gone, cancel := context.WithCancel(b.Context())
		cancel()
		b.ReportAllocs()
		for b.Loop() {
			if got := m.get(gone, m.states[0], revision); got.status != 0 {
				b.Fatalf("%d %s", got.status, got.body.String())
			}
		}
	})
}

// BenchmarkReport measures a report of what is known and of something new.
func BenchmarkReport(b *testing.B) {
	m := startBench(b, benchFleet)
	clean := []byte(`{"cleanliness":{"clean":true}}`)
	send := func(b *testing.B, i int, body []byte) {
		b.Helper()
		if got := m.ask(b.Context(), m.states[i%benchFleet], http.MethodPost, protocol.PathReport, body, ""); got.status != http.StatusNoContent {
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

// BenchmarkEnrol measures the API's part in enrolments by a token, among 10,000
// hosts.
func BenchmarkEnrol(b *testing.B) {
	m := startBench(b, benchFleet)
	body, err := json.Marshal(enrolRequest())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		state := newState()
		if got := m.ask(b.Context(), state, http.MethodPost, protocol.PathEnrol, body, m.token); got.status != http.StatusOK {
			b.Fatalf("%d %s", got.status, got.body.String())
		}
	}
}

// waiting has all hosts poll and returns what tells of answers, by host.
func (m *bench) waiting(b *testing.B) (answered <-chan int, poll func(i int)) {
	b.Helper()
	told := make(chan int, benchFleet)
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
					told <- i
					return
				}
			}
		})
	}
	for i := range m.states {
		poll(i)
	}
	return told, poll
}

// BenchmarkFanOut measures the time from a change to the answers of the polls that
// it concerns, with 10,000 polls open.
func BenchmarkFanOut(b *testing.B) {
	m := startBench(b, benchFleet)
	answered, poll := m.waiting(b)
	i := 0 // runs of a benchmark may follow each other: each change is another
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
			concerned := make([]int, clusterSize)
			b.StartTimer()
			for j := range concerned {
				if concerned[j] = <-answered; concerned[j]/clusterSize != c {
					b.Fatalf("host %d was answered, which is not of cluster %d", concerned[j], c)
				}
			}
			b.StopTimer()
			for _, n := range concerned {
				poll(n)
			}
			b.StartTimer()
		}
	})
}

// change changes an object as somebody else would.
func (m *bench) change(b *testing.B, o client.Object, change func()) {
	b.Helper()
	if err := m.memory.Live().Get(b.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		b.Fatal(err)
	}
	before, _ := o.DeepCopyObject().(client.Object)
	change()
	if err := m.memory.Patch(b.Context(), o, client.MergeFrom(before)); err != nil {
		b.Fatal(err)
	}
}
