package endpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/follow"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
)

// restartTimeout bounds a restart of the kubelet, which systemd gives 90 seconds
// to end by default.
const restartTimeout = 2 * time.Minute

// follow has the host's kubeconfigs name the endpoint, and restarts the kubelet
// if it has to read its own anew. It returns the endpoint once nothing names a
// former one, or "" on a host that is no node or without rules.
func (k *Keeper) follow(ctx context.Context, at *record, rules rewrite.Rules) (string, error) {
	own, err := k.own(*at)
	if err != nil {
		return "", err
	}
	node := follow.Node{Root: k.o.Root, Own: own, System: k.o.System}
	edits, found, err := node.Look(rules)
	failures := []error{err}
	if !at.RestartDue && slices.ContainsFunc(edits, isKubelet) {
		at.RestartDue = true
		if err := k.document().Save(*at); err != nil {
			return "", errors.Join(append(failures, err)...)
		}
	}
	restart := at.RestartDue
	for _, edit := range edits {
		k.o.Log.Info("Pointing a configuration to the control plane's endpoint", "path", edit.Name, "endpoint", rules.Endpoint())
		err := node.Write(edit)
		if err != nil && isKubelet(edit) {
			restart = false
		}
		failures = append(failures, err)
	}
	if restart {
		failures = append(failures, k.restartKubelet(ctx, at))
	}
	if err := errors.Join(failures...); err != nil || !found {
		return "", err
	}
	return rules.Endpoint(), nil
}

func isKubelet(e follow.Edit) bool { return e.Name == follow.Kubelet }

// restartKubelet restarts it if it runs; one that is stopped reads its
// kubeconfig when it is started.
func (k *Keeper) restartKubelet(ctx context.Context, at *record) error {
	k.o.Log.Info("Restarting the kubelet, which has to use another endpoint")
	within, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	if _, err := k.o.Commands.Run(within, "", "systemctl", "try-restart", "kubelet.service"); err != nil {
		return fmt.Errorf("restarting the kubelet: %w", err)
	}
	at.RestartDue = false
	return k.document().Save(*at)
}
