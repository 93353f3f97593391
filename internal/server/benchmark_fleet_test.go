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
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	// benchFleet is the number of hosts in benchmarks.
	benchFleet = 10_000
	// clusterSize is the number of hosts of each cluster.
	clusterSize = 5
	fleetSpace  = "fleet"
)

// bench is the agent API with a fleet in a simulated API server.
type bench struct {
	b         *testing.B
	memory    *controllertest.Memory
	authority *authority.Authority
	metrics   *prometheus.Registry
	server    *server.Server
	url       string
	// token permits any number of enrolments.
	token string
	// states are the TLS states of the hosts' connections.
	states []*tls.ConnectionState
}

// newBench returns a bench without hosts whose API is not started.
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

// startBench starts the API with n hosts in clusters of clusterSize.
func startBench(b *testing.B, n int) *bench {
	b.Helper()
	m := newBench(b)
	for i := range n / clusterSize {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: fleetSpace, Name: clusterName(i), UID: types.UID(clusterName(i))}}
		cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: clusterName(i)}
		m.create(cluster)
		infra := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: fleetSpace, Name: clusterName(i), Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName(i)},
			OwnerReferences: ownedBy(cluster),
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

// newState returns the TLS state of a connection with a new key.
func newState() *tls.ConnectionState {
	spki := make([]byte, 91)
	_, _ = rand.Read(spki)
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{
		PublicKey: &ecdsa.PublicKey{Curve: elliptic.P256()}, RawSubjectPublicKeyInfo: spki,
	}}}
}

// start starts the API, until the benchmark ends.
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

// sink is an http.ResponseWriter that keeps status and body.
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

// serve makes the API serve one HTTP request, as net/http would.
func (m *bench) serve(ctx context.Context, state *tls.ConnectionState, method, target string, body []byte, token string) *sink {
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
	return m.serve(ctx, state, http.MethodGet, protocol.PathPlan+"?boot=b&after="+after, nil, "")
}

// revision returns the revision of a host's plan.
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

// change changes an object as another client of the API server would.
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
