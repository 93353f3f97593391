package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
)

// kubelet reads its kubeconfig at every start.
type kubelet struct{ config, runsWith string }

func (k *kubelet) Run(_ context.Context, _ string, args ...string) (string, error) {
	if strings.Join(args, " ") != "systemctl try-restart kubelet.service" {
		return "", errors.ErrUnsupported
	}
	text, err := os.ReadFile(k.config)
	k.runsWith = string(text)
	return "", err
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: c
  cluster:
    server: https://192.0.2.1:6443
`

// Uses the real Applier. If the agent crashes while the endpoint moves, the next
// process finishes the move, and the kubelet runs with its current kubeconfig.
func TestEndpointSurvivesEveryCrash(t *testing.T) {
	everyCrash(t, 8, func(t *testing.T, step int, after bool) {
		r := newNode(t)
		root := t.TempDir()
		machine := &kubelet{config: filepath.Join(root, "etc/kubernetes/kubelet.conf"), runsWith: kubeconfig}
		if err := os.MkdirAll(filepath.Dir(machine.config), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(machine.config, []byte(kubeconfig), 0o600); err != nil {
			t.Fatal(err)
		}
		r.with = func(o *agent.Options) {
			o.Applier = endpoint.New(endpoint.Options{
				Documents: o.Store.Documents(), Root: root, Commands: machine, Log: slog.New(slog.DiscardHandler),
				Interfaces: func() ([]platform.NetworkInterface, error) { return nil, nil },
			})
		}
		moved := endpointAt("192.0.2.2")
		moved.Endpoint.Former = []string{"192.0.2.1:6443"}
		r.manager.want(nil, moved)
		for range 2 {
			r.disk = r.disk.reborn(step, after)
			r.liveUntil(t, follows("192.0.2.2:6443"))
		}
		r.disk = r.disk.reborn(-1, false)
		r.manager.set(func(m *manager) { m.reports = nil })
		r.liveUntil(t, follows("192.0.2.2:6443"))
		if r.disk.isDead() || machine.runsWith != strings.Replace(kubeconfig, "192.0.2.1", "192.0.2.2", 1) {
			t.Errorf("the kubelet runs with %s", machine.runsWith)
		}
	})
}

// liveUntil runs one process of the agent until the disk fails or the manager
// meets a condition.
func (r *rig) liveUntil(t *testing.T, condition func(*manager) bool) {
	t.Helper()
	a, err := r.agent()
	if errors.Is(err, errDead) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextWithCancel(t)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- a.Run(ctx) }()
	limit := time.After(time.Minute)
	for met := false; !met; {
		r.manager.mu.Lock()
		changed := r.manager.changed
		met = condition(r.manager)
		r.manager.mu.Unlock()
		if met {
			break
		}
		select {
		case <-changed:
		case <-r.disk.dead:
			met = true
		case <-limit:
			t.Fatal("the agent neither crashed nor met the condition")
		}
	}
	cancel()
	if err := <-result; err != nil && !errors.Is(err, errDead) {
		t.Fatalf("ended with %v", err)
	}
	r.manager.hangUp(t)
}

var _ agent.Applier = (*endpoint.Applier)(nil)

var _ bootstrap.Preparer = (*endpoint.Applier)(nil)
