//go:build simulator

package simulation_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/simulation"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload"
)

// Real controllers and real agents create, scale and repair a cluster of type Tunnel, then delete it, although nobody but
// its hosts can connect to its API servers.
func TestTunnelLifecycle(t *testing.T) {
	s := newScenario(t, workload.Options{Site: true})
	s.begin(simulation.Cluster{Name: name, Flavor: "tunnel", ControlPlanes: 1, Change: releaseFast})
	endpoint := s.named()
	carrier := s.firstHost()
	s.refusesStrangers(carrier)
	s.grow()
	s.loseCarrier(carrier)
	s.recover(carrier)
	s.shrinkThrough()
	s.Expect(s.named()).To(Equal(endpoint), "nothing changes the endpoint")
	s.end()
	s.Eventually(func() error {
		return s.Admin.Get(t.Context(), client.ObjectKey{Namespace: simulation.Namespace, Name: name + "-endpoint"}, &corev1.Service{})
	}).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	s.Expect(s.Clusters.Strangers()).To(HaveLen(1), "nobody but this test has connected from outside")
}

// releaseFast is fast for a cluster whose endpoint does not move.
func releaseFast(object *unstructured.Unstructured) error {
	if object.GetKind() == "ElementalCluster" {
		return nil
	}
	return fast(object)
}

// named returns the endpoint, which is a name that no host has as its address.
func (s *scenario) named() clusterv1.APIEndpoint {
	s.t.Helper()
	at, host := s.endpoint()
	s.Expect(host).To(BeNil())
	s.Expect(at).To(Equal(clusterv1.APIEndpoint{Host: name + "-endpoint.default.svc.cluster.local", Port: 16443}))
	return at
}

// firstHost returns the host of the only Machine.
func (s *scenario) firstHost() *fleet.Host {
	s.t.Helper()
	all, err := s.Machines(s.t.Context(), name)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(all).To(HaveLen(1))
	for _, h := range s.Fleet.Hosts() {
		for _, address := range all[0].Status.Addresses {
			if address.Address == h.Address.String() {
				return h
			}
		}
	}
	s.t.Fatalf("Machine %s has the address of no host: %v", all[0].Name, all[0].Status.Addresses)
	return nil
}

// refusesStrangers connects to an API server from outside, as Cluster API would do with another type of endpoint.
func (s *scenario) refusesStrangers(host *fleet.Host) {
	s.t.Helper()
	s.Expect(s.Clusters.Strangers()).To(BeEmpty())
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	_, err := dialer.DialContext(s.t.Context(), "tcp", net.JoinHostPort(host.Address.String(), "6443"))
	s.Expect(err).To(HaveOccurred())
	s.Expect(s.Clusters.Strangers()).To(HaveLen(1))
}

// loseCarrier takes the power from the host through which connections have gone so far.
func (s *scenario) loseCarrier(carrier *fleet.Host) {
	s.t.Helper()
	s.createHealthChecks()
	machine := s.machineOf(carrier)
	carrier.PowerOff()
	began := time.Now()
	s.step("the host that carried has lost its power: the cluster is reached through another one", func() {
		s.Eventually(func() error {
			_, err := s.Nodes(s.t.Context(), name)
			return err
		}).Should(Succeed())
		s.t.Logf("       reached again after %.1f s", time.Since(began).Seconds())
	})
	s.step("its Machine was replaced, all Nodes ready", func() {
		s.Eventually(func() error {
			if !s.isProbed() {
				return StopTrying("Cluster API did not reach the API server meanwhile")
			}
			return s.Admin.Get(s.t.Context(), client.ObjectKeyFromObject(machine), &clusterv1.Machine{})
		}).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
		s.eventually(func(ctx context.Context) error { return errors.Join(s.CheckRunning(ctx, name, 5), s.tunnelReady(ctx)) })
	})
}

// tunnelReady returns an error if the ElementalCluster says that no connection is possible.
func (s *scenario) tunnelReady(ctx context.Context) error {
	infra := &infrav1.ElementalCluster{}
	if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: simulation.Namespace, Name: name}, infra); err != nil {
		return err
	}
	condition := meta.FindStatusCondition(infra.Status.Conditions, infrav1.TunnelReadyCondition)
	if condition == nil {
		return errors.New("there is no condition TunnelReady")
	}
	if condition.Status != "True" {
		return errors.New(condition.Message)
	}
	return nil
}

// shrinkThrough scales the control plane down, so that two of its hosts stop carrying.
func (s *scenario) shrinkThrough() {
	s.step("scaled from 3 control planes to 1: all Nodes ready, hosts reset", func() {
		s.scale(1)
		s.eventually(func(ctx context.Context) error { return s.CheckRunning(ctx, name, 3) })
		s.eventually(func(ctx context.Context) error { return s.CheckFreeHosts(ctx, 3) })
		s.eventually(s.tunnelReady)
	})
	s.Expect(s.isProbed()).To(BeTrue())
}
