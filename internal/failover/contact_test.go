package failover_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

const day = 24 * time.Hour

// askedAgo returns the contact with a host that was asked that long ago.
func askedAgo(ago time.Duration, answer failover.Answer) failover.Contact {
	return failover.Contact{AskedAt: epoch.Add(-ago), Answer: answer}
}

var (
	nothing = failover.Answer{}
	request = failover.Answer{Request: true}
	report  = failover.Answer{Request: true, Report: true}
)

// suspect makes h2 and h3 report the endpoint as unreachable for that long. h1 stays
// connected.
func suspect(c failover.Cluster, since time.Duration) {
	makeUnreachable(c, since)
	c.Members[0].Host.Status.Connection.State = infrav1.ConnectionConnected
}

// hold holds a host whose Machine was deleted.
func hold(m *failover.Member) {
	m.Host.Spec.Claim.Phase, m.Machine = infrav1.ClaimHeld, nil
}

// knowTheQuestion gives the hosts agents of this version.
func knowTheQuestion(c failover.Cluster) {
	for _, m := range c.Members {
		m.Host.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"ReportEndpoint"}}
	}
}

// Only evidence that hosts confirm when they are asked moves the endpoint or keeps it.
func TestDecideByContact(t *testing.T) {
	for name, tc := range map[string]struct {
		when func(*failover.Cluster)
		// to is the host that the endpoint moves to; blank if it stays.
		to      string
		message string
		next    time.Duration
	}{
		"the endpoint host does not answer": {when: func(c *failover.Cluster) {
			suspect(*c, 30*time.Second)
			c.Contacts["h1"] = askedAgo(5*time.Second, nothing)
		}, to: "h2"},
		"the endpoint host does not answer, for a short time": {when: func(c *failover.Cluster) {
			suspect(*c, 12*time.Second)
			c.Contacts["h1"] = askedAgo(5*time.Second, nothing)
		}, message: "h1 does not answer the manager; it moves at 2026-01-01T00:00:18Z", next: 18 * time.Second},
		"afterSeconds is shorter than the delay of a silent host": {when: func(c *failover.Cluster) {
			suspect(*c, 20*time.Second)
			c.Contacts["h1"] = askedAgo(5*time.Second, nothing)
			c.Infra.Spec.ControlPlaneEndpointPolicy.Host.Failover.AfterSeconds = new(int32(20))
		}, to: "h2"},
		"the answer of the endpoint host is awaited": {when: func(c *failover.Cluster) {
			suspect(*c, day)
			c.Contacts["h1"] = askedAgo(4*time.Second, nothing)
		}, message: "host h1 was asked whether its API server is well", next: time.Second},
		"the endpoint host was absent when it was asked": {when: func(c *failover.Cluster) {
			suspect(*c, day)
			c.Contacts["h1"] = failover.Contact{AskedAt: epoch.Add(-12 * time.Second), AbsentSince: epoch.Add(-17 * time.Second)}
		}, message: "host h1 was asked", next: 3 * time.Second},
		"the endpoint host has stayed absent": {when: func(c *failover.Cluster) {
			suspect(*c, day)
			c.Contacts["h1"] = failover.Contact{AskedAt: epoch.Add(-12 * time.Second), AbsentSince: epoch.Add(-20 * time.Second)}
		}, to: "h2"},
		"the endpoint host may return to a manager that has started": {when: func(c *failover.Cluster) {
			suspect(*c, day)
			c.Contacts["h1"] = failover.Contact{AskedAt: epoch.Add(-40 * time.Second), AbsentSince: epoch.Add(-50 * time.Second), HasNotReturned: true}
		}, message: "host h1 was asked", next: 10 * time.Second},
		"the endpoint host has not returned to a manager that has started": {when: func(c *failover.Cluster) {
			suspect(*c, day)
			c.Contacts["h1"] = failover.Contact{AskedAt: epoch.Add(-40 * time.Second), AbsentSince: epoch.Add(-time.Minute), HasNotReturned: true}
		}, to: "h2"},
		"the endpoint host can't be asked yet": {when: func(c *failover.Cluster) {
			suspect(*c, day)
			delete(c.Contacts, "h1")
		}, message: "so the endpoint stays", next: 5 * time.Second},
		"the endpoint host answers that it is well": {when: func(c *failover.Cluster) {
			suspect(*c, day)
			knowTheQuestion(*c)
		}, message: "so the endpoint stays", next: failover.AskInterval},
		"the endpoint host of an older version polls again": {when: func(c *failover.Cluster) {
			suspect(*c, day)
			c.Contacts["h1"] = askedAgo(0, request)
		}, message: "so the endpoint stays", next: failover.AskInterval},
		"the endpoint host answers without a report": {when: func(c *failover.Cluster) {
			suspect(*c, 59*time.Second)
			knowTheQuestion(*c)
			c.Contacts["h1"] = askedAgo(15*time.Second, request)
		}, message: "it moves at 2026-01-01T00:00:01Z", next: time.Second},
		"the endpoint host has answered the question before": {when: func(c *failover.Cluster) {
			suspect(*c, day)
			knowTheQuestion(*c)
			c.Contacts["h1"] = failover.Contact{AskedAt: epoch, Before: &report}
		}, message: "so the endpoint stays", next: 5 * time.Second},
		"the endpoint host lives with a dead API server": {when: func(c *failover.Cluster) {
			suspect(*c, 59*time.Second)
			c.Members[0].Host.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable
		}, message: "it moves at", next: time.Second},
		"the endpoint host has lived with a dead API server for afterSeconds": {when: func(c *failover.Cluster) {
			suspect(*c, time.Minute)
			c.Members[0].Host.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable
		}, to: "h2"},
		"the endpoint host reboots by order": {when: func(c *failover.Cluster) {
			suspect(*c, 59*time.Second)
			c.Contacts["h1"] = askedAgo(5*time.Second, nothing)
			h := c.Members[0].Host
			h.Spec.Reboot = &infrav1.HostReboot{ID: "r"}
			h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{Type: infrav1.OperationReboot, ID: "r", State: infrav1.OperationRunning})
		}, message: "it moves at 2026-01-01T00:00:01Z", next: time.Second},
		"a reboot was ordered of an endpoint host that was dead already": {when: func(c *failover.Cluster) {
			suspect(*c, 30*time.Second)
			c.Contacts["h1"] = askedAgo(5*time.Second, nothing)
			c.Members[0].Host.Spec.Reboot = &infrav1.HostReboot{ID: "r"}
		}, to: "h2"},
		"the endpoint host upgrades its system by order": {when: func(c *failover.Cluster) {
			suspect(*c, 59*time.Second)
			c.Contacts["h1"] = askedAgo(5*time.Second, nothing)
			h := c.Members[0].Host
			h.Spec.OSUpgrade = &infrav1.HostOSUpgrade{ID: "u"}
			h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{Type: infrav1.OperationUpgrade, ID: "u", State: infrav1.OperationRunning})
		}, message: "it moves at 2026-01-01T00:00:01Z", next: time.Second},
		"the endpoint host upgraded its system by an earlier order": {when: func(c *failover.Cluster) {
			suspect(*c, 30*time.Second)
			c.Contacts["h1"] = askedAgo(5*time.Second, nothing)
			h := c.Members[0].Host
			h.Spec.OSUpgrade = &infrav1.HostOSUpgrade{ID: "u"}
			h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{Type: infrav1.OperationUpgrade, ID: "t", State: infrav1.OperationRunning})
		}, to: "h2"},
		"an upgrade was ordered of an endpoint host that was dead already": {when: func(c *failover.Cluster) {
			suspect(*c, 30*time.Second)
			c.Contacts["h1"] = askedAgo(5*time.Second, nothing)
			c.Members[0].Host.Spec.OSUpgrade = &infrav1.HostOSUpgrade{ID: "u"}
		}, to: "h2"},
		"a person works on the endpoint host": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, 59*time.Second)
			c.Members[0].Host.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"}
		}, message: "it moves at 2026-01-01T00:00:01Z", next: time.Second},
		"a locked endpoint host is not heard by order": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, 59*time.Second)
			c.Members[0].Host.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned}
		}, message: "it moves at 2026-01-01T00:00:01Z", next: time.Second},
		"a dead host still counts as connected and as reaching the endpoint": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, day)
			c.Members[1].Host.Status.Endpoint.Probe.Result = infrav1.ProbeReachable
			c.Contacts["h2"] = askedAgo(5*time.Second, nothing)
		}, to: "h3"},
		"a held host that had reached the endpoint does not answer": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, day)
			hold(&c.Members[2])
			c.Members[2].Host.Status.Endpoint.Probe.Result = infrav1.ProbeReachable
			c.Contacts["h3"] = askedAgo(5*time.Second, nothing)
		}, to: "h2"},
		"a held host reaches the endpoint": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, day)
			hold(&c.Members[2])
			c.Members[2].Host.Status.Endpoint.Probe.Result = infrav1.ProbeReachable
		}, message: "but it answers h3", next: failover.AskInterval},
		"a held host confirms that it does not reach the endpoint": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, day)
			hold(&c.Members[2])
			delete(c.Contacts, "h2")
		}, to: "h2"},
		"a host that reaches the endpoint may still answer": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, day)
			c.Members[1].Host.Status.Endpoint.Probe.Result = infrav1.ProbeReachable
			c.Contacts["h2"] = askedAgo(4*time.Second, nothing)
		}, message: "but it answers h2", next: time.Second},
		"a host that does not reach the endpoint may still answer": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, day)
			c.Contacts["h2"] = askedAgo(4*time.Second, nothing)
		}, message: "have confirmed that", next: time.Second},
		"a dead host is no candidate": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, day)
			c.Contacts["h2"] = askedAgo(5*time.Second, nothing)
		}, to: "h3"},
		"nobody confirms": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, day)
			c.Contacts["h2"], c.Contacts["h3"] = askedAgo(5*time.Second, nothing), askedAgo(5*time.Second, nothing)
		}, message: "The address of host h1", next: failover.AskInterval},
		"nobody can be asked": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, day)
			c.Contacts = nil
		}, message: "have confirmed that", next: 5 * time.Second},
		"the time of a report that is not confirmed does not count": {when: func(c *failover.Cluster) {
			makeUnreachable(*c, day)
			delete(c.Contacts, "h2")
			c.Members[2].Host.Status.Endpoint.Probe.Since = at(-20 * time.Second)
		}, message: "it moves at 2026-01-01T00:00:10Z", next: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := cluster()
			tc.when(&c)
			d := failover.Decide(c)
			if tc.to != "" {
				g.Expect(d.Move).NotTo(BeNil(), d.Message)
				g.Expect(d.Move.To.Name).To(Equal(tc.to))
				return
			}
			g.Expect(d.Move).To(BeNil())
			g.Expect(d.Message).To(ContainSubstring(tc.message))
			g.Expect(d.RecheckAt).To(BeTemporally("==", epoch.Add(tc.next)))
		})
	}
}

