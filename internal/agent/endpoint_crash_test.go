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
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
)

// kubelet reads its kubeconfig when it is started.
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

// With the real Keeper: however an agent ends while the endpoint moves, the next
// one finishes it, and the kubelet runs with what its kubeconfig says.
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
		r.with = func(a *agent.Agent) {
			a.Keeper = endpoint.New(endpoint.Options{
				Documents: a.Store.Documents(), Root: root, Commands: machine, Log: slog.New(slog.DiscardHandler),
				Interfaces: func() ([]host.Interface, error) { return nil, nil },
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

// liveUntil is a life of the agent that ends with the disk, or when the manager
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
	limit := time.After(20 * time.Second)
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
			t.Fatal("neither died nor came to an end")
		}
	}
	cancel()
	if err := <-result; err != nil && !errors.Is(err, errDead) {
		t.Fatalf("ended with %v", err)
	}
	r.manager.hangUp(t)
}

var _ agent.Keeper = (*endpoint.Keeper)(nil)

var _ agent.Preparer = (*endpoint.Keeper)(nil)
