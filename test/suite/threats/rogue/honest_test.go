//go:build embedded

package main_test

import (
	"context"
	"crypto/ecdsa"
	"net"
	"sync/atomic"
	"time"

	. "github.com/onsi/gomega"

	agentclient "github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// honest is a host with the agent's client.
type honest struct {
	client      *agentclient.Client
	name, id    string
	private     *ecdsa.PrivateKey
	key         []byte
	fingerprint string
	// serial is the serial number that it reports.
	serial string

	// apiServer is where its tunnel leads to; blank for a host that has none.
	apiServer string
	// opened counts its tunnels.
	opened atomic.Int64
}

// enrol enrols an honest host with an address. It bootstraps when it is asked to, and polls until the test ends.
func (w *world) enrol(token, address string) *honest {
	w.t.Helper()
	return w.work(w.register(token, address))
}

// enrolWithTunnel enrols an honest host that opens a tunnel to an API server when its plan asks for one.
func (w *world) enrolWithTunnel(token, address, apiServer string) *honest {
	w.t.Helper()
	h := w.register(token, address, protocol.CapabilityTunnel, protocol.CapabilityLocalEndpoint)
	h.apiServer = apiServer
	return w.work(h)
}

// register enrols a host that does nothing afterwards.
func (w *world) register(token, address string, further ...protocol.Capability) *honest {
	w.t.Helper()
	return w.registerMachine(w.machine(), token, address, further...)
}

// machine returns a host with a key, which has not enrolled.
func (w *world) machine() *honest {
	w.t.Helper()
	h := &honest{}
	var err error
	h.private, err = identity.NewKey()
	w.Expect(err).NotTo(HaveOccurred())
	h.key, err = identity.PublicKeyBytes(h.private)
	w.Expect(err).NotTo(HaveOccurred())
	h.fingerprint = identity.Fingerprint(h.key)
	return h
}

// registerMachine is register for a host that has its key.
func (w *world) registerMachine(h *honest, token, address string, further ...protocol.Capability) *honest {
	w.t.Helper()
	certificate, err := identity.ClientCertificate(h.private)
	w.Expect(err).NotTo(HaveOccurred())
	h.client, err = agentclient.New(agentclient.Options{
		Servers: []string{w.cluster.AgentURL}, TrustBundle: w.cluster.CABundle, Certificate: certificate, UserAgent: "honest", Built: time.Now().Add(-time.Hour),
	})
	w.Expect(err).NotTo(HaveOccurred())
	answer, err := h.client.Enrol(w.t.Context(), token, protocol.EnrolRequest{
		Hello: protocol.Hello{
			Protocol: protocol.Version, AgentVersion: "v0.0.0", BootID: "boot",
			Capabilities: append(further, protocol.CapabilityBootstrap, protocol.CapabilityReset, protocol.CapabilityFiles),
		},
		Addresses: []protocol.Address{{Type: protocol.AddressInternalIP, Address: address}},
		Inventory: protocol.Inventory{
			Architecture: "amd64", CPU: protocol.CPU{Cores: 8}, MemoryBytes: 16 << 30, Disks: []protocol.Disk{{Name: "sda", SizeBytes: 1 << 40}},
			SMBIOS: protocol.SMBIOS{SerialNumber: h.serial},
			NICs:   []protocol.NIC{{Name: "eth0", DefaultRoute: true, Addresses: []string{address + "/24"}}},
		},
		Cleanliness: protocol.Cleanliness{Clean: true},
	})
	w.Expect(err).NotTo(HaveOccurred())
	h.name, h.id = answer.Name, answer.HostID
	return h
}

// work has a host poll until the test ends.
func (w *world) work(h *honest) *honest {
	polling, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.poll(polling)
	}()
	w.t.Cleanup(func() {
		stop()
		<-done
	})
	return h
}

func (h *honest) poll(ctx context.Context) {
	defer h.client.Close()
	revision, tunnelled, served := "", false, make(chan struct{})
	close(served)
	defer func() { <-served }()
	for ctx.Err() == nil {
		plan, err := h.client.Plan(ctx, revision, "boot")
		if err != nil || plan == nil {
			continue
		}
		revision = plan.Revision
		if op := plan.Operation; op != nil && op.Type == protocol.OperationBootstrap {
			_ = h.client.Report(ctx, protocol.Report{Operations: []protocol.OperationReport{{Type: op.Type, ID: op.ID, State: protocol.StateSucceeded}}})
		}
		if plan.Desired.Tunnel && h.apiServer != "" && !tunnelled {
			tunnelled, served = true, make(chan struct{})
			go func() {
				defer close(served)
				h.keepTunnel(ctx)
			}()
		}
	}
}

// keepTunnel opens a tunnel, and another one whenever it ends.
func (h *honest) keepTunnel(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := h.client.Tunnel(ctx, "boot")
		if err != nil {
			continue
		}
		h.opened.Add(1)
		_ = tunnel.Serve(ctx, conn, func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", h.apiServer)
		})
	}
}
