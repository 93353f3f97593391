//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// sightings are when things were first seen.
type sightings struct {
	began time.Time
	at    map[string]time.Time
}

func (s sightings) note(what string, seen bool) {
	if _, known := s.at[what]; known || !seen {
		return
	}
	s.at[what] = time.Now()
	fmt.Printf("  %6.1f s  %s\n", time.Since(s.began).Seconds(), what)
}

func (s sightings) last(what ...string) time.Time {
	var last time.Time
	for _, one := range what {
		if s.at[one].After(last) {
			last = s.at[one]
		}
	}
	return last
}

// What is seen of a failover.
const (
	seenEvidence = "every other control plane says that the endpoint is unreachable"
	seenInfra    = "ElementalCluster names another host"
	seenCluster  = "Cluster does"
	seenSecret   = "the kubeconfig Secret does"
	seenWorkload = "the workload cluster's own objects do"
	seenLost     = "RemoteConnectionProbe is False"
	seenBack     = "RemoteConnectionProbe is True"
	seenComplete = "the move is complete"
)

// unnoticed is how long Cluster API may stay with an address that does not answer:
// five probes that fail. When its condition was not False until then, it won't be.
const unnoticed = 100 * time.Second

// expectFailover waits until the endpoint has left a host that is dead, and
// checks how long each part of it took.
func (w workload) expectFailover(ctx context.Context, former endpoint, died time.Time) {
	GinkgoHelper()
	seen := sightings{died, map[string]time.Time{}}
	// unreachable is since when the endpoint is, as the earliest to notice says.
	var unreachable time.Time
	Eventually(func(g Gomega) {
		if since := w.unreachableSince(ctx, former, 2); unreachable.IsZero() && !since.IsZero() {
			unreachable = since
		}
		seen.note(seenEvidence, !unreachable.IsZero())
		w.noteMove(ctx, former, seen)
		for _, what := range []string{seenEvidence, seenInfra, seenCluster, seenSecret, seenWorkload, seenBack, seenComplete} {
			g.Expect(seen.at).To(HaveKey(what))
		}
	}).WithTimeout(moving).WithPolling(200 * time.Millisecond).Should(Succeed())

	due := unreachable.Add(failoverAfter)
	if evidence := seen.at[seenEvidence]; evidence.After(due) {
		due = evidence
	}
	evidence := seen.at[seenEvidence].Sub(died)
	own := seen.last(seenInfra, seenCluster, seenSecret).Sub(due)
	outage := seen.last(seenSecret, seenBack).Sub(died)
	fmt.Printf("  evidence after %.1f s, our own part %.1f s, reachable for Cluster API again after %.1f s\n",
		evidence.Seconds(), own.Seconds(), outage.Seconds())
	Expect(own).To(BeNumerically("<", mostOwn))
	Expect(outage).To(BeNumerically("<", mostOutage))
	Expect(w.infra(ctx).Status.Endpoint.LastMove).To(HaveValue(And(
		HaveField("Cause", infrav1.MoveHostDead), HaveField("From", ContainSubstring(former.address)))))
}

// unreachableSince is since when so many others do not reach the former endpoint,
// as the first of them says; zero while not all say so.
func (w workload) unreachableSince(ctx context.Context, former endpoint, others int) time.Time {
	GinkgoHelper()
	var since time.Time
	saying := 0
	for _, host := range w.claimed(ctx) {
		if host.Name == former.host || host.Status.Endpoint == nil {
			continue
		}
		probe := host.Status.Endpoint.Probe
		if probe == nil || probe.Endpoint != former.hostPort() || probe.Result != infrav1.ProbeUnreachable {
			continue
		}
		saying++
		if since.IsZero() || probe.Since.Time.Before(since) {
			since = probe.Since.Time
		}
	}
	if saying < others {
		return time.Time{}
	}
	return since
}

// noteMove notes what names another host than the former.
func (w workload) noteMove(ctx context.Context, former endpoint, seen sightings) {
	GinkgoHelper()
	infra, cluster := w.infra(ctx), &clusterv1.Cluster{}
	Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
	seen.note(seenInfra, infra.Spec.ControlPlaneEndpoint.Host != former.address)
	seen.note(seenCluster, cluster.Spec.ControlPlaneEndpoint.Host != former.address)
	seen.note(seenSecret, server(w.kubeconfig(ctx)) != former.hostPort())
	if seen.at[seenInfra].IsZero() {
		return
	}
	now := w.endpoint(ctx)
	status := hostOf(ctx, now.box).Status.Endpoint
	seen.note(seenWorkload, status != nil && status.Workload == now.hostPort())
	if s := infra.Status.Endpoint; s != nil && s.LastMove != nil {
		seen.note(seenComplete, s.LastMove.To == now.address && !s.LastMove.CompletedAt.IsZero())
	}
	probe := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition)
	if probe == nil {
		return
	}
	seen.note(seenLost, probe.Status == metav1.ConditionFalse)
	noticed := !seen.at[seenLost].IsZero() || time.Since(seen.began) > unnoticed
	seen.note(seenBack, noticed && probe.Status == metav1.ConditionTrue)
}
