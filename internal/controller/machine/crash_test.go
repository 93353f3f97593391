package machine_test

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
)

// runLifecycle creates, provisions and deletes a machine and checks each step. It returns
// the number of writes by the reconcilers.
func runLifecycle(t *testing.T, failAt int, moment controllertest.Moment) int {
	t.Helper()
	f := newFixture(t)
	hosts := []*infrav1.ElementalHost{f.Host("h1"), f.Host("h2")}
	f.Cluster("c")
	owner, m := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.Finalizers = []string{clusterv1.MachineFinalizer}
	})
	settle := func() []string {
		f.settle([]*infrav1.ElementalMachine{m}, hosts)
		var claims []string
		for _, h := range hosts {
			f.Refresh(h)
			claims = append(claims, claimOf(h))
		}
		return claims
	}
	f.Client.FailWrite(failAt, moment)

	f.Expect(settle()).To(Equal([]string{"Bound m", "free"}))
	f.Refresh(m)
	f.Expect(m.Spec.HostRef.ClaimID).To(Equal(hosts[0].Spec.Claim.ID))

	f.ReportOperation(hosts[0], infrav1.OperationBootstrap, infrav1.OperationSucceeded)
	settle()
	f.ExpectCondition(m, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)

	f.Delete(owner)
	f.Delete(m)
	f.Expect(settle()).To(Equal([]string{"Releasing m", "free"}))
	f.ReportOperation(hosts[0], infrav1.OperationReset, infrav1.OperationSucceeded)
	f.Expect(settle()).To(Equal([]string{"Releasing m", "free"}))
	f.Expect(f.Exists(m)).To(BeFalse())
	remove(f, owner)
	f.Expect(settle()).To(Equal([]string{"free", "free"}))
	f.ExpectCondition(hosts[0], infrav1.AvailableCondition, yes, infrav1.AvailableReason)
	return len(f.Client.Writes())
}

// Whichever write fails or gets no response, and although the reconcilers are new
// afterwards, the machine gets the same host, and only that host, and releases it.
func TestCrashAtEveryWrite(t *testing.T) {
	const never = 1 << 30
	writes := runLifecycle(t, never, controllertest.BeforeWrite)
	NewWithT(t).Expect(writes).To(BeNumerically(">=", 10))
	for n, moment := range controllertest.Crashes(writes) {
		t.Run(fmt.Sprintf("%s %d", moment, n), func(t *testing.T) {
			t.Parallel()
			runLifecycle(t, n, moment)
		})
	}
}

// staleHosts returns a client whose cache still shows the hosts in an old state.
func staleHosts(f *fixture, as ...*infrav1.ElementalHost) client.Client {
	live, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Scheme})
	f.Expect(err).NotTo(HaveOccurred())
	return interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if host, ok := o.(*infrav1.ElementalHost); ok {
				for _, old := range as {
					if old.Name == key.Name {
						old.DeepCopyInto(host)
						return nil
					}
				}
			}
			return f.Client.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := f.Client.List(ctx, list, opts...); err != nil {
				return err
			}
			hosts, ok := list.(*infrav1.ElementalHostList)
			if !ok {
				return nil
			}
			o := client.ListOptions{}
			o.ApplyOptions(opts)
			if o.FieldSelector != nil && o.FieldSelector.String() == "spec.claim.clusterName=/free" {
				hosts.Items = nil
				for _, old := range as {
					hosts.Items = append(hosts.Items, *old)
				}
			} else if o.FieldSelector != nil {
				hosts.Items = nil
			}
			return nil
		},
	})
}

func withCache(f *fixture, c client.Client) *machine.Reconciler {
	return &machine.Reconciler{Client: c, APIReader: f.Admin, Recorder: f.Recorder, Clock: f.Clock}
}

func TestStaleCacheDoesNotClaimAClaimedHost(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	host := f.Host("h1")
	asFree := host.DeepCopy()
	bound(f, host, "m", false)
	_, other := f.Machine("c", "other")
	r := withCache(f, staleHosts(f, asFree))
	for range 3 {
		_, err := r.Reconcile(f.Ctx, request(other))
		f.Expect(err).NotTo(HaveOccurred())
	}
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound m"))

	f.Host("h2")
	f.reconcile(other)
	f.Expect(other.Spec.HostRef.Name).To(Equal("h2"))
}

// The cache does not show the claim yet. The machine must not be deleted before its host
// is released.
func TestStaleCacheDoesNotPreventARelease(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	host := f.Host("h1")
	asFree := host.DeepCopy()
	_, m := bound(f, host, "m", false)
	f.Delete(m)
	_, err := withCache(f, staleHosts(f, asFree)).Reconcile(f.Ctx, request(m))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(f.Exists(m)).To(BeTrue())
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
}

func TestStaleCacheDoesNotLoseABoundHost(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	host := f.Host("h1")
	asFree := host.DeepCopy()
	_, m := bound(f, host, "m", true)
	f.Client.Forget()
	_, err := withCache(f, staleHosts(f, asFree)).Reconcile(f.Ctx, request(m))
	f.Expect(err).NotTo(HaveOccurred())
	f.ExpectCondition(m, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound m"))
}

// A manager that lost leadership may still bind a host, while the new leader deletes the
// machine or chooses another host.
func TestBindAfterLossOfLeadership(t *testing.T) {
	for name, meanwhile := range map[string]func(*fixture, *infrav1.ElementalMachine){
		"machine gone": func(f *fixture, m *infrav1.ElementalMachine) {
			f.Delete(m)
			controllertest.Change(f.Fixture, m, func(m *infrav1.ElementalMachine) { m.Finalizers = nil })
		},
		"machine being deleted": func(f *fixture, m *infrav1.ElementalMachine) { f.Delete(m) },
		"another choice": func(f *fixture, m *infrav1.ElementalMachine) {
			controllertest.Change(f.Fixture, m, func(m *infrav1.ElementalMachine) {
				m.Spec.HostRef = &infrav1.HostReference{Name: "h9", ClaimID: "another"}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Cluster("c")
			host := f.Host("h1")
			_, m := f.Machine("c", "m")
			live, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Scheme})
			f.Expect(err).NotTo(HaveOccurred())
			once := true
			slow := interceptor.NewClient(live, interceptor.Funcs{
				Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					return f.Client.Get(ctx, key, o, opts...)
				},
				List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					return f.Client.List(ctx, list, opts...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if _, ok := o.(*infrav1.ElementalHost); ok && once {
						once = false
						meanwhile(f, m)
					}
					return c.Patch(ctx, o, p, opts...)
				},
			})
			_, err = withCache(f, slow).Reconcile(f.Ctx, request(m))
			f.Expect(client.IgnoreNotFound(err)).To(Succeed())
			f.Expect(once).To(BeFalse())
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal("Releasing m"), "the manager that bound the host must release it, because no other manager knows of it")
		})
	}
}
