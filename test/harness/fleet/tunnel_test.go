package fleet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

const endpointName = "c-endpoint.tenant.svc.cluster.local"

// greeter is software that is nothing but an API server. It answers with the host's name to
// each line, and only to those that connect from its host.
type greeter struct {
	software

	mu       sync.Mutex
	machine  fleet.Machine
	listener net.Listener
	serving  sync.WaitGroup
}

func (s *greeter) Bootstrap(ctx context.Context, m fleet.Machine, _ []byte, _ string, _ func(string)) error {
	path := filepath.Join(m.Root, "etc/kubernetes/manifests/kube-apiserver.yaml")
	manifest := "spec: {containers: [{command: [kube-apiserver, --advertise-address=" + m.Address.String() + "]}]}"
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(manifest), 0o600)); err != nil {
		return err
	}
	return s.Boot(ctx, m)
}

func (s *greeter) Boot(_ context.Context, m fleet.Machine) error {
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(m.Address, 6443)))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine, s.listener = m, listener
	s.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.serving.Go(func() { greet(conn, m) })
		}
	})
	return nil
}

func greet(conn net.Conn, m fleet.Machine) {
	defer func() { _ = conn.Close() }()
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil || from.Addr() != m.Address {
		return
	}
	for line := make([]byte, 1); ; {
		if _, err := conn.Read(line); err != nil {
			return
		}
		if _, err := io.WriteString(conn, m.Name+"\n"); err != nil {
			return
		}
	}
}

func (s *greeter) Halt(fleet.Machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		_ = s.listener.Close()
	}
}

func (s *greeter) Remove(m fleet.Machine) error { return os.RemoveAll(m.Root) }

// dial connects a program of the host.
func (s *greeter) dial(ctx context.Context, address string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.Dial(ctx, "tcp", address)
}

// hear says one byte and returns what it hears.
func hear(conn net.Conn) string {
	if _, err := conn.Write([]byte(".")); err != nil {
		return err.Error()
	}
	heard := make([]byte, 64)
	n, err := conn.Read(heard)
	if err != nil {
		return err.Error()
	}
	return string(heard[:n])
}

// tunnelCluster makes the cluster of rig.claim one of type Tunnel.
func (r *rig) tunnelCluster() {
	r.t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "c"}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: "c"}
	r.Expect(r.admin.Create(r.t.Context(), cluster)).To(Succeed())
	infra := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "c"}}
	infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: cluster.UID}}
	infra.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
	infra.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: endpointName, Port: 16443}
	r.Expect(r.admin.Create(r.t.Context(), infra)).To(Succeed())
}

// reached returns what answers at the other end of the host's tunnel.
func (r *rig) reached(h *fleet.Host) func() string {
	key := client.ObjectKey{Namespace: r.namespace, Name: h.Status().ElementalHost}
	return func() string {
		conn, err := r.server.Dial(r.t.Context(), key, protocol.TargetAPIServer)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = conn.Close() }()
		return hear(conn)
	}
}

// A host of a cluster of type Tunnel resolves the endpoint to itself, and is reached through
// its tunnel alone.
func TestTunnel(t *testing.T) {
	r := newRig(t)
	s := &greeter{}
	t.Cleanup(s.serving.Wait)
	h := r.host(func(settings *fleet.Settings) { settings.Software = s })
	r.tunnelCluster()
	r.claimFor(h, "m1", "data", infrav1.RoleControlPlane)
	r.Expect(r.ended(h, infrav1.OperationBootstrap, "m1").State).To(Equal(infrav1.OperationSucceeded))
	r.Eventually(r.reached(h), soon, often).Should(Equal(h.Name + "\n"))
	r.Eventually(func() *infrav1.HostTunnel { return r.object(h).Status.Tunnel }, soon, often).Should(HaveField("State", infrav1.ConnectionConnected))

	inside, err := s.dial(t.Context(), endpointName+":16443")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(hear(inside)).To(Equal(h.Name + "\n"))
	_, err = s.dial(t.Context(), "c-endpoint.other.svc.cluster.local:16443")
	r.Expect(err).To(MatchError(ContainSubstring("no such host")))
	outside, err := net.Dial("tcp", net.JoinHostPort(h.Address.String(), "6443"))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(hear(outside)).NotTo(ContainSubstring(h.Name))
	_ = outside.Close()

	h.Crash()
	r.Expect(hear(inside)).To(Equal(h.Name+"\n"), "the forwarder outlives the agent")
	r.Expect(inside.Close()).To(Succeed())
	r.Eventually(r.reached(h), soon, often).Should(Equal(h.Name + "\n"))

	h.PowerOff()
	_, err = s.dial(t.Context(), endpointName+":16443")
	r.Expect(err).To(HaveOccurred())
	h.PowerOn()
	r.Eventually(r.reached(h), soon, often).Should(Equal(h.Name + "\n"))

	r.change(h, func(o *infrav1.ElementalHost) { o.Spec.Claim.Phase = infrav1.ClaimReleasing })
	r.Expect(r.ended(h, infrav1.OperationReset, "m1").State).To(Equal(infrav1.OperationSucceeded))
	r.Expect(r.object(h).Status.Cleanliness.State).To(Equal(infrav1.CleanlinessClean))
	_, err = s.dial(t.Context(), endpointName+":16443")
	r.Expect(err).To(MatchError(ContainSubstring("no such host")))
	r.Eventually(r.reached(h), soon, often).Should(ContainSubstring("no tunnel"))
}
