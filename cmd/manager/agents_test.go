package main

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// agent simulates a host with the real client of the agent API.
type agent struct {
	name string
	key  *ecdsa.PrivateKey
	api  *client.Client
}

func newAgent(name, url, bundle string) (*agent, error) {
	key, err := identity.NewKey()
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	certificate, err := identity.ClientCertificate(key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	api, err := client.New(client.Options{
		Servers: []string{url}, TrustBundle: bundle, Certificate: certificate, UserAgent: "elemental-agent/test", Built: time.Now().Add(-time.Hour),
	})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &agent{name: name, key: key, api: api}, nil
}

// host returns the declared host of the agent.
func (a *agent) host(namespace string) (*infrav1.ElementalHost, error) {
	public, err := identity.PublicKeyBytes(a.key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key: %w", err)
	}
	h := &infrav1.ElementalHost{}
	h.Namespace, h.Name = namespace, a.name
	h.Spec.Approval = infrav1.ApprovalApproved
	h.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: identity.Fingerprint(public), Generation: 1}
	return h, nil
}

// start reports the facts of a clean host.
func (a *agent) start(ctx context.Context) error {
	return a.persist(ctx, func() error {
		return a.api.Report(ctx, protocol.Report{
			Hello: &protocol.Hello{
				Protocol: protocol.Version, AgentVersion: "v0.1.0", BootID: a.name,
				Capabilities: []protocol.Capability{protocol.CapabilityBootstrap, protocol.CapabilityReset},
			},
			Cleanliness: &protocol.Cleanliness{Clean: true},
			Addresses:   []protocol.Address{{Type: protocol.AddressInternalIP, Address: "10.1.1.1"}},
		})
	})
}

// report reports the state of an operation.
func (a *agent) report(ctx context.Context, op protocol.Operation, state protocol.OperationState) error {
	return a.persist(ctx, func() error {
		return a.api.Report(ctx, protocol.Report{Operations: []protocol.OperationReport{{Type: op.Type, ID: op.ID, State: state, Step: "runcmd"}}})
	})
}

// persist retries until ctx ends, as the manager's cache may not have the host yet.
func (a *agent) persist(ctx context.Context, do func() error) error {
	const every = 100 * time.Millisecond
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(every):
		}
	}
}

// operation waits for the next operation of the host's plan.
func (a *agent) operation(ctx context.Context) (protocol.Operation, error) {
	after := ""
	for {
		var p *protocol.Plan
		err := a.persist(ctx, func() (err error) {
			p, err = a.api.Plan(ctx, after, "")
			return err
		})
		if err != nil {
			return protocol.Operation{}, err
		}
		if p == nil {
			continue
		}
		if after = p.Revision; p.Operation != nil {
			return *p.Operation, nil
		}
	}
}

// run reports facts, and polls until ctx ends. It reports success of each operation at once.
func (a *agent) run(ctx context.Context) {
	if a.start(ctx) != nil {
		a.api.Close()
		return
	}
	done := ""
	a.poll(ctx, func(op protocol.Operation) {
		if op.ID != done && a.report(ctx, op, protocol.StateSucceeded) == nil {
			done = op.ID
		}
	})
}

// poll polls until ctx ends, and calls do with the operation of each plan that has one.
func (a *agent) poll(ctx context.Context, do func(protocol.Operation)) {
	defer a.api.Close()
	after := ""
	for ctx.Err() == nil {
		var p *protocol.Plan
		if a.persist(ctx, func() (err error) {
			p, err = a.api.Plan(ctx, after, "")
			return err
		}) != nil || p == nil {
			continue
		}
		if after = p.Revision; p.Operation != nil {
			do(*p.Operation)
		}
	}
}
