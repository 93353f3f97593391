package server_test

import (
	"context"
	"crypto/x509"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	if os.Getenv(pollersVariable) != "" {
		if err := pollForever(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "polling:", err)
			os.Exit(1)
		}
		return
	}
	ctrl.SetLogger(logr.Discard())
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" || flag.Lookup("test.fuzzworker").Value.String() == "true" {
		os.Exit(m.Run()) // fuzzed functions need no API server
	}
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

const (
	eventually = time.Minute
	often      = 5 * time.Millisecond
)

// harness is a manager with only the agent API, on a real listener and a real API server,
// with a fake clock.
type harness struct {
	tb        testing.TB
	namespace string
	// admin reads and writes the API server directly, as an administrator.
	admin client.Client
	// cached reads the cache of the API.
	cached client.Client
	server *server.Server
	// handled knows which states of objects the server has handled.
	handled *handledEvents
	url     string
	clock   *clocktesting.FakeClock
	writes  *writeRecorder
	logs    *logBuffer
	// metrics has the API's metrics.
	metrics  *prometheus.Registry
	recorder *events.FakeRecorder
	recorded []string
	roots    *x509.CertPool
	// network is nil for the real one.
	network *network
	stop    func()
}

// start starts the API in a new namespace.
func start(tb testing.TB, change ...func(*server.Options)) *harness {
	tb.Helper()
	return startIn(tb, env.Namespace(tb), clocktesting.NewFakeClock(time.Now()), change...)
}

func startIn(tb testing.TB, namespace string, clock *clocktesting.FakeClock, change ...func(*server.Options)) *harness {
	tb.Helper()
	return startAcross(tb, []string{namespace}, clock, change...)
}

// startAcross starts the API for several namespaces. The harness works in the first one.
func startAcross(tb testing.TB, namespaces []string, clock *clocktesting.FakeClock, change ...func(*server.Options)) *harness {
	tb.Helper()
	namespace, watched := namespaces[0], map[string]cache.Config{}
	for _, name := range namespaces {
		watched[name] = cache.Config{}
	}
	leaks := goleak.IgnoreCurrent()
	h := &harness{
		tb: tb, namespace: namespace, admin: env.Client(tb), clock: clock,
		writes: &writeRecorder{}, logs: &logBuffer{}, metrics: prometheus.NewRegistry(), recorder: events.NewFakeRecorder(10000),
	}
	tokens, err := labels.NewRequirement(infrav1.RegistrationLabel, selection.Exists, nil)
	h.must(err)
	managed := env.ManagerOptions()
	managed.BaseContext = func() context.Context {
		// From level 8 on the client logs bodies, and with them the Secrets that the manager reads.
		return ctrl.LoggerInto(context.Background(), funcr.NewJSON(h.logs.line, funcr.Options{Verbosity: 7}))
	}
	managed.Cache = cache.Options{
		DefaultNamespaces: watched,
		ByObject:          map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: labels.NewSelector().Add(*tokens)}},
	}
	managed.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
		c, err := client.NewWithWatch(config, options)
		if err != nil {
			return nil, err
		}
		return interceptor.NewClient(c, h.writes.funcs()), nil
	}
	mgr, err := ctrl.NewManager(env.Config, managed)
	h.must(err)
	h.must(index.Register(tb.Context(), mgr.GetFieldIndexer()))
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	h.must(err)
	h.url = "https://" + listener.Addr().String()
	h.cached = mgr.GetClient()
	ca := authority.New(mgr.GetAPIReader(), h.admin, namespace, h.clock)
	options := server.Options{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Informers: mgr.GetCache(), Authority: ca,
		Recorder: h.recorder, Metrics: h.metrics, Clock: h.clock,
		Listener: listener, URL: h.url, Namespace: namespace, HandshakeTimeout: eventually,
	}
	for _, f := range change {
		f(&options)
	}
	h.handled = newHandledEvents(options.Informers)
	options.Informers = h.handled
	h.server, err = server.New(options)
	h.must(err)
	h.must(h.server.SetupWithManager(mgr))

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	var once sync.Once
	h.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				h.must(err)
			case <-time.After(5 * time.Minute):
				tb.Error("the manager did not stop")
			}
			// Connections of the test's own agents may stay open.
			ignored := []goleak.Option{
				leaks, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
				goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
				goleak.IgnoreAnyFunction("net/http.(*http2clientConnReadLoop).run"),
				goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
				goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
				goleak.IgnoreTopFunction("k8s.io/client-go/util/workqueue.(*Typed[...]).updateUnfinishedWorkLoop"),
			}
			NewWithT(tb).Eventually(func() error { return goleak.Find(ignored...) }, eventually, often).Should(Succeed())
		})
	}
	tb.Cleanup(h.stop)
	bundle, err := ca.Bundle(tb.Context())
	h.must(err)
	h.roots = x509.NewCertPool()
	h.roots.AppendCertsFromPEM([]byte(bundle))
	h.cluster("c") // a missing Cluster counts as paused
	return h
}

