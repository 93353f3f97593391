//go:build embedded

package skew

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/machines"
)

const (
	soon    = 3 * time.Minute
	sites   = "sites"
	cluster = "load"
)

// root is the folder of this repository.
func root(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "..", ".."))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return folder
}

// rig is a management cluster without Cluster API's managers.
type rig struct {
	*WithT

	t          *testing.T
	management *embedded.Cluster
	admin      client.WithWatch
	token      string
	fleets     []*remote.Fleet
}

func newRig(t *testing.T, checkout string) *rig {
	t.Helper()
	r := &rig{WithT: NewWithT(t), t: t}
	r.SetDefaultEventuallyTimeout(soon)
	var err error
	r.management, err = embedded.Start(t.Context(), embedded.Options{Checkout: checkout, Alone: true, OneVersion: true, Simulation: true, Progress: os.Stderr})
	r.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { r.Expect(r.management.Stop()).To(Succeed()) })
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		r.Expect(add(scheme)).To(Succeed())
	}
	r.admin, err = client.NewWithWatch(r.management.Config, client.Options{Scheme: scheme})
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sites}})).To(Succeed())
	r.token = r.register("edge", infrav1.ApprovalAutomatic)
	return r
}

// register creates a registration and returns its token.
func (r *rig) register(name string, approval infrav1.ApprovalPolicy) string {
	r.t.Helper()
	registration := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: sites, Name: name}}
	registration.Spec.Token.MaxUses, registration.Spec.Approval = 1000, approval
	r.Expect(r.admin.Create(r.t.Context(), registration)).To(Succeed())
	r.Eventually(func(g Gomega) {
		g.Expect(r.admin.Get(r.t.Context(), client.ObjectKeyFromObject(registration), registration)).To(Succeed())
		g.Expect(registration.Status.TokenSecretRef).NotTo(BeNil())
	}).Should(Succeed())
	secret := &corev1.Secret{}
	r.Expect(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: sites, Name: registration.Status.TokenSecretRef.Name}, secret)).To(Succeed())
	config, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
	r.Expect(err).NotTo(HaveOccurred())
	return config.Token
}

// fleet starts virtual hosts with the agents of a checkout.
func (r *rig) fleet(prefix, checkout string, count int) {
	r.t.Helper()
	program := filepath.Join(r.t.TempDir(), "fleet")
	_, err := shell.Command{
		Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-o", program, "./test/harness/fleet/cmd/fleet"},
		Dir:  checkout, Env: []string{"CGO_ENABLED=0"},
	}.Run(r.t.Context())
	r.Expect(err).NotTo(HaveOccurred())
	f, err := remote.Start(r.t.Context(), []string{program}, fleet.Settings{
		Count: count, Prefix: prefix, Servers: []string{r.management.AgentURL}, TrustBundle: r.management.CABundle, Token: r.token,
		BootTime: 100 * time.Millisecond,
	}, os.Stderr)
	r.Expect(err).NotTo(HaveOccurred())
	r.t.Cleanup(func() { _ = f.Close() })
	r.Expect(f.Do(r.t.Context(), remote.PowerOn, time.Second)).To(Succeed())
	r.fleets = append(r.fleets, f)
}

// done counts what hosts have done.
func (r *rig) done() (bootstraps, resets int) {
	r.t.Helper()
	for _, f := range r.fleets {
		all, err := f.Status(r.t.Context())
		r.Expect(err).NotTo(HaveOccurred())
		for i := range all {
			bootstraps, resets = bootstraps+all[i].Done.Bootstraps, resets+all[i].Done.Resets
		}
	}
	return bootstraps, resets
}

// load creates Machines and deletes them when they are provisioned.
type load struct {
	r        *rig
	client   *machines.Client
	next     atomic.Int32
	finished atomic.Int32
	running  sync.WaitGroup
	stop     chan struct{}

	mu     sync.Mutex
	faults []error
}

// newLoad starts count workers, each with one Machine at a time.
func (r *rig) newLoad(count int) *load {
	r.t.Helper()
	l := &load{r: r, stop: make(chan struct{}), client: &machines.Client{
		Admin: r.admin, Namespace: sites, Cluster: r.management, Progress: shell.NewProgress(os.Stderr),
	}}
	r.Expect(l.client.CreateCluster(r.t.Context(), cluster)).To(Succeed())
	r.Expect(l.client.Release(r.t.Context(), cluster)).To(Succeed())
	for range count {
		l.running.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				if err := l.cycle(r.t.Context()); err != nil {
					l.mu.Lock()
					l.faults = append(l.faults, err)
					l.mu.Unlock()
					return
				}
				l.finished.Add(1)
			}
		})
	}
	return l
}

// end stops the load after the Machines that are under way, and returns how many there were.
func (l *load) end() int {
	l.r.t.Helper()
	close(l.stop)
	l.running.Wait()
	l.r.Expect(l.faults).To(BeEmpty())
	return int(l.finished.Load())
}

// cycle is the life of one Machine. Only its time limit ends it: the manager and its webhooks are away now and then.
func (l *load) cycle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	name := fmt.Sprintf("%s-%04d", cluster, l.next.Add(1))
	key := client.ObjectKey{Namespace: sites, Name: name}
	owner, infra := &clusterv1.Machine{}, &infrav1.ElementalMachine{}
	for _, step := range []struct {
		name string
		try  func() bool
	}{
		{"being created", func() bool {
			if l.client.CreateMachine(ctx, cluster, name) == nil {
				return true
			}
			// The ElementalMachine, which is the last, needs the webhook. Remove what is there, and begin anew.
			for _, obj := range []client.Object{&corev1.Secret{}, &clusterv1.Machine{}} {
				obj.SetNamespace(sites)
				obj.SetName(name)
				_ = l.r.admin.Delete(ctx, obj)
			}
			return false
		}},
		{"being provisioned", func() bool {
			err := l.r.admin.Get(ctx, key, infra)
			return err == nil && infra.Status.Initialization.Provisioned != nil && *infra.Status.Initialization.Provisioned
		}},
		{"being deleted", func() bool { return l.r.admin.Delete(ctx, infra) == nil }},
		{"being released", func() bool { return apierrors.IsNotFound(l.r.admin.Get(ctx, key, infra)) }},
		{"being forgotten", func() bool {
			owner.Namespace, owner.Name = sites, name
			return l.r.admin.Delete(ctx, owner) == nil
		}},
	} {
		for !step.try() {
			select {
			case <-ctx.Done():
				return fmt.Errorf("machine %s: %s: %w; %+v", name, step.name, context.Cause(ctx), infra.Status.Conditions)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}
