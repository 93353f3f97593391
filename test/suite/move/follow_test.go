//go:build embedded

package move

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

var (
	moves = flag.Int("moves", 4, "how often everything is moved, at least")
	span  = flag.Duration("for", 0, "go on with moves until this time is over")
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()), "decides when clusterctl is interrupted, and which hosts are cut off")
)

// workers is how many Machines get any host that is free.
const workers = 8

// mover runs clusterctl.
type mover struct {
	*WithT

	t             *testing.T
	program, home string
	random        *rand.Rand
	// took is the duration of the last move that was not interrupted.
	took time.Duration
}

func newMover(t *testing.T) *mover {
	t.Helper()
	t.Logf("seed %d", *seed)
	return &mover{WithT: NewWithT(t), t: t, program: clusterctl(t), home: t.TempDir(), random: rand.New(rand.NewPCG(*seed, 0)), took: 3 * time.Second}
}

// move moves everything in a namespace. It kills clusterctl at random times, and begins anew.
func (m *mover) move(from, to *management, namespace string) (interruptions int) {
	m.t.Helper()
	for {
		limit := time.Hour
		if interruptions < 3 {
			limit = time.Duration(m.random.Int64N(int64(m.took) * 3 / 2))
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(m.t.Context(), limit)
		command := exec.CommandContext(ctx, m.program, "move", "--kubeconfig", from.embedded.Kubeconfig, "--to-kubeconfig", to.embedded.Kubeconfig, "--namespace", namespace)
		command.Env = append(os.Environ(), "HOME="+m.home, "XDG_CONFIG_HOME="+m.home, "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
		out, err := command.CombinedOutput()
		isCut := ctx.Err() != nil
		cancel()
		if err == nil {
			m.took = time.Since(began)
			return interruptions
		}
		if !isCut {
			m.Expect(err).NotTo(HaveOccurred(), string(out))
		}
		m.t.Logf("  clusterctl was killed after %s", limit.Round(time.Millisecond))
		interruptions++
		// clusterctl begins with no Cluster that is paused.
		from.resume()
	}
}

// done counts what hosts have done.
func done(fleets ...*fleet.Fleet) (bootstraps, resets int) {
	for _, f := range fleets {
		for _, h := range f.Hosts() {
			s := h.Status()
			bootstraps, resets = bootstraps+s.Done.Bootstraps, resets+s.Done.Resets
		}
	}
	return bootstraps, resets
}

// Everything is moved back and forth between two management clusters. clusterctl is killed at random times and run
// again; in each move a host has lost its network, and another one its power. Others are held, cordoned, in maintenance,
// quarantined, locked, fenced, rejected, or wait for their reset. Hosts keep claims, keys and data, and are connected within a
// minute.
func TestHostsFollowMoves(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	m := newMover(t)
	from, to := startManagement(t, "first", "--agent-disconnect-grace=5s"), startManagement(t, "second", "--agent-disconnect-grace=5s")
	// As many moves as possible happen, so agents try successors at once. TestGrantedHostsFollowMoves has them wait.
	prompt := func(s *fleet.Settings) {
		s.Adjust = func(o *assembly.Options) { o.TrialSpread = 500 * time.Millisecond }
	}
	edge := from.fleet("edge", from.register("edge", infrav1.ApprovalAutomatic), 12, prompt)
	pending := from.fleet("pending", from.register("pending", infrav1.ApprovalManual), 2, prompt)
	from.workers(workers)
	from.settle()
	from.settleHosts(workers)
	others := from.fleet("other", from.register("other", infrav1.ApprovalAutomatic), 8, prompt)
	in := from.phases(others)
	from.settle()
	bootstraps, resets := done(edge, pending, others)
	m.Expect(bootstraps).To(Equal(workers + len(in.withMachine())))
	m.Expect(resets).To(BeZero())
	before := map[string]infrav1.ElementalHostSpec{}
	for _, h := range from.hosts() {
		before[h.Name] = h.Spec
	}
	var slowest time.Duration
	count, inTime, kills, began := 0, 0, 0, time.Now()
	digest := from.announceTo(to)
	// The last move leads back: hosts without a network since before the first one know nothing but the first management
	// cluster.
	for count < *moves && *span == 0 || time.Since(began) < *span || count%2 == 1 {
		if *span == 0 || time.Since(began) < *span {
			inTime++
		}
		started := time.Now()
		from.awaitReached(digest)
		from.awaitStored(pending, to)
		reached := time.Since(started)
		dark, off := edge.Hosts()[m.random.IntN(12)], pending.Hosts()[m.random.IntN(2)]
		dark.SetNetwork(false)
		off.PowerOff()
		cuts := m.move(from, to, sites)
		ended := time.Now()
		m.Expect(from.isEmpty()).To(BeTrue(), "%s has everything moved", from.name)
		// What follows takes time in which agents try the way back.
		digest = to.announceTo(from)
		to.resume()
		to.removeLeftovers(sites)
		to.settle()
		dark.SetNetwork(true)
		off.PowerOn()
		to.connected(in.away())
		took := time.Since(ended)
		to.settleHosts(workers + 1)
		in.expectConnected(to)
		count, kills, slowest = count+1, kills+cuts, max(slowest, took)
		t.Logf("move %d to %s took %s, with %d kills of clusterctl: hosts had reached it after %s, moved after another %s, all hosts connected after another %s",
			count, to.name, tenths(time.Since(started)), cuts, tenths(reached), tenths(ended.Sub(started)-reached), tenths(took))
		last, _ := to.lastConnected()
		m.Expect(took).To(BeNumerically("<", time.Minute), "hosts must be connected within a minute of the move; %s was the last", last)
		now, resets := done(edge, pending, others)
		m.Expect(resets).To(BeZero(), "no host is reset")
		m.Expect(now).To(Equal(bootstraps), "no host is bootstrapped again")
		hosts := to.hosts()
		m.Expect(hosts).To(HaveLen(len(before)))
		for _, h := range hosts {
			m.Expect(h.Spec).To(Equal(before[h.Name]), "claim, key, approval and all else of %s", h.Name)
		}
		from, to = to, from
	}
	in.expect(from)
	in.returned(from)
	took := time.Since(began)
	t.Logf("%d moves with %d kills of clusterctl in %s, %s each, seed %d; the slowest host was connected %s after a move",
		count, kills, tenths(took), tenths(took/time.Duration(count)), *seed, tenths(slowest))
	m.Expect(inTime).To(BeNumerically(">=", *moves), "so many moves must begin within %s", *span)
}

func tenths(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// settleHosts waits until all Machines are provisioned, by what their hosts have reported here.
func (m *management) settleHosts(count int) {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		all := &infrav1.ElementalMachineList{}
		g.Expect(m.admin.List(m.t.Context(), all, client.InNamespace(sites))).To(Succeed())
		g.Expect(all.Items).To(HaveLen(count))
		for i := range all.Items {
			p := all.Items[i].Status.Initialization.Provisioned
			g.Expect(p != nil && *p).To(BeTrue(), "%s: %+v", all.Items[i].Name, all.Items[i].Status.Conditions)
		}
	}).Should(Succeed())
}

// The pool is moved before the namespace that has two of its hosts. These stay granted, follow with their own namespace,
// and go back to the pool afterwards.
func TestGrantedHostsFollowMoves(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	m := newMover(t)
	from, to := startManagement(t, "first"), startManagement(t, "second")
	const tenant = "tenant"
	for _, side := range []*management{from, to} {
		m.Expect(side.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}})).To(Succeed())
	}
	edge := from.fleet("edge", from.register("edge", infrav1.ApprovalAutomatic), 4)
	grant := &infrav1.ElementalHostGrant{ObjectMeta: metav1.ObjectMeta{Namespace: sites, Name: "grant"}}
	grant.Spec.Namespace, grant.Spec.Count = tenant, new(int32(2))
	m.Expect(from.admin.Create(t.Context(), grant)).To(Succeed())
	granted := func(side *management) (names []string) {
		list := &infrav1.ElementalHostList{}
		m.Expect(side.admin.List(t.Context(), list, client.InNamespace(tenant))).To(Succeed())
		for i := range list.Items {
			if c := list.Items[i].Status.Connection; c != nil && c.State == infrav1.ConnectionConnected {
				names = append(names, list.Items[i].Name)
			}
		}
		return names
	}
	from.Eventually(func() int { return len(granted(from)) }).Should(Equal(2))
	before := granted(from)
	digest := from.announceTo(to)
	from.Eventually(func() string {
		r := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: sites, Name: "edge"}}
		m.Expect(from.admin.Get(t.Context(), client.ObjectKeyFromObject(r), r)).To(Succeed())
		for _, c := range r.Status.Conditions {
			if c.Type == infrav1.SuccessorReachedCondition {
				return c.Message
			}
		}
		return digest
	}).Should(Equal("4 of 4 hosts know the successor and have reached it"))
	for _, namespace := range []string{sites, tenant} {
		m.move(from, to, namespace)
		to.removeLeftovers(namespace)
	}
	ended := time.Now()
	to.Eventually(func() []string { return granted(to) }).Should(ConsistOf(before))
	m.Expect(time.Since(ended)).To(BeNumerically("<", time.Minute), "hosts must be connected within a minute of the move")
	m.Expect(to.hosts()).To(HaveLen(4), "the pool keeps a record of each host")
	m.Expect(to.admin.Delete(t.Context(), grant)).To(Succeed())
	to.Eventually(func() int { return len(granted(to)) }).Should(BeZero())
	to.connected(nil)
	_, resets := done(edge)
	m.Expect(resets).To(BeZero())
}
