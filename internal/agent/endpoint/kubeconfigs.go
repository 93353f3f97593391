package endpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/nodeconfig"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
)

// restartTimeout is the time limit of a restart of the kubelet, to which systemd
// gives 90 seconds by default to stop.
const restartTimeout = 2 * time.Minute

// updateKubeconfigs replaces former endpoints in the host's kubeconfigs, and
// restarts the kubelet if its own kubeconfig changed. It returns the endpoint
// once no file names a former one, and "" on a host that is not a node or if
// the rules are empty.
func (a *Applier) updateKubeconfigs(ctx context.Context, current *record, rules rewrite.Rules) (string, error) {
	local, err := a.localAddresses(*current)
	if err != nil {
		return "", err
	}
	host := nodeconfig.Host{Root: a.o.Root, LocalAddresses: local, System: a.o.System}
	edits, found, err := host.Find(rules)
	failures := []error{err}
	if !current.RestartDue && slices.ContainsFunc(edits, isKubelet) {
		current.RestartDue = true
		if err := a.document().Save(*current); err != nil {
			return "", errors.Join(append(failures, err)...)
		}
	}
	restart := current.RestartDue
	for _, edit := range edits {
		a.o.Log.Info("Pointing a configuration to the control plane's endpoint", "path", edit.Name, "endpoint", rules.Endpoint())
		err := host.Write(edit)
		if err != nil && isKubelet(edit) {
			restart = false
		}
		failures = append(failures, err)
	}
	if restart {
		failures = append(failures, a.restartKubelet(ctx, current))
	}
	if err := errors.Join(failures...); err != nil || !found {
		return "", err
	}
	return rules.Endpoint(), nil
}

func isKubelet(e nodeconfig.Edit) bool { return e.Name == nodeconfig.Kubelet }

// restartKubelet restarts a running kubelet; a stopped one reads its kubeconfig
// when it starts.
func (a *Applier) restartKubelet(ctx context.Context, current *record) error {
	a.o.Log.Info("Restarting the kubelet, which has to use another endpoint")
	commandCtx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	if _, err := a.o.Commands.Run(commandCtx, "", "systemctl", "try-restart", "kubelet.service"); err != nil {
		return fmt.Errorf("restarting the kubelet: %w", err)
	}
	current.RestartDue = false
	return a.document().Save(*current)
}