// events returns the Events so far.
func (h *harness) events() []string {
	for {
		select {
		case event := <-h.recorder.Events:
			h.recorded = append(h.recorded, event)
		default:
			return h.recorded
		}
	}
}

func (h *harness) must(err error) {
	h.tb.Helper()
	if err != nil {
		h.tb.Fatal(err)
	}
}

// registration creates an ElementalRegistration and waits until it is in the cache.
func (h *harness) registration(name string, change ...func(*infrav1.ElementalRegistration)) *infrav1.ElementalRegistration {
	h.tb.Helper()
	r := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
	if h.network != nil {
		r.Spec.Approval = infrav1.ApprovalAutomatic // an API server in memory has no defaults
	}
	for _, f := range change {
		f(r)
	}
	h.must(h.admin.Create(h.tb.Context(), r))
	h.cachedSoon(r)
	return r
}

// token creates a token Secret of the registration and waits until it is in the cache.
func (h *harness) token(registration string, change ...func(*enrolment.Token)) (plain string, secret *corev1.Secret) {
	h.tb.Helper()
	plain = identity.NewToken()
	t := enrolment.Token{Hash: identity.HashToken(plain), ExpiresAt: h.clock.Now().Add(time.Hour), MaxUses: 1}
	for _, f := range change {
		f(&t)
	}
	secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.namespace, GenerateName: registration + "-", Labels: map[string]string{infrav1.RegistrationLabel: registration},
		},
		Type: infrav1.TokenSecretType,
		Data: map[string][]byte{enrolment.ConfigKey: []byte("token: " + plain)},
	}
	t.WriteTo(secret)
	h.must(h.admin.Create(h.tb.Context(), secret))
	h.cachedSoon(secret)
	return plain, secret
}

// host reads a host from the API server.
func (h *harness) host(name string) *infrav1.ElementalHost {
	h.tb.Helper()
	host := &infrav1.ElementalHost{}
	h.must(h.admin.Get(context.Background(), client.ObjectKey{Namespace: h.namespace, Name: name}, host))
	return host
}

// patch changes a host as an administrator or a controller would.
func (h *harness) patch(name string, change func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	h.tb.Helper()
	host := h.host(name)
	before := host.DeepCopy()
	change(host)
	h.must(h.admin.Patch(context.Background(), host, client.MergeFrom(before)))
	return host
}

// writeRecorder records writes to the API server.
type writeRecorder struct {
	mu     sync.Mutex
	writes []string
	// looked counts look-ups of hosts and tokens.
	looked int
}

// lookUps returns how often hosts and tokens were looked up.
func (r *writeRecorder) lookUps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looked
}

func (r *writeRecorder) add(verb string, o client.Object, sub string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1beta2.")
	r.writes = append(r.writes, strings.TrimSuffix(verb+" "+strings.TrimPrefix(kind, "*v1.")+"/"+sub, "/"))
}

// take returns the writes since the last call.
func (r *writeRecorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.writes)
	r.writes = nil
	return out
}

func (r *writeRecorder) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			switch l.(type) {
			case *infrav1.ElementalHostList, *corev1.SecretList:
				r.mu.Lock()
				r.looked++
				r.mu.Unlock()
			}
			return c.List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			r.add("create", o, "")
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			r.add("update", o, "")
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			r.add("patch", o, "")
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			r.add("patch", o, sub)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			r.add("update", o, sub)
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}
}

// logBuffer keeps log lines.
type logBuffer struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBuffer) line(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
}

func (b *logBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "\n")
}
