package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

const (
	// soon is longer than an agent takes to find out, without a word from the other side, that
	// its connection is dead.
	soon  = 5 * time.Minute
	often = 10 * time.Millisecond
)

// rig is the real agent API at a real API server.
type rig struct {
	*WithT

	t         *testing.T
	namespace string
	admin     client.Client
	server    *server.Server
	settings  fleet.Settings
}

// newRig starts a manager that runs nothing but the agent API. Hosts that have a
// token are let in.
func newRig(t *testing.T, change ...func(*server.Options)) *rig {
	t.Helper()
	r := &rig{WithT: NewWithT(t), t: t, namespace: env.Namespace(t), admin: env.Client(t)}
	managed := env.ManagerOptions()
	managed.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{r.namespace: {}}}
	mgr, err := ctrl.NewManager(env.Config, managed)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(index.Register(t.Context(), mgr.GetFieldIndexer())).To(Succeed())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	r.Expect(err).NotTo(HaveOccurred())
	ca := authority.New(mgr.GetAPIReader(), r.admin, r.namespace, clock.RealClock{})
	options := server.Options{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Informers: mgr.GetCache(), Authority: ca,
		Recorder: events.NewFakeRecorder(10000), Metrics: prometheus.NewRegistry(), Clock: clock.RealClock{},
		Listener: listener, URL: "https://" + listener.Addr().String(), Namespace: r.namespace,
	}
	for _, f := range change {
		f(&options)
	}
	s, err := server.New(options)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(s.SetupWithManager(mgr)).To(Succeed())
	r.server = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		r.Expect(<-done).To(Succeed())
	})
	bundle, err := ca.Bundle(t.Context())
	r.Expect(err).NotTo(HaveOccurred())
	r.settings = fleet.Settings{
		Servers: []string{options.URL}, TrustBundle: bundle, Token: r.token(), Folder: t.TempDir(), AgentRestart: time.Millisecond,
	}
	if testing.Verbose() {
		r.settings.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	return r
}

// token makes a registration and a token of it that any number of hosts may use.
func (r *rig) token() string {
	r.t.Helper()
	r.Expect(r.admin.Create(r.t.Context(), &infrav1.ElementalRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "r"},
		Spec:       infrav1.ElementalRegistrationSpec{Approval: infrav1.ApprovalAutomatic},
	})).To(Succeed())
	plain := identity.NewToken()
	t := enrolment.Token{Hash: identity.HashToken(plain), ExpiresAt: time.Now().Add(time.Hour), MaxUses: 100000}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "r", Labels: map[string]string{infrav1.RegistrationLabel: "r"}},
		Type:       infrav1.TokenSecretType, Data: map[string][]byte{enrolment.ConfigKey: []byte("token: " + plain)},
	}
	t.WriteTo(secret)
	r.Expect(r.admin.Create(r.t.Context(), secret)).To(Succeed())
	return plain
}

// fleet makes a fleet that ends with the test, and sees to it that nothing is left.
func (r *rig) fleet(change ...func(*fleet.Settings)) *fleet.Fleet {
	r.t.Helper()
	s := r.settings
	for _, f := range change {
		f(&s)
	}
	f, err := fleet.New(s)
	r.Expect(err).NotTo(HaveOccurred())
	r.t.Cleanup(func() {
		r.Expect(f.Close()).To(Succeed())
		r.Eventually(left, soon, often).Should(BeEmpty())
	})
	return f
}

// left are the stacks of goroutines of virtual hosts and agents. Those of the
// manager are its own business.
func left() []string {
	stacks := make([]byte, 16<<20)
	all := strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n")
	return slices.DeleteFunc(all, func(stack string) bool {
		return !strings.Contains(stack, "/internal/agent") && !strings.Contains(stack, "/test/harness/fleet.")
	})
}

// host makes a fleet of one host and waits until it is connected.
func (r *rig) host(change ...func(*fleet.Settings)) *fleet.Host {
	r.t.Helper()
	f := r.fleet(change...)
	r.Expect(f.PowerOn(r.t.Context(), 0)).To(Succeed())
	h := f.Hosts()[0]
	r.connected(h)
	return h
}

func (r *rig) connected(h *fleet.Host) {
	r.t.Helper()
	r.Eventually(func() string { return h.Status().State }, soon, often).Should(Equal("Connected"))
}