// Nobody is asked at rest.
func TestHostsToAsk(t *testing.T) {
	for name, tc := range map[string]struct {
		when func(*failover.Cluster)
		want []string
	}{
		"at rest": {when: func(*failover.Cluster) {}},
		"the endpoint host is disconnected": {when: func(c *failover.Cluster) {
			disconnect(c.Members[0])
		}},
		"one host does not reach the endpoint": {when: func(c *failover.Cluster) {
			c.Members[2].Host.Status.Endpoint.Probe.Result = infrav1.ProbeUnreachable
		}, want: []string{"h1", "h2", "h3"}},
		"the endpoint host does not reach its own address": {when: func(c *failover.Cluster) {
			c.Members[0].Host.Status.Endpoint.Probe.Result = infrav1.ProbeUnreachable
		}},
		"the others are not asked": {when: func(c *failover.Cluster) {
			suspect(*c, 0)
			disconnect(c.Members[0])
			c.Members[1].Host.Spec.Claim.Role = infrav1.RoleWorker
		}, want: []string{"h3"}},
		"a disconnected host says so": {when: func(c *failover.Cluster) {
			c.Members[2].Host.Status.Endpoint.Probe.Result = infrav1.ProbeUnreachable
			disconnect(c.Members[2])
		}},
		"another endpoint is unreachable": {when: func(c *failover.Cluster) {
			suspect(*c, 0)
			c.Infra.Spec.ControlPlaneEndpoint.Host = "10.0.0.9"
		}},
		"a held host says so": {when: func(c *failover.Cluster) {
			c.Members[2].Host.Status.Endpoint.Probe.Result = infrav1.ProbeUnreachable
			c.Members[2].Host.Spec.Claim.Phase = infrav1.ClaimHeld
		}, want: []string{"h1", "h2", "h3"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster()
			tc.when(&c)
			var got []string
			for _, h := range failover.HostsToAsk(c) {
				got = append(got, h.Name)
			}
			NewWithT(t).Expect(got).To(Equal(tc.want))
		})
	}
}

// A requested move waits for no answer, but does not go to a dead host.
func TestRequestedMoveAvoidsSilentHosts(t *testing.T) {
	g := NewWithT(t)
	c := cluster()
	c.Infra.Annotations = map[string]string{infrav1.MoveEndpointAnnotation: ""}
	c.Contacts = nil
	g.Expect(failover.Decide(c).Move.To.Name).To(Equal("h2"))
	c.Contacts = map[string]failover.Contact{"h1": answered, "h2": askedAgo(5*time.Second, nothing), "h3": answered}
	g.Expect(failover.Decide(c).Move.To.Name).To(Equal("h3"))
}
