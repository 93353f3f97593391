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

// milestones records when each step of a failover was first observed.
type milestones struct {
	began time.Time
	at    map[string]time.Time
}

func (s milestones) record(what string, seen bool) {
	if _, known := s.at[what]; known || !seen {
		return
	}
	s.at[what] = time.Now()
	fmt.Printf("  %6.1f s  %s\n", time.Since(s.began).Seconds(), what)
}

func (s milestones) last(what ...string) time.Time {
	var last time.Time
	for _, one := range what {
		if s.at[one].After(last) {
			last = s.at[one]
		}
	}
	return last
}

// Milestones of a failover.
const (
	seenEvidence = "all other control planes report the endpoint as unreachable"
	seenInfra    = "ElementalCluster names another host"
	seenCluster  = "Cluster names another host"
	seenSecret   = "the kubeconfig Secret names another host"
	seenWorkload = "the workload cluster's own objects name another host"
	seenLost     = "RemoteConnectionProbe is False"
	seenBack     = "RemoteConnectionProbe is True"
	seenComplete = "the move is complete"
)

// probeFailureTime is the longest time until Cluster API notices an address that does not answer:
// five failing probes. A RemoteConnectionProbe that was not False by then will not become False.
const probeFailureTime = 100 * time.Second

// expectFailover waits until the endpoint has moved away from a dead host, and checks the duration
// of each part.
func (w workload) expectFailover(ctx context.Context, former endpoint, died time.Time) {
	GinkgoHelper()
	seen := milestones{died, map[string]time.Time{}}
	// unreachable is the earliest time at which a host reported the endpoint as unreachable.
	var unreachable time.Time
	Eventually(func(g Gomega) {
		if since := w.unreachableSince(ctx, former, 2); unreachable.IsZero() && !since.IsZero() {
			unreachable = since
		}
		seen.record(seenEvidence, !unreachable.IsZero())
		w.recordMove(ctx, former, seen)
		for _, what := range []string{seenEvidence, seenInfra, seenCluster, seenSecret, seenWorkload, seenBack, seenComplete} {
			g.Expect(seen.at).To(HaveKey(what))
		}
	}).WithTimeout(moveTimeout).WithPolling(200 * time.Millisecond).Should(Succeed())

	due := unreachable.Add(failoverAfter)
	if evidence := seen.at[seenEvidence]; evidence.After(due) {
		due = evidence
	}
	evidence := seen.at[seenEvidence].Sub(died)
	own := seen.last(seenInfra, seenCluster, seenSecret).Sub(due)
	outage := seen.last(seenSecret, seenBack).Sub(died)
	fmt.Printf("  evidence after %.1f s, this provider's part %.1f s, reachable for Cluster API again after %.1f s\n",
		evidence.Seconds(), own.Seconds(), outage.Seconds())
	Expect(own).To(BeNumerically("<", maxOwnDelay))
	Expect(outage).To(BeNumerically("<", maxOutage))
	Expect(w.infra(ctx).Status.Endpoint.LastMove).To(HaveValue(And(
		HaveField("Cause", infrav1.MoveHostDead), HaveField("From", ContainSubstring(former.address)))))
}

// unreachableSince returns the earliest time since which hosts report the former endpoint as
// unreachable; zero if fewer than others do so.
func (w workload) unreachableSince(ctx context.Context, former endpoint, others int) time.Time {
	GinkgoHelper()
	var since time.Time
	reporting := 0
	for _, host := range w.claimed(ctx) {
		if host.Name == former.host || host.Status.Endpoint == nil {
			continue
		}
		probe := host.Status.Endpoint.Probe
		if probe == nil || probe.Endpoint != former.hostPort() || probe.Result != infrav1.ProbeUnreachable {
			continue
		}
		reporting++
		if since.IsZero() || probe.Since.Time.Before(since) {
			since = probe.Since.Time
		}
	}
	if reporting < others {
		return time.Time{}
	}
	return since
}

// recordMove records which objects name the new endpoint.
func (w workload) recordMove(ctx context.Context, former endpoint, seen milestones) {
	GinkgoHelper()
	infra, cluster := w.infra(ctx), &clusterv1.Cluster{}
	Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
	seen.record(seenInfra, infra.Spec.ControlPlaneEndpoint.Host != former.address)
	seen.record(seenCluster, cluster.Spec.ControlPlaneEndpoint.Host != former.address)
	seen.record(seenSecret, server(w.kubeconfig(ctx)) != former.hostPort())
	if seen.at[seenInfra].IsZero() {
		return
	}
	now := w.endpoint(ctx)
	status := hostOf(ctx, now.box).Status.Endpoint
	seen.record(seenWorkload, status != nil && status.Workload == now.hostPort())
	if s := infra.Status.Endpoint; s != nil && s.LastMove != nil {
		seen.record(seenComplete, s.LastMove.To == now.address && !s.LastMove.CompletedAt.IsZero())
	}
	probe := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition)
	if probe == nil {
		return
	}
	seen.record(seenLost, probe.Status == metav1.ConditionFalse)
	noticed := !seen.at[seenLost].IsZero() || time.Since(seen.began) > probeFailureTime
	seen.record(seenBack, noticed && probe.Status == metav1.ConditionTrue)
}