// object is the host's ElementalHost.
func (r *rig) object(h *fleet.Host) *infrav1.ElementalHost {
	r.t.Helper()
	o := &infrav1.ElementalHost{}
	r.Expect(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: r.namespace, Name: h.Status().ElementalHost}, o)).To(Succeed())
	return o
}

func (r *rig) change(h *fleet.Host, change func(*infrav1.ElementalHost)) {
	r.t.Helper()
	o := r.object(h)
	before := o.DeepCopy()
	change(o)
	r.Expect(r.admin.Patch(r.t.Context(), o, client.MergeFrom(before))).To(Succeed())
}

// claim gives the host to a new Machine whose bootstrap data is data.
func (r *rig) claim(h *fleet.Host, name, data string) {
	r.t.Helper()
	r.claimFor(h, name, data, "")
}

// claimFor is claim for a Machine with a role.
func (r *rig) claimFor(h *fleet.Host, name, data string, role infrav1.ClaimRole) {
	r.t.Helper()
	labels := map[string]string{clusterv1.ClusterNameLabel: "c"}
	meta := metav1.ObjectMeta{Namespace: r.namespace, Name: name, Labels: labels}
	secret := &corev1.Secret{
		ObjectMeta: meta, Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": []byte(data), "format": []byte("cloud-config")},
	}
	machine := &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
		ClusterName: "c", Bootstrap: clusterv1.Bootstrap{DataSecretName: &name},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name},
	}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "c"}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: "c"}
	r.Expect(client.IgnoreAlreadyExists(r.admin.Create(r.t.Context(), cluster))).To(Succeed())
	r.Expect(r.admin.Create(r.t.Context(), secret)).To(Succeed())
	r.Expect(r.admin.Create(r.t.Context(), machine)).To(Succeed())
	infra := &infrav1.ElementalMachine{ObjectMeta: meta, Spec: infrav1.ElementalMachineSpec{
		HostRef: &infrav1.HostReference{Name: r.object(h).Name, ClaimID: name},
	}}
	infra.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: machine.UID,
	}}
	r.Expect(r.admin.Create(r.t.Context(), infra)).To(Succeed())
	r.change(h, func(o *infrav1.ElementalHost) {
		o.Spec.Claim = &infrav1.HostClaim{ID: name, ClusterName: "c", MachineName: name, Phase: infrav1.ClaimBound, Role: role}
	})
}

// ended waits for the end of an operation and returns it.
func (r *rig) ended(h *fleet.Host, kind infrav1.OperationType, id string) infrav1.HostOperation {
	r.t.Helper()
	var op *infrav1.HostOperation
	r.Eventually(func() bool {
		op = r.object(h).Operation(kind, id)
		return op != nil && (op.State == infrav1.OperationSucceeded || op.State == infrav1.OperationFailed)
	}, soon, often).Should(BeTrue())
	return *op
}

// software writes down what it is asked to do, and leaves one file.
type software struct {
	mu   sync.Mutex
	did  []string
	errs map[string]error
	// hold keeps bootstraps going until it is closed.
	hold    chan struct{}
	refused netip.AddrPort
}

func (s *software) note(format string, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	s.did = append(s.did, line)
	return s.errs[line]
}

func (s *software) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.did)
}

func (s *software) Check(data []byte, _ string) error {
	if string(data) == "nonsense" {
		return errors.New("this is nonsense")
	}
	return nil
}

func (s *software) Bootstrap(ctx context.Context, m fleet.Machine, data []byte, format string, progress func(string)) error {
	if err := s.note("bootstrap %s %s as %s", data, format, m.Hostname); err != nil {
		return err
	}
	progress("installing")
	path := filepath.Join(m.Root, "etc", "installed")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
		return err
	}
	if s.hold != nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.hold:
		}
	}
	return s.note("bootstrapped")
}

func (s *software) Boot(context.Context, fleet.Machine) error { return s.note("boot") }

func (s *software) Halt(fleet.Machine) { _ = s.note("halt") }

func (s *software) Network(_ fleet.Machine, up bool) { _ = s.note("network %t", up) }

func (s *software) Refuse(_ fleet.Machine, at netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = at
}

func (s *software) Remove(fleet.Machine) error { return s.note("remove") }
